"""Consume queues: which offsets a queue has, and where its batches lie in the log (S51, D6).

Owns: the queue tables, appending, finding by offset and by time, the lowest position that any
queue still needs. Not: which batches are appended (`append.py`), when the minimum moves
(`trim.py`), what a reference is of (`references.py`).

    20 topic_id, queue u32                  -> minimum i64, maximum i64, first_position u64,
                                               block_base u64, block_rows u32
    21 topic_id, queue u32, block_base u64  -> 1 to ROWS_PER_BLOCK rows of 40 bytes:

      0  1  kind: 1 BATCH, 2 REFERENCE: a part of a batch that lies anywhere below (D7),
            3 GONE: compaction deleted the records of these offsets; their number is record_count,
            size is 0, position the place of the first row that this one stands for
      1  3  0
      4  4  first_record           8  4  record_count       12  4  size of the whole batch
     16  8  base_offset i64       24  8  position u64       32  8  store_time_ms i64

    47 topic_id, queue u32                  -> cleaned i64: of the records below it, each that is
                                               superseded is superseded by one above it

`minimum` and `maximum` are record offsets; maximum is the next to be written. The *place* of a
BATCH is its position. That of a REFERENCE is the position of the log entry that appended it, which
its row of table 72 keeps. Places and store times grow with offsets. `first_position` is the place
of the row that holds the minimum; NO_POSITION in an empty queue. So it bounds the positions of all
BATCH rows from below; what references need, their pins keep. A block is named after the base offset
of its first row, so a seek finds the block of an offset, and a search in it the row. The row of a
time is found by bisecting offsets. Rows below the minimum are invisible; `garbage.py` removes their
blocks later.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from sortedcontainers import SortedList

from dledger.state.queues.copies import Copies
from dledger.state.tables import (
    BLOCK_SIZE_TARGET,
    KEY_U32,
    KEY_U64,
    PREFIX,
    Table,
    Writer,
    after,
    rows_in,
)
from dledger.state.values import QueueSpan, Reference
from dledger.store.store import StateStore
from dledger_proto.limits import BATCH_RECORDS_MAX, FRAME_ROWS_MAX, QUEUES_PER_TOPIC_MAX

ROW: Final = struct.Struct("<BxxxIIIqQq")
KIND_BATCH: Final = 1
KIND_REFERENCE: Final = 2
KIND_GONE: Final = 3
PLACE: Final = struct.Struct("<Q")
"""How the value of a row of table 72 begins."""
ROWS_PER_BLOCK: Final = BLOCK_SIZE_TARGET // ROW.size
NO_POSITION: Final = (1 << 64) - 1
CACHED_QUEUES_MAX: Final = 16_384
BLOCKS_IN_STRETCH_MAX: Final = 2_048
"""Blocks that compaction reads at once. A block may have become as short as one row."""
SPANS_MAX: Final = FRAME_ROWS_MAX
QUEUE_VALUE: Final = struct.Struct("<qqQQI")
CLEANED_VALUE: Final = struct.Struct("<q")
_BLOCKS_AT_ONCE: Final = 4

assert ROW.size == 40
assert ROWS_PER_BLOCK >= 64, "a block stands for many batches"

QueueId = tuple[bytes, int]
"""Topic id and queue number."""


class Queue:
    """The bounds of a queue and its newest block. Changed by `QueueTable` alone."""

    __slots__ = (
        "block_base", "block_key", "block_rows", "first_position", "id", "maximum", "minimum",
        "prefix",
    )  # fmt: skip

    def __init__(self, queue_id: QueueId, value: bytes | None) -> None:
        topic_id, number = queue_id
        self.id = queue_id
        self.prefix = PREFIX[Table.QUEUE_ROWS] + topic_id + KEY_U32.pack(number)
        self.minimum = self.maximum = self.block_base = self.block_rows = 0
        self.first_position = NO_POSITION
        self.block_key = b""
        if value is not None:
            (
                self.minimum, self.maximum, self.first_position, self.block_base, self.block_rows,
            ) = QUEUE_VALUE.unpack(value)  # fmt: skip
            if self.block_rows:
                self.block_key = self.prefix + KEY_U64.pack(self.block_base)

    def encode(self) -> bytes:
        """Return the value of the queue's row."""
        return QUEUE_VALUE.pack(
            self.minimum, self.maximum, self.first_position, self.block_base, self.block_rows
        )


class QueueTable:
    """All queues of a group. What apply changed is written by `write_changed` after each entry."""

    def __init__(self, writer: Writer, live_topics: frozenset[bytes], copies: Copies) -> None:
        self._writer = writer
        self._store: StateStore = writer.store
        self._copies = copies
        self._queues: dict[QueueId, Queue] = {}
        self._changed: dict[QueueId, Queue] = {}
        self._heads: SortedList[tuple[int, QueueId]] = SortedList()
        """First position of every queue that is not empty."""
        self._referring: dict[QueueId, Queue] = {}
        """Queues that a command has appended references to."""
        self.was_trimmed = False
        """True: a command has freed something, by a trim or by deleting a topic."""
        self._load_heads(live_topics)

    def _load_heads(self, live_topics: frozenset[bytes]) -> None:
        prefix = PREFIX[Table.QUEUE]
        for key, value in rows_in(self._store, prefix, after(prefix)):
            queue_id = key[1:17], KEY_U32.unpack(key[17:])[0]
            queue = Queue(queue_id, value)
            self.was_trimmed |= queue.minimum > 0
            if queue.first_position != NO_POSITION and queue_id[0] in live_topics:
                self._heads.add((queue.first_position, queue_id))

    @property
    def head(self) -> int:
        """The lowest first position of all queues; NO_POSITION when all are empty."""
        return self._heads[0][0] if self._heads else NO_POSITION

    @property
    def first(self) -> QueueId | None:
        """The queue whose first position is the lowest; None when all are empty."""
        return self._heads[0][1] if self._heads else None

    def beginning_between(
        self, first: tuple[int, QueueId], position: int
    ) -> Iterator[tuple[int, QueueId]]:
        """Iterate over first positions below one, with their queues, from such a pair on."""
        return self._heads.irange(first, (position, (b"", 0)), inclusive=(True, False))

    def offset_by_place(self, queue: Queue, place: int) -> int:
        """Return the first offset whose place is at or above; the maximum when there is none."""
        low, high = queue.minimum, queue.maximum
        while low < high:
            span = self._row_at(queue, (low + high) // 2)
            if self._place_of(queue, span) < place:
                low = span.base_offset + span.record_count
            else:
                high = max(span.base_offset, queue.minimum)
        return low

    def find(self, queue_id: QueueId) -> Queue:
        """Return the queue; one that was never written is empty."""
        queue = self._queues.get(queue_id)
        if queue is None:
            queue = Queue(queue_id, self._store.get(_state_key(queue_id)))
            if len(self._queues) >= CACHED_QUEUES_MAX:
                self._queues = dict(self._changed)
            self._queues[queue_id] = queue
        return queue

    def append(self, queue: Queue, position: int, count: int, size: int, time_ms: int) -> int:
        """Append a batch of `count` records; return the offset of its first."""
        base_offset = queue.maximum
        row = ROW.pack(KIND_BATCH, 0, count, size, base_offset, position, time_ms)
        self._append(queue, row, 1, base_offset + count, position)
        return base_offset

    def append_references(
        self, queue: Queue, references: Sequence[Reference], place: int, time_ms: int
    ) -> list[int]:
        """Append references in the entry at position `place`; return their base offsets."""
        pack = ROW.pack
        offsets: list[int] = []
        while len(offsets) < len(references):
            room = ROWS_PER_BLOCK - queue.block_rows or ROWS_PER_BLOCK
            offset = queue.maximum
            rows: list[bytes] = []
            for position, first, count, size in references[len(offsets) : len(offsets) + room]:
                rows.append(pack(KIND_REFERENCE, first, count, size, offset, position, time_ms))
                offsets.append(offset)
                offset += count
            self._append(queue, b"".join(rows), len(rows), offset, place)
        self._referring[queue.id] = queue
        return offsets

    def take_referring(self) -> Sequence[Queue]:
        """Return the queues that took references since the last call."""
        if not self._referring:
            return ()
        referring = tuple(self._referring.values())
        self._referring.clear()
        return referring

    def _append(self, queue: Queue, rows: bytes, count: int, maximum: int, place: int) -> None:
        """Append so many rows, which fit into one block; `maximum`: the offset behind the last."""
        is_new = queue.block_rows == ROWS_PER_BLOCK or not queue.block_rows
        if is_new:
            queue.block_base = queue.maximum
            queue.block_rows = 0
            queue.block_key = queue.prefix + KEY_U64.pack(queue.maximum)
        self._writer.append(queue.block_key, rows, is_new=is_new)
        queue.block_rows += count
        queue.maximum = maximum
        if queue.first_position == NO_POSITION:
            self._set_first(queue, place)
        self._changed[queue.id] = queue

    def raise_minimum(self, queue: Queue, offset: int) -> tuple[bytes, bytes]:
        """Move the minimum up to `offset`; return the key range of blocks that fell below it."""
        assert queue.minimum < offset <= queue.maximum, f"{queue.minimum} {offset} {queue.maximum}"
        start = self._block_at(queue, queue.minimum)[0]  # earlier calls returned the blocks before
        queue.minimum = offset
        self.was_trimmed = True
        if offset == queue.maximum:
            self._set_first(queue, NO_POSITION)
            stop = queue.block_key
            if queue.block_rows == ROWS_PER_BLOCK:
                # The newest block is full, and the next call begins behind it.
                stop += b"\0"
        else:
            span = self._row_at(queue, offset)
            self._set_first(queue, self._place_of(queue, span))
            stop = self._block_at(queue, offset)[0]
        self._changed[queue.id] = queue
        return start, stop

    def _place_of(self, queue: Queue, span: QueueSpan) -> int:
        if not span.is_reference:
            return span.position
        value = self._store.get(origin_key(queue.id, span.base_offset))
        assert value is not None, f"queue {queue.id}: no origin of offset {span.base_offset}"
        place: int = PLACE.unpack_from(value)[0]
        return place

    # Compaction.

    def cleaned(self, queue: Queue) -> int:
        """Return the cleaned offset of a queue; 0: no pass has ended."""
        value = self._store.get(_cleaned_key(queue.id))
        return 0 if value is None else CLEANED_VALUE.unpack(value)[0]

    def set_cleaned(self, queue: Queue, offset: int) -> None:
        """A pass has come to its end."""
        self._writer.put(_cleaned_key(queue.id), CLEANED_VALUE.pack(offset))

    def in_blocks(self, queue: Queue, first: int, stop: int) -> tuple[list[bytes], list[QueueSpan]]:
        """Return the keys and all rows of the blocks that hold the offsets of a stretch.

        minimum <= first < stop <= base offset of the newest block.
        """
        start, _ = self._block_at(queue, first)
        rows = self._store.scan(start, queue.prefix + KEY_U64.pack(stop), BLOCKS_IN_STRETCH_MAX)
        spans = [_span(block, row) for _, block in rows for row in range(len(block) // ROW.size)]
        return [key for key, _ in rows], spans

    def replace(self, queue: Queue, keys: Sequence[bytes], spans: Sequence[QueueSpan]) -> None:
        """Replace the rows of neighbouring full blocks by rows of the same offsets.

        The place of the row that holds the minimum must not go back: a pass of `carry.py` relies
        on this order.
        """
        left = set(keys)
        for at in range(0, len(spans), ROWS_PER_BLOCK):
            part = spans[at : at + ROWS_PER_BLOCK]
            key = queue.prefix + KEY_U64.pack(part[0].base_offset)
            left.discard(key)
            self._writer.put(key, b"".join(map(_row, part)))
        for key in sorted(left):
            self._writer.delete(key)
        if spans[0].base_offset <= queue.minimum:
            place = self._place_of(queue, self._row_at(queue, queue.minimum))
            assert place >= queue.first_position, f"{queue.id}: {place} {queue.first_position}"
            self._set_first(queue, place)
            self._changed[queue.id] = queue

    def forget_topic(self, topic_id: bytes) -> None:
        """Forget the queues of a deleted topic: they no longer need the log."""
        self.was_trimmed = True
        for queue in self.of_topic(topic_id):
            self._set_first(queue, NO_POSITION)
            self._queues.pop(queue.id, None)
            self._changed.pop(queue.id, None)

    def of_topic(self, topic_id: bytes) -> list[Queue]:
        """Return the queues of a topic that were ever written, by number."""
        prefix = PREFIX[Table.QUEUE] + topic_id
        rows = self._store.scan(prefix, after(prefix), QUEUES_PER_TOPIC_MAX)
        numbers = {KEY_U32.unpack(key[-4:])[0] for key, _ in rows}
        numbers.update(number for topic, number in self._changed if topic == topic_id)
        return [self.find((topic_id, number)) for number in sorted(numbers)]

    def _set_first(self, queue: Queue, position: int) -> None:
        if queue.first_position != NO_POSITION:
            self._heads.remove((queue.first_position, queue.id))
        if position != NO_POSITION:
            self._heads.add((position, queue.id))
        queue.first_position = position

    def write_changed(self) -> list[Queue]:
        """Write the rows of the queues that changed since the last call, and return these."""
        changed = list(self._changed.values())
        if changed:
            for queue in changed:
                self._writer.put(_state_key(queue.id), queue.encode())
            self._changed.clear()
        return changed

    # Reading.

    def _block_at(self, queue: Queue, offset: int) -> tuple[bytes, bytes]:
        """Return key and value of the block that holds an offset below the maximum."""
        if offset >= queue.block_base:
            value = self._store.get(queue.block_key)
            assert value is not None, f"queue {queue.id}: no block {queue.block_base}"
            return queue.block_key, value
        stop = queue.prefix + KEY_U64.pack(offset + 1)
        rows = self._store.scan(queue.prefix, stop, 1, reverse=True)
        assert rows, f"queue {queue.id}: no block for offset {offset} from {queue.minimum}"
        return rows[0]

    def row_at(self, queue: Queue, offset: int) -> QueueSpan:
        """Return the row that holds an offset; minimum <= offset < maximum."""
        return self._copies.located(self._row_at(queue, offset))

    def _row_at(self, queue: Queue, offset: int) -> QueueSpan:
        _, block = self._block_at(queue, offset)
        return _span(block, _place(block, offset))

    def spans(self, queue: Queue, offset: int, max_bytes: int) -> list[QueueSpan]:
        """Return the rows from `offset` on: at least one, then up to `max_bytes` and SPANS_MAX."""
        return self._copies.all_located(self._spans(queue, offset, max_bytes))

    def _spans(self, queue: Queue, offset: int, max_bytes: int) -> list[QueueSpan]:
        key, block = self._block_at(queue, offset)
        place = _place(block, offset)
        found: list[QueueSpan] = []
        size = 0
        following: list[tuple[bytes, bytes]] = []
        while True:
            for kind, first, count, row_size, base, position, time_ms in ROW.iter_unpack(
                memoryview(block)[place * ROW.size :]
            ):
                is_sound = kind <= KIND_REFERENCE if row_size else kind == KIND_GONE
                assert is_sound, f"queue {queue.id} offset {base}: row kind {kind} size {row_size}"
                size += row_size
                if found and (size > max_bytes or len(found) == SPANS_MAX):
                    return found
                found.append(
                    QueueSpan(
                        base, position, first, count, row_size, time_ms, kind == KIND_REFERENCE
                    )
                )
            place = 0
            if not following:
                if key == queue.block_key:
                    return found
                stop = queue.block_key + b"\0"
                following = self._store.scan(key + b"\0", stop, _BLOCKS_AT_ONCE)
                following.reverse()
            key, block = following.pop()

    def first_batch(self, queue: Queue) -> int:
        """Return a position at or below all batches that a queue has rows of; NO_POSITION: none.

        A run that compaction left of a batch has its name behind the position of the batch.
        """
        first = queue.first_position
        if first == NO_POSITION or not self._copies.has_renamed:
            return first
        return max(first - BATCH_RECORDS_MAX, 0)

    def left_of(self, queue: Queue, position: int, base_offset: int) -> Iterator[QueueSpan]:
        """Iterate over what a queue holds of a batch: its row, or the runs that compaction left.

        The name of a run is as far from the batch's position as its offset is from the batch's
        first. Nothing, if the batch was trimmed.
        """
        at = max(base_offset, queue.minimum)
        while at < min(queue.maximum, base_offset + BATCH_RECORDS_MAX):
            rows = self.rows_of_block(queue, at)
            for span in rows:
                if span.is_gone or span.base_offset + span.record_count <= at:
                    continue
                if span.is_reference or span.position - position != span.base_offset - base_offset:
                    return
                yield self._copies.located(span)
            at = rows[-1].base_offset + rows[-1].record_count

    def rows_of_block(self, queue: Queue, offset: int) -> list[QueueSpan]:
        """Return all rows of the block that holds an offset, wherever their batches lie."""
        _, block = self._block_at(queue, offset)
        return [_span(block, row) for row in range(len(block) // ROW.size)]

    def offset_by_time(self, queue: Queue, time_ms: int) -> int:
        """Return the first offset stored at or after a time; the maximum when there is none."""
        low, high = queue.minimum, queue.maximum
        while low < high:
            middle = (low + high) // 2
            _, block = self._block_at(queue, middle)
            rows = len(block) // ROW.size
            first, last = _span(block, 0), _span(block, rows - 1)
            if last.store_time_ms < time_ms:
                low = last.base_offset + last.record_count
            elif first.store_time_ms >= time_ms:
                high = min(middle, first.base_offset)
            else:
                times = range(rows)
                place = bisect_right(
                    times, time_ms - 1, key=lambda row: _span(block, row).store_time_ms
                )
                return max(_span(block, place).base_offset, queue.minimum)
        return max(low, queue.minimum)


def origin_key(queue_id: QueueId, base_offset: int) -> bytes:
    """Return the key of table 72 of a reference."""
    return (
        PREFIX[Table.ORIGIN] + queue_id[0] + KEY_U32.pack(queue_id[1]) + KEY_U64.pack(base_offset)
    )


def _cleaned_key(queue_id: QueueId) -> bytes:
    return PREFIX[Table.COMPACTED] + queue_id[0] + KEY_U32.pack(queue_id[1])


def _state_key(queue_id: QueueId) -> bytes:
    return PREFIX[Table.QUEUE] + queue_id[0] + KEY_U32.pack(queue_id[1])


def _span(block: bytes, row: int) -> QueueSpan:
    kind, first, count, size, base, position, time_ms = ROW.unpack_from(block, row * ROW.size)
    return QueueSpan(base, position, first, count, size, time_ms, kind == KIND_REFERENCE)


def _row(span: QueueSpan) -> bytes:
    kind = KIND_GONE if span.is_gone else KIND_REFERENCE if span.is_reference else KIND_BATCH
    return ROW.pack(
        kind, span.first_record, span.record_count, span.size, span.base_offset, span.position,
        span.store_time_ms,
    )  # fmt: skip


def _place(block: bytes, offset: int) -> int:
    """Return which row of a block holds an offset that is in it."""
    rows = range(len(block) // ROW.size)
    return bisect_right(rows, offset, key=lambda row: _span(block, row).base_offset) - 1
