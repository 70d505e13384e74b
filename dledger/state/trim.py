"""Trimming queues, holds that delay it, and the removal of rows that nobody sees any more.

Owns: the hold table, the garbage table, the rules of Trim, Hold and ReleaseHold. Not: the bounds
of queues (`queues.py`), nor segments: each member deletes those below the head by itself.

    60 topic_id, queue u32, owner   -> offset i64, until_ms i64
    61 number u64                   -> start size u16, start, stop: a range of keys to delete

A hold is alive while the entry's stamp is below its `until_ms` (D8). Rows in a garbage range are
invisible already; every entry, whatever it holds, deletes GARBAGE_ROWS_PER_ENTRY of them and one
more for each of its payloads: so no apply takes long however much was trimmed, what payloads add is
deleted as fast as it comes, and all members delete the same.
"""

import struct
from typing import Final

from dledger.state.command import Hold, ReleaseHold, Trim
from dledger.state.queues import Queue
from dledger.state.results import Held, Refused, Trimmed
from dledger.state.tables import PREFIX, U32, U64, Table, Writer, after
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import GROUP_NAME_LENGTH_MAX

GARBAGE_ROWS_PER_ENTRY: Final = 32
HOLDS_PER_QUEUE_MAX: Final = 64
OWNER_SIZE_MAX: Final = GROUP_NAME_LENGTH_MAX
"""Bytes in the name of a hold's owner."""
HOLD_VALUE: Final = struct.Struct("<qq")
GARBAGE_SIZE: Final = struct.Struct("<H")
_START: Final = PREFIX[Table.GARBAGE]
_STOP: Final = after(_START)


class Garbage:
    """Ranges of keys to be deleted, a few rows with every entry."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._store = writer.store
        first = self._store.scan(_START, _STOP, 1)
        last = self._store.scan(_START, _STOP, 1, reverse=True)
        self._first = U64.unpack(first[0][0][1:])[0] if first else 0
        self._next = U64.unpack(last[0][0][1:])[0] + 1 if last else 0
        self._resume_at = b""
        """Below this nothing is left of the oldest range. A scan from its start would go over all
        that was deleted since the last save, with each entry."""

    @property
    def is_empty(self) -> bool:
        """True: nothing waits."""
        return self._first == self._next

    def add(self, start: bytes, stop: bytes) -> None:
        """Delete the rows with start <= key < stop some time; nobody may write there again."""
        if start >= stop:
            return
        if self.is_empty:
            self._first = self._next = 0
        value = GARBAGE_SIZE.pack(len(start)) + start + stop
        self._writer.put(_START + U64.pack(self._next), value)
        self._next += 1

    def collect(self, payloads: int) -> None:
        """Delete rows of the oldest ranges: see the module header. A range counts as a row, too."""
        left = GARBAGE_ROWS_PER_ENTRY + payloads
        while left > 0 and not self.is_empty:
            key = _START + U64.pack(self._first)
            value = self._store.get(key)
            assert value is not None, f"no garbage range {self._first} below {self._next}"
            (size,) = GARBAGE_SIZE.unpack_from(value)
            start, stop = value[2 : 2 + size], value[2 + size :]
            rows = self._store.scan(max(start, self._resume_at), stop, left)
            for row, _ in rows:
                self._writer.delete(row)
            if len(rows) == left:
                self._resume_at = rows[-1][0] + b"\0"
                return
            left -= len(rows) + 1
            self._writer.delete(key)
            self._first += 1
            self._resume_at = b""


class HoldTable:
    """Who keeps which part of a queue until when."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._store = writer.store

    def _alive(self, queue: Queue, time_ms: int) -> dict[bytes, int]:
        """Return owner -> offset of the holds on a queue; those that ended are deleted."""
        prefix = _prefix(queue)
        alive: dict[bytes, int] = {}
        for key, value in self._store.scan(prefix, after(prefix), HOLDS_PER_QUEUE_MAX):
            offset, until_ms = HOLD_VALUE.unpack(value)
            if until_ms > time_ms:
                alive[key[len(prefix) :]] = offset
            else:
                self._writer.delete(key)
        return alive

    def hold(self, command: Hold, queue: Queue, time_ms: int) -> Held | Refused:
        """Add or renew a hold."""
        owner = command.owner.encode()
        if not 1 <= len(owner) <= OWNER_SIZE_MAX:
            raise DledgerError(
                Code.INVALID_ARGUMENT, f"owner has {len(owner)} bytes, 1 to {OWNER_SIZE_MAX}"
            )
        if command.until_ms <= time_ms:
            raise DledgerError(
                Code.INVALID_ARGUMENT, f"until_ms {command.until_ms}, it is {time_ms} already"
            )
        if not queue.minimum <= command.offset <= queue.maximum:
            return Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"offset {command.offset}, the queue holds {queue.minimum} to {queue.maximum}",
            )
        alive = self._alive(queue, time_ms)
        if owner not in alive and len(alive) >= HOLDS_PER_QUEUE_MAX:
            return Refused(
                Code.TOO_MANY_HOLDS,
                f"{len(alive)} holds on the queue, at most {HOLDS_PER_QUEUE_MAX}",
            )
        self._writer.put(_prefix(queue) + owner, HOLD_VALUE.pack(command.offset, command.until_ms))
        return Held(command.until_ms)

    def release(self, command: ReleaseHold, queue: Queue) -> Held:
        """End a hold; of no effect when there is none."""
        key = _prefix(queue) + command.owner.encode()
        if len(key) <= len(_prefix(queue)) + OWNER_SIZE_MAX and self._store.get(key) is not None:
            self._writer.delete(key)
        return Held(0)

    def limit(self, command: Trim, queue: Queue, time_ms: int) -> tuple[int, str] | Refused:
        """Return up to where a trim may go, and which owner's hold stops it there, if one does."""
        if not 0 <= command.offset <= queue.maximum:
            return Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"offset {command.offset}, the queue ends at {queue.maximum}",
            )
        alive = self._alive(queue, time_ms)
        if alive:
            owner, offset = min(alive.items(), key=lambda item: (item[1], item[0]))
            if offset < command.offset:
                if offset <= queue.minimum < command.offset:
                    return Refused(
                        Code.HELD, f"{owner.decode()} holds the queue from offset {offset} on"
                    )
                return offset, owner.decode()
        return command.offset, ""


def trim(
    command: Trim, queue: Queue, time_ms: int, holds: HoldTable
) -> tuple[int, Trimmed] | Refused:
    """Return the new minimum, which may be the old one, and the answer."""
    found = holds.limit(command, queue, time_ms)
    if isinstance(found, Refused):
        return found
    minimum = max(found[0], queue.minimum)
    return minimum, Trimmed(minimum, found[1])


def _prefix(queue: Queue) -> bytes:
    topic_id, number = queue.id
    return PREFIX[Table.HOLD] + topic_id + U32.pack(number)
