"""The timers of a group, in the order in which they fire (D23).

Owns: rows of timers, and how many wait. Not: when they fire and who recalls them (`commands.py`),
pins (`queues/references.py`).

    70 due_ms u64, number u64       -> topic_id 16, queue u32, position u64, first_record u32,
                                       record_count u32, size u32, stored_ms i64, producer_id 16,
                                       base_number u64, flags u8 (1: the batch has keys), the origin
                                       as in table 72; without one its producer delayed the batch
    71 producer_id 16, number u64   -> due_ms u64, number u64: by the id of its first record
    01 "timers"                     -> waiting u64

The number is that of the timer's pin, and numbers grow with the log. So timers of one time fire in
the order in which they were set.
"""

import struct
from collections.abc import Sequence
from typing import Final

from dledger.state.queues.references import (
    FIRST_RECORD_BITS,
    References,
    decode_origin,
    encode_origin,
)
from dledger.state.tables import KEY_U64, PREFIX, Table, Writer, after
from dledger.state.values import Origin, Reference, Timer
from dledger.store.store import Row
from dledger_proto.batch.codec import NO_ID
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import TIMERS_FOR_RETRIES, TIMERS_MAX

_KEY: Final = struct.Struct(">BQQ")
_ROW: Final = struct.Struct("<16sIQIIIq16sQB")
TARGET_AT: Final = slice(17, 33)
"""Where the id of the target's topic lies in a row: key and value."""
_HAS_KEYS: Final = 1
_START: Final = PREFIX[Table.TIMER]
_STOP: Final = after(_START)
WAITING_KEY: Final = PREFIX[Table.META] + b"timers"


class TimerTable:
    """The timers that wait."""

    def __init__(self, writer: Writer, references: References) -> None:
        self._writer = writer
        self._store = writer.store
        self._references = references
        value = self._store.get(WAITING_KEY)
        self._waiting: int = 0 if value is None else KEY_U64.unpack(value)[0]
        self._written = self._waiting
        self._from = _START
        """Below this key no timer waits. Without it each look would scan again over all timers that
        fired since the last save."""

    @property
    def waiting(self) -> int:
        """How many timers wait."""
        return self._waiting

    @property
    def next_due_ms(self) -> int | None:
        """When the next timer is due, leader time; None: no timer waits."""
        if not self._waiting:
            return None
        rows = self._store.scan(self._from, _STOP, 1)
        assert rows, f"{self._waiting} timers wait, and there is none"
        self._from = rows[0][0]
        return due_of(rows[0][0])

    @property
    def earliest_ms(self) -> int | None:
        """A bound of `next_due_ms` from below, without a look at the store."""
        if not self._waiting:
            return None
        return due_of(self._from) if len(self._from) > 8 else 0

    def check_room(self, *, for_retry: bool = False) -> None:
        """Refuse one timer more than may wait: TOO_MANY_TIMERS.

        The last TIMERS_FOR_RETRIES are not for what producers delay: a failure needs a timer, too.
        """
        most = TIMERS_MAX if for_retry else TIMERS_MAX - TIMERS_FOR_RETRIES
        if self._waiting >= most:
            whose = "" if for_retry else " of producers"
            raise DledgerError(
                Code.TOO_MANY_TIMERS,
                f"{self._waiting} timers wait in this broker group, at most {most}{whose}",
            )

    def add(
        self,
        due_ms: int,
        topic_id: bytes,
        queue: int,
        reference: Reference,
        origin: Origin | None,
        stored_ms: int,
        *,
        producer_id: bytes = NO_ID,
        base_number: int = 0,
        has_keys: bool = False,
    ) -> Timer:
        """Set a timer that puts a part of a batch into a queue; it pins the batch.

        The caller has asked `check_room`. `producer_id` and `base_number`: the id of the first
        record, by which the timer is recalled.
        """
        number = self._references.new_pin(reference)
        timer = Timer(
            due_ms, number, topic_id, queue, reference, origin, stored_ms, producer_id,
            base_number, has_keys,
        )  # fmt: skip
        self._put(timer)
        return timer

    def _put(self, timer: Timer) -> None:
        key = timer_key(timer.due_ms, timer.number)
        self._from = min(self._from, key)
        value = _ROW.pack(
            timer.topic_id, timer.queue, *timer.reference, timer.stored_ms, timer.producer_id,
            timer.base_number, _HAS_KEYS if timer.has_keys else 0,
        )  # fmt: skip
        self._writer.put(key, value + encode_origin(timer.origin))
        if timer.producer_id != NO_ID:
            self._writer.put(_id_key(timer.producer_id, timer.base_number), key[1:])
        self._waiting += 1

    def _due_rows(self, up_to_ms: int, limit: int) -> list[Row]:
        stop = _START + KEY_U64.pack(up_to_ms + 1)
        if not self._waiting or self._from >= stop:
            return []
        return self._store.scan(self._from, stop, limit)

    def take_due(self, up_to_ms: int, limit: int) -> list[Timer]:
        """Take out the timers that are due at a time, and return them as `due`; their pins stay."""
        rows = self._due_rows(up_to_ms, limit)
        if not rows:
            return []
        keys = [key for key, _ in rows]
        due = [decode_timer(*row) for row in rows]
        self._remove(keys, due)
        self._from = keys[-1] + b"\0"
        return due

    def _remove(self, keys: Sequence[bytes], timers: Sequence[Timer]) -> None:
        """Delete the rows of timers: by these keys, and by id unless another has the same id."""
        named = [
            (timer.producer_id, timer.base_number, timer.reference.record_count, key[1:])
            for key, timer in zip(keys, timers, strict=True)
            if timer.producer_id != NO_ID
        ]
        named.sort()
        id_keys = self._id_keys(named)
        self._writer.delete_all(keys)
        self._writer.delete_all(id_keys)
        self._waiting -= len(timers)

    def _id_keys(self, named: Sequence[tuple[bytes, int, int, bytes]]) -> list[bytes]:
        """Return the keys of table 71 that lead to these timers.

        Given, in order: producer id, first number, count, and to what the key leads. Rows of
        consecutive numbers are read at once.
        """
        found: list[bytes] = []
        begin = 0
        for end, (producer_id, number, count, _) in enumerate(named, 1):
            if end < len(named) and named[end][:2] == (producer_id, number + count):
                continue
            first = named[begin][1]
            start, stop = _id_key(producer_id, first), _id_key(producer_id, number) + b"\0"
            timers = {value for _, _, _, value in named[begin:end]}
            rows = self._store.scan(start, stop, number - first + 1)
            found += [key for key, value in rows if value in timers]
            begin = end
        return found

    def drop(self, timer: Timer) -> None:
        """Take a timer out for good, and its pin."""
        key = timer_key(timer.due_ms, timer.number)
        self._remove((key,), (timer,))
        if self._from == key:
            self._from = key + b"\0"
        self._references.unpin(timer.reference.position, timer.number)

    def find(self, producer_id: bytes, number: int) -> Timer | None:
        """Return the timer that holds the record of a message id, or None."""
        prefix = PREFIX[Table.TIMER_BY_ID] + producer_id
        stop = _id_key(producer_id, number) + b"\0"
        rows = self._store.scan(prefix, stop, 1, reverse=True)
        if not rows or producer_id == NO_ID:
            return None
        key = _START + rows[0][1]
        value = self._store.get(key)
        assert value is not None, f"no timer {key.hex()} of message {rows[0][0].hex()}"
        timer = decode_timer(key, value)
        inside = number < timer.base_number + timer.reference.record_count
        return timer if inside else None

    def take_out(self, timer: Timer, number: int) -> None:
        """Take the record of a message id out of a timer, which others of its batch may stay in.

        Out of the middle it leaves one timer more than before: TOO_MANY_TIMERS.
        """
        at = number - timer.base_number
        position, first, count, size = timer.reference
        left = [(start, stop) for start, stop in ((0, at), (at + 1, count)) if start < stop]
        if len(left) > 1:
            self.check_room()
        self.drop(timer)
        for start, stop in left:
            part = Reference(position, first + start, stop - start, size)
            mark = timer.number >> FIRST_RECORD_BITS << FIRST_RECORD_BITS | part.first_record
            self._references.pin(position, mark)
            base_number = timer.base_number + start
            self._put(timer._replace(number=mark, reference=part, base_number=base_number))

    def listed(
        self, from_ms: int, to_ms: int, after_key: bytes, limit: int
    ) -> tuple[list[Timer], bytes]:
        """Return up to `limit` timers due from one time to another, and where the next page begins.

        `after_key`: empty, or what the last answer returned, which is empty at the end.
        """
        start = _START + (after_key + b"\0" if after_key else KEY_U64.pack(from_ms))
        stop = _START + KEY_U64.pack(to_ms + 1)
        rows = self._store.scan(max(start, self._from), stop, limit) if start < stop else []
        return [decode_timer(*row) for row in rows], rows[-1][0][1:] if len(rows) == limit else b""

    def drop_row(self, key: bytes, value: bytes) -> None:
        """Take the timer of a row out for good: its topic is deleted."""
        self.drop(decode_timer(key, value))

    def write_changed(self) -> None:
        """Write how many wait, if an entry changed it."""
        if self._waiting != self._written:
            self._written = self._waiting
            self._writer.put(WAITING_KEY, KEY_U64.pack(self._waiting))


def timer_key(due_ms: int, number: int) -> bytes:
    """Return the key of a timer's row."""
    return _KEY.pack(Table.TIMER, due_ms, number)


def due_of(key: bytes) -> int:
    """Return when the timer of a key is due."""
    due_ms: int = KEY_U64.unpack_from(key, 1)[0]
    return due_ms


def decode_timer(key: bytes, value: bytes) -> Timer:
    """Return the timer of a row."""
    (
        topic_id, queue, position, first, count, size, stored_ms, producer_id, base_number, flags,
    ) = _ROW.unpack_from(value)  # fmt: skip
    _, due_ms, number = _KEY.unpack(key)
    origin = decode_origin(value[_ROW.size :]) if len(value) > _ROW.size else None
    return Timer(
        due_ms, number, topic_id, queue, Reference(position, first, count, size), origin, stored_ms,
        producer_id, base_number, flags & _HAS_KEYS != 0,
    )  # fmt: skip


def _id_key(producer_id: bytes, number: int) -> bytes:
    return PREFIX[Table.TIMER_BY_ID] + producer_id + KEY_U64.pack(number)
