"""What simulated clients ask of members: the native API's calls as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.sim.invariants.delivery.queue_contents import QueueKey


@dataclass(frozen=True, slots=True)
class Append:
    """Store one batch; the answer's value is the base offset."""

    batch: bytes


@dataclass(frozen=True, slots=True)
class AppendTogether:
    """Store batches in one frame; the answer's value is the base offset of the first."""

    batches: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Register:
    """Register a life of a producer; the answer's value is `Registered` or `Taken`."""

    producer_id: bytes
    life_id: bytes
    epoch: int


@dataclass(frozen=True, slots=True)
class Registered:
    """The epoch to stamp with."""

    epoch: int
    last: Mapping[QueueKey, int] = field(default_factory=dict[QueueKey, int])
    """By queue: the last sequence that the epoch before has stored."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The epoch that another life holds."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read batches from an offset on; the answer's value is `Fetched`."""

    queue: QueueKey
    offset: int
    max_bytes: int
    wait: float = 0.0
    """At the end of the queue: so many virtual seconds for more to come."""


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """One batch as it was served."""

    base_offset: int
    first_record: int
    record_count: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Fetched:
    """Bounds of the queue at that member, and what it served."""

    minimum: int
    maximum: int
    batches: tuple[FetchedBatch, ...]


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """Confirmed minimum and maximum of a queue; the value is (minimum, maximum)."""

    queue: QueueKey


@dataclass(frozen=True, slots=True)
class CommitOffset:
    """Store a consumer group's offset; the value is what is stored now."""

    group: str
    queue: QueueKey
    offset: int
    reset: bool


@dataclass(frozen=True, slots=True)
class ReadOffset:
    """Confirmed read of a group's offset; the value is the offset, -1 when none."""

    group: str
    queue: QueueKey


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Create a topic under a given id; the value is the id that holds now."""

    name: str
    topic_id: bytes
    queues: int
    groups: tuple[str, ...]
    retention_ms: int = 0


@dataclass(frozen=True, slots=True)
class HoldQueue:
    """Keep a queue from an offset on for a while; 0 s ends it. The value is when it ends."""

    owner: str
    queue: QueueKey
    offset: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TrimQueue:
    """Move a queue's minimum; the answer's value is `Trimmed`."""

    queue: QueueKey
    offset: int


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The new minimum, and who held the rest; empty: nobody."""

    minimum: int
    held_by: str
