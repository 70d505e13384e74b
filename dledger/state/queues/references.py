"""References: rows of queues that name a part of an older batch, their origins, their pins (D7).

Owns: origins, pins, where the references of a batch with keys lie. Not: the rows of queues
(`table.py`), when a reference is appended (`timers/commands.py`, failures of consumers).

    72 topic_id, queue u32, base_offset u64 -> place u64, number u64, position u64, stored_ms i64,
                                               flags u8 (1: the batch has keys), then, unless its
                                               producer delayed it: topic_id 16, queue u32,
                                               offset i64, attempts u32, resent u8, error UTF-8
    73 position u64, number u64             -> empty: the log from there on is needed
    74 topic_id, queue u32, position u64,
       number u64                           -> base_offset i64, stored_ms i64
    01 "pins"                               -> next_number u64

`place` is the position of the log entry that appended the reference; `stored_ms` says when its
batch, or its failure, was stored.

A number is a running count, shifted by 16 bits, and the first record. So a pin that is split keeps
its place in the order, and the pin of a timer becomes that of the reference which it puts into a
queue. A row of table 72 goes when its reference falls below the minimum of its queue, or with its
topic; `garbage.py` deletes it some entries later, and its pin with it.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from dledger.state.queues.garbage import Garbage
from dledger.state.queues.table import NO_POSITION, Queue, QueueTable, origin_key
from dledger.state.tables import KEY_U32, KEY_U64, PREFIX, Table, Writer, after, rows_in
from dledger.state.values import Origin, Reference, Timer
from dledger.store.store import Row
from dledger.types import Entry
from dledger_proto.batch.codec import NO_ID

ORIGIN_ERROR_SIZE_MAX: Final = 1_024
"""Bytes of the error text in an origin; a longer one is cut."""
FIRST_RECORD_BITS: Final = 16
ORIGIN_HEAD: Final = struct.Struct("<QQQqB")
_ORIGIN: Final = struct.Struct("<16sIqIB")
ORIGIN_AT_VALUE: Final = struct.Struct("<qq")
_HAS_KEYS: Final = 1
PIN_NUMBER_KEY: Final = PREFIX[Table.META] + b"pins"
_PINS: Final = PREFIX[Table.PIN]
_PINS_END: Final = after(_PINS)


class References:
    """The references of all queues of a group, and all pins."""

    def __init__(self, writer: Writer, queues: QueueTable, garbage: Garbage) -> None:
        self._writer = writer
        self._store = writer.store
        self._queues = queues
        self._garbage = garbage
        garbage.on_delete[Table.ORIGIN] = self._released
        value = self._store.get(PIN_NUMBER_KEY)
        self._next_number: int = 0 if value is None else KEY_U64.unpack(value)[0]
        self._written = self._next_number
        self._pins_from = _PINS
        """Below this key there is no pin. Without it each look would scan again over all pins that
        were deleted since the last save."""

    # Pins.

    @property
    def head(self) -> int:
        """The lowest position that a pin keeps; NO_POSITION when there is none."""
        rows = self._store.scan(self._pins_from, _PINS_END, 1)
        if not rows:
            return NO_POSITION
        self._pins_from = rows[0][0]
        position: int = KEY_U64.unpack_from(rows[0][0], 1)[0]
        return position

    def pins(self, first: tuple[int, int], stop: int) -> Iterator[tuple[int, int]]:
        """Iterate over the pins below position `stop`, in order, from a pin on."""
        start = max(_pin_key(*first), self._pins_from)
        for key, _ in rows_in(self._store, start, _PINS + KEY_U64.pack(stop)):
            yield KEY_U64.unpack_from(key, 1)[0], KEY_U64.unpack_from(key, 9)[0]

    def is_pinned(self, position: int) -> bool:
        """Tell whether a pin names the batch at a position."""
        return next(self.pins((position, 0), position + 1), None) is not None

    def new_pin(self, reference: Reference) -> int:
        """Pin the batch of a reference; return the number of the pin."""
        number = self._next_number << FIRST_RECORD_BITS | reference.first_record
        self._next_number += 1
        self.pin(reference.position, number)
        return number

    def pin(self, position: int, number: int) -> None:
        """Keep the log from a position on."""
        key = _pin_key(position, number)
        self._pins_from = min(self._pins_from, key)
        self._writer.put(key, b"")

    def unpin(self, position: int, number: int) -> None:
        """Let the log go again, as far as this pin is concerned."""
        self._writer.delete(_pin_key(position, number))

    def write_changed(self) -> None:
        """Write the next number, if an entry changed it."""
        if self._next_number != self._written:
            self._written = self._next_number
            self._writer.put(PIN_NUMBER_KEY, KEY_U64.pack(self._next_number))

    # References.

    def append(
        self, queue: Queue, reference: Reference, origin: Origin | None, entry: Entry
    ) -> int:
        """Append a reference to a queue and pin its batch; return its base offset."""
        number, time_ms = self.new_pin(reference), entry.time_ms
        timer = Timer(time_ms, number, *queue.id, reference, origin, time_ms, NO_ID, 0, False)
        return self.append_fired(queue, [timer], entry)[0]

    def append_fired(self, queue: Queue, timers: Sequence[Timer], entry: Entry) -> list[int]:
        """Append what timers hold to their queue; return the base offsets.

        Each reference takes over the pin of its timer.
        """
        place = entry.ref.position
        references = [timer.reference for timer in timers]
        offsets = self._queues.append_references(queue, references, place, entry.time_ms)
        prefix = origin_key(queue.id, 0)[:-8]
        head, packed = ORIGIN_HEAD.pack, KEY_U64.pack
        rows: list[Row] = []
        for timer, offset in zip(timers, offsets, strict=True):
            position, number, stored_ms = timer.reference.position, timer.number, timer.stored_ms
            value = head(place, number, position, stored_ms, _HAS_KEYS if timer.has_keys else 0)
            if timer.origin is not None:
                value += encode_origin(timer.origin)
            rows.append((prefix + packed(offset), value))
            if timer.has_keys:
                key = _at_prefix(queue.id, position) + packed(number)
                rows.append((key, ORIGIN_AT_VALUE.pack(offset, stored_ms)))
        self._writer.put_all(rows)
        return offsets

    def record_at(self, queue: Queue, offset: int) -> Reference:
        """Return the reference of one record of a queue; minimum <= offset < maximum."""
        span = self._queues.row_at(queue, offset)
        first = span.first_record + offset - span.base_offset
        return Reference(span.position, first, 1, span.size)

    def origin_at(self, queue: Queue, offset: int) -> Origin | None:
        """Return the origin of the reference that holds an offset; None: there is none."""
        span = self._queues.row_at(queue, offset)
        return self.origin(queue, span.base_offset) if span.is_reference else None

    def origin(self, queue: Queue, base_offset: int) -> Origin | None:
        """Return the origin of the reference with this base offset; None: there is none."""
        value = self._store.get(origin_key(queue.id, base_offset))
        return None if value is None else decode_origin(value[ORIGIN_HEAD.size :])

    def appended(self, queue: Queue, base_offset: int) -> tuple[int, int, Origin | None]:
        """Return which log position appended a reference, when it was stored, and its origin."""
        value = self._store.get(origin_key(queue.id, base_offset))
        assert value is not None, f"reference {queue.id} {base_offset} has no row"
        place, _, _, stored_ms, _ = ORIGIN_HEAD.unpack_from(value)
        return place, stored_ms, decode_origin(value[ORIGIN_HEAD.size :])

    def of_batch(self, queue: Queue, position: int) -> list[tuple[int, int]]:
        """Return (base offset, stored_ms) of a queue's references into a batch that has keys."""
        prefix = _at_prefix(queue.id, position)
        rows = self._store.scan(prefix, after(prefix), 1 << FIRST_RECORD_BITS)
        return [ORIGIN_AT_VALUE.unpack(value) for _, value in rows]

    def release_below(self, queue: Queue, old_minimum: int) -> None:
        """Free the origins and pins of references that fell below a queue's minimum."""
        if queue.minimum == queue.maximum:
            stop_offset = queue.maximum
        else:
            stop_offset = self._queues.row_at(queue, queue.minimum).base_offset
        prefix = origin_key(queue.id, 0)[:-8]
        stop = prefix + KEY_U64.pack(stop_offset)
        before = self._store.scan(prefix, prefix + KEY_U64.pack(old_minimum + 1), 1, reverse=True)
        start = before[0][0] if before else prefix + KEY_U64.pack(old_minimum)
        if start < stop and self._store.scan(start, stop, 1):
            self._garbage.add(start, stop)

    def _released(self, key: bytes, value: bytes) -> None:
        _, number, position, _, flags = ORIGIN_HEAD.unpack_from(value)
        self.unpin(position, number)
        if flags & _HAS_KEYS:
            queue_id = key[1:17], KEY_U32.unpack_from(key, 17)[0]
            self._writer.delete(_at_prefix(queue_id, position) + KEY_U64.pack(number))


def encode_origin(origin: Origin | None) -> bytes:
    """Return an origin as bytes; empty: none. An error text that is too long is cut."""
    if origin is None:
        return b""
    error = origin.error.encode(errors="replace")
    if len(error) > ORIGIN_ERROR_SIZE_MAX:
        error = error[:ORIGIN_ERROR_SIZE_MAX].decode(errors="ignore").encode()
    head = origin.topic_id, origin.queue, origin.offset, origin.attempts, origin.resent
    return _ORIGIN.pack(*head) + error


def decode_origin(value: bytes) -> Origin | None:
    """Return the origin of these bytes; None when they are empty."""
    if not value:
        return None
    topic_id, queue, offset, attempts, resent = _ORIGIN.unpack_from(value)
    return Origin(topic_id, queue, offset, attempts, value[_ORIGIN.size :].decode(), resent)


def _pin_key(position: int, number: int) -> bytes:
    return _PINS + KEY_U64.pack(position) + KEY_U64.pack(number)


def _at_prefix(queue_id: tuple[bytes, int], position: int) -> bytes:
    prefix = PREFIX[Table.REFERENCE_AT] + queue_id[0]
    return prefix + KEY_U32.pack(queue_id[1]) + KEY_U64.pack(position)
