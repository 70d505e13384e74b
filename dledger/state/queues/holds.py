"""Holds: who keeps which part of a queue until when.

Owns: the hold table, the rules of Hold and ReleaseHold. Not: what a hold stops (`trim.py`).

    60 topic_id, queue u32, owner   -> offset i64, until_ms i64

A hold is alive while the entry's stamp is below its `until_ms` (D8).
"""

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from dledger.state.commands.codec import ID_SIZE, Int64, UInt32
from dledger.state.commands.command import Command
from dledger.state.queues.table import Queue
from dledger.state.results import Held, Refused
from dledger.state.tables import KEY_U32, PREFIX, Table, Writer, after
from dledger.state.values import KeptFrom
from dledger.types import Entry
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import GROUP_NAME_LENGTH_MAX

if TYPE_CHECKING:
    from dledger.state.state import State

HOLDS_PER_QUEUE_MAX: Final = 64
OWNER_SIZE_MAX: Final = GROUP_NAME_LENGTH_MAX
"""Bytes in the name of a hold's owner."""
HOLD_VALUE: Final = struct.Struct("<qq")


class HoldTable:
    """The holds on this group's queues."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._store = writer.store

    def alive(self, queue: Queue, time_ms: int) -> dict[bytes, tuple[int, int]]:
        """Return owner -> (offset, until_ms) of a queue's holds; delete those that ended."""
        prefix = _prefix(*queue.id)
        alive: dict[bytes, tuple[int, int]] = {}
        for key, value in self._store.scan(prefix, after(prefix), HOLDS_PER_QUEUE_MAX):
            offset, until_ms = HOLD_VALUE.unpack(value)
            if until_ms > time_ms:
                alive[key[len(prefix) :]] = offset, until_ms
            else:
                self._writer.delete(key)
        return alive

    def put(self, queue: Queue, owner: bytes, offset: int, until_ms: int) -> None:
        """Add or renew a hold."""
        self._writer.put(_prefix(*queue.id) + owner, HOLD_VALUE.pack(offset, until_ms))

    def delete(self, queue: Queue, owner: bytes) -> None:
        """End a hold; no effect when there is none."""
        key = _prefix(*queue.id) + owner
        if len(owner) <= OWNER_SIZE_MAX and self._store.get(key) is not None:
            self._writer.delete(key)

    def listed(
        self, topic_id: bytes | None, queue: int | None, after_key: bytes, limit: int
    ) -> tuple[list[KeptFrom], bytes]:
        """Return up to `limit` holds, ended ones too, and where the next page begins.

        In order of topic ids, queues and owners; of one topic or queue, or of all. `after_key` is
        empty, or what the last answer returned. The returned key is empty at the end.
        """
        prefix = PREFIX[Table.HOLD]
        if topic_id is not None:
            prefix = PREFIX[Table.HOLD] + topic_id if queue is None else _prefix(topic_id, queue)
        start = max(prefix, PREFIX[Table.HOLD] + after_key + b"\0") if after_key else prefix
        stop = after(prefix)
        rows = self._store.scan(start, stop, limit) if start < stop else []
        holds = [_row(key[1:], value) for key, value in rows]
        return holds, rows[-1][0][1:] if len(rows) == limit else b""


@dataclass(frozen=True, slots=True)
class Hold(Command[Held]):
    """Keep a queue from `offset` on, until a leader time, for an owner."""

    NUMBER: ClassVar = 9
    ROWS_READ_MAX: ClassVar = HOLDS_PER_QUEUE_MAX

    owner: str
    topic_id: bytes
    queue: UInt32
    offset: Int64
    until_ms: Int64

    def apply(self, state: "State", entry: Entry) -> Held | Refused:
        """Add or renew the owner's hold."""
        queue = state.queue(self.topic_id, self.queue)
        owner, time_ms = self.owner.encode(), entry.time_ms
        if not 1 <= len(owner) <= OWNER_SIZE_MAX:
            raise DledgerError(
                Code.INVALID_ARGUMENT, f"owner has {len(owner)} bytes, 1 to {OWNER_SIZE_MAX}"
            )
        if self.until_ms <= time_ms:
            raise DledgerError(
                Code.INVALID_ARGUMENT, f"until_ms {self.until_ms}, it is {time_ms} already"
            )
        if not queue.minimum <= self.offset <= queue.maximum:
            return Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"offset {self.offset}, the queue holds {queue.minimum} to {queue.maximum}",
            )
        alive = state.holds.alive(queue, time_ms)
        if owner not in alive and len(alive) >= HOLDS_PER_QUEUE_MAX:
            return Refused(
                Code.TOO_MANY_HOLDS,
                f"{len(alive)} holds on the queue, at most {HOLDS_PER_QUEUE_MAX}",
            )
        state.holds.put(queue, owner, self.offset, self.until_ms)
        return Held(self.until_ms)


@dataclass(frozen=True, slots=True)
class ReleaseHold(Command[Held]):
    """End a hold."""

    NUMBER: ClassVar = 10
    FREES_SPACE: ClassVar = True

    owner: str
    topic_id: bytes
    queue: UInt32

    def apply(self, state: "State", entry: Entry) -> Held | Refused:
        """End the hold; no effect when there is none."""
        state.holds.delete(state.queue(self.topic_id, self.queue), self.owner.encode())
        return Held(0)


def _prefix(topic_id: bytes, number: int) -> bytes:
    return PREFIX[Table.HOLD] + topic_id + KEY_U32.pack(number)


def _row(key: bytes, value: bytes) -> KeptFrom:
    offset, until_ms = HOLD_VALUE.unpack(value)
    (queue,) = KEY_U32.unpack_from(key, ID_SIZE)
    return KeptFrom(key[:ID_SIZE], queue, key[ID_SIZE + KEY_U32.size :].decode(), offset, until_ms)
