"""Trimming queues, holds that delay it, and the removal of rows that nobody sees any more.

Owns: the hold table, the garbage table, the rules of Trim, Hold and ReleaseHold. Not: the bounds
of queues (`table.py`), nor segments: each member deletes those below the head by itself.

    60 topic_id, queue u32, owner   -> offset i64, until_ms i64
    61 number u64                   -> start size u16, start, stop: a range of keys to delete

A hold is alive while the entry's stamp is below its `until_ms` (D8). Rows in a garbage range are
invisible already; every entry, whatever it holds, deletes GARBAGE_ROWS_PER_ENTRY of them and one
more for each of its payloads: so no apply takes long however much was trimmed, what payloads add is
deleted as fast as it comes, and all members delete the same.
"""

import datetime as dt
import struct
from dataclasses import replace
from typing import Final

from dledger.state.commands.codec import HOLDS_PER_QUEUE_MAX, ID_SIZE, Hold, ReleaseHold, Trim
from dledger.state.queues.table import Queue
from dledger.state.results import Held, Refused, Trimmed
from dledger.state.tables import PREFIX, U32, U64, Table, Writer, after
from dledger.state.values import KeptFrom
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import GROUP_NAME_LENGTH_MAX, TIME_MS_MAX

GARBAGE_ROWS_PER_ENTRY: Final = 32
OWNER_SIZE_MAX: Final = GROUP_NAME_LENGTH_MAX
"""Bytes in the name of a hold's owner."""
HOLD_VALUE: Final = struct.Struct("<qq")
GARBAGE_SIZE: Final = struct.Struct("<H")
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
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

    def _alive(self, queue: Queue, time_ms: int) -> dict[bytes, tuple[int, int]]:
        """Return owner -> (offset, until_ms) of a queue's holds; those that ended are deleted."""
        prefix = _prefix(*queue.id)
        alive: dict[bytes, tuple[int, int]] = {}
        for key, value in self._store.scan(prefix, after(prefix), HOLDS_PER_QUEUE_MAX):
            offset, until_ms = HOLD_VALUE.unpack(value)
            if until_ms > time_ms:
                alive[key[len(prefix) :]] = offset, until_ms
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
        self._writer.put(
            _prefix(*queue.id) + owner, HOLD_VALUE.pack(command.offset, command.until_ms)
        )
        return Held(command.until_ms)

    def release(self, command: ReleaseHold, queue: Queue) -> Held:
        """End a hold; of no effect when there is none."""
        prefix = _prefix(*queue.id)
        key = prefix + command.owner.encode()
        if len(key) <= len(prefix) + OWNER_SIZE_MAX and self._store.get(key) is not None:
            self._writer.delete(key)
        return Held(0)

    def listed(
        self, topic_id: bytes | None, queue: int | None, after_key: bytes, limit: int
    ) -> tuple[list[KeptFrom], bytes]:
        """Return up to `limit` holds, also those that ended, and where to go on; empty: at the end.

        In order of topic ids, queues and owners; of one topic or queue, or of all. `after_key` is
        empty, or what the last answer said.
        """
        prefix = PREFIX[Table.HOLD]
        if topic_id is not None:
            prefix = PREFIX[Table.HOLD] + topic_id if queue is None else _prefix(topic_id, queue)
        start = max(prefix, PREFIX[Table.HOLD] + after_key + b"\0") if after_key else prefix
        stop = after(prefix)
        rows = self._store.scan(start, stop, limit) if start < stop else []
        holds = [_row(key[1:], value) for key, value in rows]
        return holds, rows[-1][0][1:] if len(rows) == limit else b""

    def limit(self, command: Trim, queue: Queue, time_ms: int) -> Trimmed | Refused:
        """Return up to where a trim may go, and which owner's hold stops it there, if one does."""
        if not 0 <= command.offset <= queue.maximum:
            return Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"offset {command.offset}, the queue ends at {queue.maximum}",
            )
        alive = self._alive(queue, time_ms)
        if alive:
            first = min(alive, key=lambda owner: (alive[owner][0], owner))
            offset, until_ms = alive[first]
            owner = first.decode()
            if offset < command.offset:
                if offset <= queue.minimum < command.offset:
                    others = f"; {len(alive)} holds in all" if len(alive) > 1 else ""
                    return Refused(
                        Code.HELD,
                        f"{owner} holds the queue from offset {offset} on, until "
                        f"{moment(until_ms)}{others}",
                    )
                return Trimmed(offset, owner, until_ms)
        return Trimmed(command.offset)


def trim(
    command: Trim, queue: Queue, time_ms: int, holds: HoldTable
) -> tuple[int, Trimmed] | Refused:
    """Return the new minimum, which may be the old one, and the answer."""
    found = holds.limit(command, queue, time_ms)
    if isinstance(found, Refused):
        return found
    answer = replace(found, minimum=max(found.minimum, queue.minimum))
    return answer.minimum, answer


def moment(time_ms: int) -> str:
    """Return a leader's time as people write it, in UTC, to the second."""
    if not 0 <= time_ms <= TIME_MS_MAX:
        return f"{time_ms} ms"
    at = EPOCH + dt.timedelta(seconds=time_ms // 1_000)
    return at.isoformat(sep=" ", timespec="seconds")


def _prefix(topic_id: bytes, number: int) -> bytes:
    return PREFIX[Table.HOLD] + topic_id + U32.pack(number)


def _row(key: bytes, value: bytes) -> KeptFrom:
    offset, until_ms = HOLD_VALUE.unpack(value)
    (queue,) = U32.unpack_from(key, ID_SIZE)
    return KeptFrom(key[:ID_SIZE], queue, key[ID_SIZE + U32.size :].decode(), offset, until_ms)
