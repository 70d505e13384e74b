"""Values that commands carry, tables keep and queries return. No logic beyond their own fields."""

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple

PERMISSION_READ: Final = 4
PERMISSION_WRITE: Final = 2


class TopicType(enum.IntEnum):
    """What a topic's messages are; numbers as in broker.proto."""

    NORMAL = 0
    FIFO = 1
    DELAY = 2
    TRANSACTION = 3


class LayoutPart(NamedTuple):
    """Consecutive queues of a topic that one group holds."""

    group: str
    write_queues: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's configuration: the same in every group that holds a part of it (D14)."""

    topic_id: bytes
    """16 bytes; a re-created name is another topic."""
    name: str
    type: TopicType
    layout_version: int
    """1 at first, one more with each change of the layout."""
    layout: tuple[LayoutPart, ...]
    """Queues are numbered from 0 through the parts in order."""
    read_queues: int
    """Over all parts (S22)."""
    permission: int
    """Bits: PERMISSION_READ, PERMISSION_WRITE."""
    control_index: int
    """Index in the control group's log that decided this."""
    deleted: bool = False

    @property
    def write_queues(self) -> int:
        """How many queues take messages, over all parts."""
        return sum(part.write_queues for part in self.layout)

    def owner_of(self, queue: int) -> str:
        """Return the group that holds a queue; empty when the topic has no such queue.

        Queues that are only read (read_queues above the layout's total) lie with the last part.
        """
        first = 0
        for part in self.layout:
            first += part.write_queues
            if queue < first:
                return part.group
        return self.layout[-1].group if queue < self.read_queues else ""


class QueueSpan(NamedTuple):
    """One row of a consume queue: where a batch lies in the log and which offsets it has."""

    base_offset: int
    """Offset of record `first_record`."""
    position: int
    """Of the first byte of the batch."""
    first_record: int
    record_count: int
    size: int
    """Of the whole batch, bytes."""
    store_time_ms: int


class KeyHit(NamedTuple):
    """A batch that holds a record whose key has the hash. Its keys decide (collisions)."""

    queue: int
    span: QueueSpan


class IdHit(NamedTuple):
    """Where the record of a message id lies."""

    topic_id: bytes
    queue: int
    offset: int
    record: int
    """Place within the batch."""
    span: QueueSpan


class StoredOffset(NamedTuple):
    """What a consumer group committed for a queue: the next offset to consume (S99)."""

    offset: int
    metadata: str
    time_ms: int


class ProducerInfo(NamedTuple):
    """A registered producer."""

    epoch: int
    active_ms: int
    """Leader time of its last write, rounded down to ACTIVITY_STEP_MS."""
