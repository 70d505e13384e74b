"""What a system must do to be compared: the protocol `Peer`, and the sender that it hands out.

Owns the words that all peers share. Not: measuring (`measuring.py`), processes (`nodes.py`).
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

BODY_SIZE = 1024
Purpose = Literal["rate", "single", "failover"]
"""What counts for a producer: many messages, the time of each, or to go on soon after a failure."""
Done = Callable[[bool], None]
"""Called once for a message: True when it is acknowledged."""
Heard = Callable[[bytes], None]
"""Called with the body of each message that a reader gets, in whatever thread."""


@dataclass(frozen=True, slots=True)
class Load:
    """Messages that are handed over one call each."""

    seconds: float
    queues: int = 1
    topics: int = 1
    size_bytes: int = BODY_SIZE
    rate: float = 0.0
    """Messages per second; 0: as fast as the system takes them."""


@dataclass(slots=True)
class Sent:
    """What came of a load."""

    rate: float = 0.0
    """Acknowledged messages per second, after the warm-up."""
    seconds: list[float] = field(default_factory=list[float])
    """With a rate: for each message the time from when it was due to its acknowledgement."""


class Sender(Protocol):
    """A producer of a system."""

    def submit(self, topic: str, body: bytes, done: Done) -> bool:
        """Hand a message over; False: there is no room, nothing was taken."""
        ...

    async def room(self) -> None:
        """Wait until there may be room."""
        ...

    async def breathe(self) -> None:
        """Hand on what was submitted, and let acknowledgements arrive."""
        ...

    async def send(self, topic: str, body: bytes) -> bool:
        """Send one message and wait a bounded time; tell whether it is acknowledged."""
        ...


class Peer(Protocol):
    """A system of three nodes on loopback. All waits are bounded: NotReady names what was late."""

    @property
    def name(self) -> str:
        """How the table calls it."""
        ...

    @property
    def fsync(self) -> str:
        """What an acknowledgement means: who has synced it."""
        ...

    @property
    def note(self) -> str:
        """What its figures mean where that needs words."""
        ...

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What its client raises."""
        ...

    def missing(self) -> str:
        """Return what this machine lacks for it, and what helps; empty: nothing."""
        ...

    def lacks(self, load: Load) -> str:
        """Return why the system cannot be given a load; empty: it can."""
        ...

    def version(self) -> str:
        """Return the version that is installed."""
        ...

    def install(self) -> None:
        """Get what is not there yet."""
        ...

    async def start(self, folder: Path) -> None:
        """Start a new cluster, with its data in the folder."""
        ...

    async def stop(self) -> None:
        """End all its processes."""
        ...

    async def one_call_per_message(self, load: Load) -> Sent:
        """Hand messages over one by one."""
        ...

    async def lone_send(self, seconds: float) -> dict[str, list[float]]:
        """Send one message after the other; return the seconds of each, by client."""
        ...

    async def backlog(self, count: int) -> float:
        """Store messages, then read them with one consumer; return messages per second."""
        ...

    async def end_to_end(self, rate: float, seconds: float) -> list[float]:
        """Send at a rate to a reader; return how old each message was when it arrived, in s."""
        ...

    async def failover(self, trials: int) -> list[float]:
        """Kill the leader (SIGKILL) under one producer; return the seconds without an answer."""
        ...


class System(Protocol):
    """What `measuring.py` needs of a system to take the figures."""

    async def create(self, topics: Sequence[str], queues: int) -> None:
        """Make topics, each with so many queues, and wait until they are usable."""
        ...

    def sending(self, purpose: Purpose = "rate") -> AbstractAsyncContextManager[Sender]:
        """Open a producer."""
        ...

    def reading(self, topic: str, heard: Heard) -> AbstractAsyncContextManager[None]:
        """Read what comes to a topic of one queue from when this is entered on."""
        ...

    async def read_back(self, topic: str, count: int) -> float:
        """Read so many stored messages by one consumer; return the seconds from the first on."""
        ...

    async def leader(self, topic: str) -> str:
        """Return the node that leads the topic's only queue."""
        ...

    def kill(self, node: str) -> None:
        """Kill a node (SIGKILL)."""
        ...

    def restart(self, node: str) -> None:
        """Start a killed node on its data."""
        ...

    async def settled(self, topic: str) -> None:
        """Wait until all three nodes have caught up."""
        ...
