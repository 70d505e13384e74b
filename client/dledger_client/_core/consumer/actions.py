"""What a consumer's core asks its driver to do: a closed list. Answers come back as inputs."""

from dataclasses import dataclass

from dledger_client._core.consumer.state import Place, Wanted
from dledger_client._core.routes import RefreshRoutes
from dledger_client.unreadable import Unreadable


@dataclass(frozen=True, slots=True)
class OpenFetch:
    """Open a fetch stream; answer with `frame` and, at its end, `stream_down`."""

    stream: int
    group: str
    address: str
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True)
class CloseFetch:
    """Close a stream; no answer is expected."""

    stream: int


@dataclass(frozen=True, slots=True)
class FindOffset:
    """An offset is out of range: find another by the consumer's policy, then `seek`, or `fail`."""

    place: Place
    offset: int
    detail: str


@dataclass(frozen=True, slots=True)
class TellUnreadable:
    """Records were passed over; no answer is expected."""

    what: Unreadable
    gone_before: int = 0
    """So many offsets right before them are compacted."""


Action = OpenFetch | CloseFetch | FindOffset | RefreshRoutes | TellUnreadable
