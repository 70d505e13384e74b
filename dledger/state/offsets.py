"""Offsets that are stored under a name: the next offset to consume of each queue (S99, I14).

Owns: the offset table and the rule that an offset goes back only by an explicit reset. Not: the
progress of consumer groups that were created (`progress/`); such a group takes over what is stored
under its name.

    40 topic_id, queue u32, consumer group  -> offset i64, time_ms i64, metadata, UTF-8
"""

import struct
from typing import Final, NamedTuple

from dledger.state.commands.codec import Int64, UInt32, UInt64
from dledger.state.queues.table import Queue
from dledger.state.tables import KEY_U32, PREFIX, Table, Writer
from dledger.state.values import StoredOffset
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import GROUP_NAME_LENGTH_MAX

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


class DoneRange(NamedTuple):
    """Offsets that are done: first <= offset < end."""

    first: Int64
    end: Int64

    def describe(self) -> str:
        """Return one word."""
        return f"{self.first}..{self.end - 1}"


class CommitOffset(NamedTuple):
    """The next offset to consume of one queue, and what is done above it."""

    topic_id: bytes
    queue: UInt32
    offset: Int64
    metadata: str = ""
    epoch: UInt64 = 0
    """Of the claim of the one who commits; 0: by assignment, without a claim."""
    resets: UInt32 = 0
    """As the claim was answered."""
    done: tuple[DoneRange, ...] = ()

    def describe(self) -> str:
        """Return one word."""
        done = "".join(f"+{each.describe()}" for each in self.done)
        claim = f"#{self.epoch}.{self.resets}" if self.epoch else ""
        return f"{self.topic_id.hex()}/{self.queue}@{self.offset}{done}{claim}"


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

    def delete(self, consumer_group: bytes, topic_id: bytes, queue: int) -> None:
        """Delete what is stored; no effect when nothing is."""
        key = _key(consumer_group, topic_id, queue)
        if self._store.get(key) is not None:
            self._writer.delete(key)


def _key(consumer_group: bytes, topic_id: bytes, queue: int) -> bytes:
    return PREFIX[Table.GROUP_OFFSET] + topic_id + KEY_U32.pack(queue) + consumer_group
