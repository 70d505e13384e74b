"""What consumer groups have consumed: the next offset of each queue (S99, I14).

Owns: the offset table and the rule that an offset goes back only by an explicit reset. Not: who is
a member of a group.

    40 topic_id, queue u32, consumer group  -> offset i64, time_ms i64, metadata, UTF-8
"""

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from dledger.state.commands.codec import Int64, UInt32, UInt64
from dledger.state.commands.command import Command
from dledger.state.queues.table import Queue
from dledger.state.results import OffsetsCommitted, Refused
from dledger.state.tables import KEY_U32, PREFIX, Table, Writer
from dledger.state.values import StoredOffset
from dledger.types import Entry
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import GROUP_NAME_LENGTH_MAX

if TYPE_CHECKING:
    from dledger.state.state import State

METADATA_SIZE_MAX: Final = 4_096
OFFSET_VALUE: Final = struct.Struct("<qq")


def check_consumer_group(consumer_group: str) -> bytes:
    """Return the name's bytes; INVALID_ARGUMENT when it is empty or too long."""
    name = consumer_group.encode()
    if not 1 <= len(name) <= GROUP_NAME_LENGTH_MAX:
        raise DledgerError(
            Code.INVALID_ARGUMENT,
            f"consumer_group has {len(name)} bytes, 1 to {GROUP_NAME_LENGTH_MAX}",
        )
    return name


class CommitOffset(NamedTuple):
    """The next offset to consume of one queue."""

    topic_id: bytes
    queue: UInt32
    offset: Int64
    metadata: str = ""

    def describe(self) -> str:
        """Return one word."""
        return f"{self.topic_id.hex()}/{self.queue}@{self.offset}"


class OffsetTable:
    """The offsets of all consumer groups for this group's queues."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._store = writer.store

    def read(self, consumer_group: bytes, topic_id: bytes, queue: int) -> StoredOffset | None:
        """Return what is stored, or None."""
        value = self._store.get(_key(consumer_group, topic_id, queue))
        if value is None:
            return None
        offset, time_ms = OFFSET_VALUE.unpack_from(value)
        return StoredOffset(offset, value[OFFSET_VALUE.size :].decode(), time_ms)

    def commit(
        self, consumer_group: bytes, item: CommitOffset, queue: Queue, time_ms: int, *, reset: bool
    ) -> tuple[Code, int]:
        """Store an offset; return OK or why not, and what is stored now (-1: nothing)."""
        stored = self.read(consumer_group, item.topic_id, item.queue)
        now = -1 if stored is None else stored.offset
        metadata = item.metadata.encode()
        if len(metadata) > METADATA_SIZE_MAX:
            return Code.INVALID_ARGUMENT, now
        if not 0 <= item.offset <= queue.maximum:
            return Code.OFFSET_OUT_OF_RANGE, now
        if item.offset < now and not reset:
            return Code.OFFSET_BEHIND, now
        self._writer.put(
            _key(consumer_group, item.topic_id, item.queue),
            OFFSET_VALUE.pack(item.offset, time_ms) + metadata,
        )
        return Code.OK, item.offset


@dataclass(frozen=True, slots=True)
class CommitOffsets(Command[OffsetsCommitted]):
    """Store a consumer group's offsets; each is taken or refused on its own."""

    NUMBER: ClassVar = 7
    WIRE_ORDER: ClassVar = ("consumer_group", "reset", "member_id", "generation", "offsets")

    consumer_group: str
    offsets: tuple[CommitOffset, ...]
    reset: bool = False
    """True: may go back (I14)."""
    member_id: str = ""
    generation: UInt64 = 0
    """With `member_id`: who commits; carried for fencing by group membership."""

    @property
    def rows_read_max(self) -> int:
        return 2 * len(self.offsets)

    def apply(self, state: "State", entry: Entry) -> OffsetsCommitted | Refused:
        """Store what may be stored; say of each why not."""
        consumer_group = check_consumer_group(self.consumer_group)
        codes: list[Code] = []
        stored: list[int] = []
        for item in self.offsets:
            try:
                queue = state.queue(item.topic_id, item.queue)
            except DledgerError as error:
                code, offset = error.code, -1
            else:
                code, offset = state.offsets.commit(
                    consumer_group, item, queue, entry.time_ms, reset=self.reset
                )
            codes.append(code)
            stored.append(offset)
        return OffsetsCommitted(tuple(codes), tuple(stored))


def _key(consumer_group: bytes, topic_id: bytes, queue: int) -> bytes:
    return PREFIX[Table.GROUP_OFFSET] + topic_id + KEY_U32.pack(queue) + consumer_group
