"""What a producer's core asks its driver to do: a closed list. Answers come back as inputs."""

from dataclasses import dataclass

from dledger_client._core.routes import RefreshRoutes


@dataclass(frozen=True, slots=True)
class OpenLink:
    """Open an append stream; answer with `link_up` or `link_down`. Frames come by `next_frame`."""

    link: int
    group: str
    address: str


@dataclass(frozen=True, slots=True)
class CloseLink:
    """Close a stream; nothing of it is of interest any more, and no answer is expected."""

    link: int
    reason: str


@dataclass(frozen=True, slots=True)
class Register:
    """Call `RegisterProducer` for this life of the producer and this epoch (`epoch.py`).

    Answer `registered`, `register_taken` or `register_failed`, with the number `ask`.
    """

    group: str
    address: str
    epoch: int
    ask: int


@dataclass(frozen=True, slots=True)
class ResolveTopic:
    """Look a topic up, or create it; answer with `routes_changed` or `topic_failed`."""

    topic: str
    create: bool


Action = OpenLink | CloseLink | Register | ResolveTopic | RefreshRoutes
