"""Values of a consumer's core: what it asks its driver for, and the state of a queue and a stream.

Owns nothing; `_fetch.py` decides.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from dledger_client.errors import ClientError
from dledger_client.records import RecordBatch
from dledger_client.unreadable import Unreadable

Place = tuple[str, int]
"""Topic and queue."""


class Wanted(NamedTuple):
    """One assignment of a fetch stream."""

    place: Place
    topic_id: bytes
    offset: int


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
class RefreshRoutes:
    """Fetch all routes; answer with `routes_changed`."""


@dataclass(frozen=True, slots=True)
class TellUnreadable:
    """Records were passed over; no answer is expected."""

    what: Unreadable


Action = OpenFetch | CloseFetch | FindOffset | RefreshRoutes | TellUnreadable


class QueueRead:
    """One assigned queue."""

    __slots__ = (
        "bad_frames",
        "buffer",
        "error",
        "fetch_at",
        "group",
        "is_lost",
        "is_paused",
        "maximum",
        "minimum",
        "place",
        "position",
        "topic_id",
    )

    def __init__(self, place: Place, topic_id: bytes, group: str, offset: int) -> None:
        self.place = place
        self.topic_id = topic_id
        self.group = group
        self.position = offset
        """The next record to be handed out."""
        self.fetch_at = offset
        """The next record to be fetched: position and what is buffered."""
        self.buffer: deque[RecordBatch] = deque()
        self.is_paused = False
        self.is_lost = False
        """Its offset is out of range and another one is being found."""
        self.bad_frames = 0
        self.error: ClientError | None = None
        self.minimum = -1
        self.maximum = -1
        """Bounds as the last frame told them; -1: not known."""

    @property
    def name(self) -> str:
        """Topic and queue, for errors."""
        return f"{self.place[0]}/{self.place[1]}"


class FetchStream:
    """One stream to one member."""

    __slots__ = ("address", "group", "id", "wanted")

    def __init__(self, identity: int, group: str, address: str, wanted: list[Wanted]) -> None:
        self.id = identity
        self.group = group
        self.address = address
        self.wanted = wanted
