"""Values that commands carry, tables keep and queries return. No logic beyond their own fields."""

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from dledger.state.commands.codec import UInt8, UInt32, UInt64
from dledger.state.consumers.settings import GroupSettings
from dledger_proto.limits import RETENTION_BY_KEY, RETENTION_DEFAULT

if TYPE_CHECKING:
    from dledger.state.progress.row import Progress

PERMISSION_READ: Final = 4
PERMISSION_WRITE: Final = 2


class TopicType(enum.IntEnum):
    """What a topic's messages are; numbers as in broker.proto."""

    NORMAL = 0
    FIFO = 1
    DELAY = 2
    TRANSACTION = 3
    PRIORITY = 4


class LayoutPart(NamedTuple):
    """Consecutive queues of a topic that one group holds."""

    group: str
    queues: UInt32

    def describe(self) -> str:
        """Return one word."""
        return f"{self.group}:{self.queues}"


@dataclass(frozen=True, slots=True)
class KeptFrom:
    """A hold on a queue: records from `offset` on stay until `until_ms`, leader time."""

    topic_id: bytes
    queue: int
    owner: str
    offset: int
    until_ms: int


class Retention(NamedTuple):
    """How long a topic keeps its messages; what either bound lets go is deleted."""

    time_ms: UInt64 = RETENTION_DEFAULT
    """Since a message was stored. RETENTION_DEFAULT: as the cluster; RETENTION_FOREVER: no bound;
    RETENTION_BY_KEY: the topic is compacted."""
    size: UInt64 = RETENTION_DEFAULT
    """Bytes of batches in each queue; as `time_ms`."""

    def describe(self) -> str:
        """Return one word."""
        return f"{self.time_ms}ms/{self.size}B"


AS_THE_CLUSTER: Final = Retention()
"""Of a topic that says nothing."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's configuration: the same in every group that holds a part of it (D14)."""

    topic_id: bytes
    """16 bytes; a re-created name is another topic."""
    name: str
    type: TopicType
    layout_version: UInt32
    """1 at first, one more with each change of the layout."""
    layout: tuple[LayoutPart, ...]
    """All queues that the topic ever had, numbered from 0 through the parts in order. A queue stays
    with its group for good, and the layout only grows."""
    write_queues: UInt32
    """How many of the first queues take messages."""
    read_queues: UInt32
    """How many of the first queues are read; queues that take messages always are (S22)."""
    permission: UInt8
    """Bits: PERMISSION_READ, PERMISSION_WRITE."""
    control_index: UInt64
    """Index in the control group's log that decided this."""
    deleted: bool = False
    settings: tuple[GroupSettings, ...] = ()
    """Of the consumer group that the topic is; empty: it is none."""
    retention: Retention = AS_THE_CLUSTER

    @property
    def consumer_group(self) -> GroupSettings | None:
        """The settings of the consumer group that this topic is; None: it is none."""
        return self.settings[0] if self.settings else None

    @property
    def is_compacted(self) -> bool:
        """True: of each key the last message stays, and there is no bound of time or size."""
        return self.retention.time_ms == RETENTION_BY_KEY

    def owner_of(self, queue: int) -> str:
        """Return the group that holds a queue; empty when the topic never had such a queue."""
        first = 0
        for part in self.layout:
            first += part.queues
            if queue < first:
                return part.group
        return ""


class Head(NamedTuple):
    """What the state needs of the log, by position; NO_POSITION: nothing."""

    was_freed: bool
    """False: nothing was ever trimmed or deleted, and the whole log stays."""
    queue_position: int
    queue: tuple[Topic, int, int] | None
    """The topic, number and minimum of the queue that begins there."""
    pinned_position: int
    """The lowest that a timer, a retry or a dead letter refers to."""
    horizon: int
    """Nothing below is needed: what the queue, or a pin, names there was carried forward."""

    @property
    def needed(self) -> int:
        """The lowest position that the state needs; NO_POSITION: none."""
        return max(min(self.queue_position, self.pinned_position), self.horizon)


class QueueSpan(NamedTuple):
    """One row of a consume queue: where a batch lies in the log and which offsets it has."""

    base_offset: int
    """Offset of record `first_record`."""
    position: int
    """Of the first byte of the batch."""
    first_record: int
    record_count: int
    size: int
    """Of the whole batch, bytes; 0: see `is_gone`."""
    store_time_ms: int
    is_reference: bool = False
    """The batch lies below the rows before it, and the row names a part of it (D7)."""
    copy: int | None = None
    """Where the batch lies since it was carried forward; None: at its position."""

    @property
    def place(self) -> int:
        """Where the bytes of the batch lie. Its position stays its name."""
        return self.position if self.copy is None else self.copy

    @property
    def is_gone(self) -> bool:
        """True: compaction deleted the records of these offsets, and no batch belongs to them."""
        return not self.size


class Compactable(NamedTuple):
    """What of a queue can be compacted."""

    minimum: int
    cleaned: int
    """Of the records below it, each that is superseded is superseded by one above it."""
    stop: int
    """The newest block begins here, and stays as it is."""


class Carried(NamedTuple):
    """How far old batches were carried forward."""

    horizon: int
    """Everything that the state needs lies at this log position or above."""
    target: int
    """What the horizon will be after the pass under way; 0: there is none."""
    cursor: bytes
    """How far that pass has come."""


class Root(NamedTuple):
    """Something of the state that needs a batch: a row of a queue, or a pin."""

    key: bytes
    """Its place in the order of a pass."""
    position: int
    """Of the batch."""
    place: int
    """Where the batch lies."""
    size: int = 0
    """Of the batch; 0: a pin does not know it."""
    queue: tuple[bytes, int] | None = None
    """Of a row."""
    records: int = 0
    """Of the batch, if it is a row's."""


class Reference(NamedTuple):
    """A part of a batch that lies anywhere in the log: what a reference and a timer name (D7)."""

    position: int
    """Of the first byte of the batch."""
    first_record: int
    record_count: int
    size: int
    """Of the whole batch, bytes."""


class Origin(NamedTuple):
    """Which record is delivered again, how often it failed, and why it failed last."""

    topic_id: bytes
    queue: int
    offset: int
    attempts: int = 0
    error: str = ""
    resent: int = 0
    """How often it was sent again from the dead letters."""


class Timer(NamedTuple):
    """At `due_ms`, leader time, these records go into that queue."""

    due_ms: int
    number: int
    """Timers of one time fire in the order of their numbers."""
    topic_id: bytes
    queue: int
    reference: Reference
    origin: Origin | None
    """None: a batch that its producer delayed."""
    stored_ms: int
    """When the timer was set, leader time."""
    producer_id: bytes
    """With `base_number` the id of its first record; all zero: nobody can recall the timer."""
    base_number: int
    has_keys: bool


class Schedule(NamedTuple):
    """A message that is sent again and again, at the times of a cron expression."""

    topic_id: bytes
    schedule_id: bytes
    """Follows from topic and name. It is the producer id of everything that the schedule sends."""
    name: str
    cron: str
    time_zone: str
    """In which the cron expression is read, as the IANA names it."""
    batch: bytes
    """One record for one queue, without a producer."""
    last_due_ms: int
    """When the last occurrence was due; before the first: when the schedule was set."""


class KeyHits(NamedTuple):
    """What a lookup by key found, newest first."""

    hits: "list[KeyHit]"
    next_position: int | None
    """Position of the newest batch that the lookup has not reached, because it found enough or
    looked long enough; None: there are no others."""


class KeyHit(NamedTuple):
    """A batch that holds a record whose key has the hash. Hashes collide: compare the keys."""

    queue: int
    span: QueueSpan
    before: int = 0
    """How many records the batch had, when it came, before those of the span's batch: compaction
    may have left a run of it."""


class IdHit(NamedTuple):
    """Where the record of a message id lies."""

    topic_id: bytes
    queue: int
    offset: int
    record: int
    """Place within the batch."""
    span: QueueSpan


class DeadLetter(NamedTuple):
    """A dead letter that is not settled."""

    offset: int
    """In the queue of dead letters."""
    died_ms: int
    origin: "Origin"


class FoundReference(NamedTuple):
    """Where a record is delivered again, and the position of the log entry that put it there."""

    queue: int
    offset: int
    position: int


class QueueProgress(NamedTuple):
    """What a consumer group has done in a queue, and what waits for it."""

    row: "Progress | None"
    """None: the group has no floor in the queue."""
    minimum: int
    maximum: int
    oldest_ms: int
    """Store time of the first record that is not done; 0: none waits, or there is no floor."""
    lag_bytes: int
    """Of the batches from that record on: exact for the first SPANS_MAX, estimated beyond."""
    expires_ms: int = 0
    """When the retention deletes that record, leader time; 0: no bound of time."""


class StoredOffset(NamedTuple):
    """What a consumer group committed for a queue: the next offset to consume (S99)."""

    offset: int
    metadata: str
    time_ms: int
