"""The message id index: from producer id and running number to a place in a queue.

Owns: its table, lookup, and deleting rows that point below the queues' minimums. Not: who may
write. A record's id is its producer's id and a number; a batch holds consecutive numbers.

    38 producer_id                 -> records_max u32: the largest batch of this producer so far
    38 producer_id, bucket u64     -> rows: base_number u64, record_count u32, queue u32,
                                      base_offset i64, topic_id 16

A batch's row lies in the bucket of its first number, BUCKET_NUMBERS numbers wide. So senders of
single messages fill a bucket with many rows and senders of large batches make one bucket each. The
row of a number is in its own bucket or, in a large batch, in one that starts up to `records_max`
before: a seek and a bounded walk back. The numbers of a producer are in order in each queue, but
not in the log, so rows cannot simply be appended in order.

A sweep deletes rows whose records are all trimmed: each new bucket looks at SWEEP_ROWS old rows, so
the table stays near its live size, and all members delete the same rows.

    01 "sweep"                     -> the key at which the sweep goes on; absent: nothing to sweep
"""

import struct
from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from dledger.state.queues.table import QueueTable
from dledger.state.tables import KEY_U64, PREFIX, Table, Writer, after
from dledger.state.topics.table import TopicTable
from dledger_proto.batch.codec import BatchHeader
from dledger_proto.limits import BATCH_RECORDS_MAX

BUCKET_NUMBERS: Final = 64
ROWS_PER_BUCKET_MAX: Final = 2 * BUCKET_NUMBERS
"""Numbers are unique, so a bucket has at most BUCKET_NUMBERS rows. If a client repeats numbers, the
bucket takes so many rows and no more."""
SWEEP_ROWS: Final = 4
CACHED_PRODUCERS_MAX: Final = 16_384
_WALK_BUCKETS: Final = 16
RECORDS_MAX_VALUE: Final = struct.Struct("<I")
ID_ROW: Final = struct.Struct("<QIIq16s")
_START: Final = PREFIX[Table.MESSAGE_IDS]
_STOP: Final = after(_START)
_SWEEP_KEY: Final = PREFIX[Table.META] + b"sweep"
_PRODUCER_KEY_SIZE: Final = 17

IdRow = tuple[int, int, int, int, bytes]
"""Base number, record count, queue, base offset and topic id, as in a row."""


class MessagePlace(NamedTuple):
    """Where the record of an id lies."""

    topic_id: bytes
    queue: int
    offset: int
    record: int


class _Open:
    """The bucket that a producer wrote last."""

    __slots__ = ("bucket", "key", "newest", "records_max", "rows")

    def __init__(self, records_max: int, newest: int) -> None:
        self.records_max = records_max
        self.newest = newest
        """No higher bucket was ever written, so the store need not be asked for one."""
        self.bucket = -1
        self.rows = 0
        self.key = b""


class MessageIdIndex:
    """The message ids of all batches that carry a producer id."""

    def __init__(self, writer: Writer, topics: TopicTable, queues: QueueTable) -> None:
        self._writer = writer
        self._store = writer.store
        self._topics = topics
        self._queues = queues
        self._open: dict[bytes, _Open] = {}
        self._sweep = self._store.get(_SWEEP_KEY)

    def record(self, header: BatchHeader, base_offset: int) -> None:
        """Index an appended batch."""
        number, count = header.base_number, header.record_count
        row = ID_ROW.pack(number, count, header.queue, base_offset, header.topic_id)
        self._append(header.producer_id, number // BUCKET_NUMBERS, [row], (count,))

    def record_many(self, producer_id: bytes, rows: list[IdRow]) -> None:
        """Index parts of batches of one producer, in any order."""
        rows.sort()
        for bucket, together in groupby(rows, _bucket_of):
            counts: list[int] = []
            packed: list[bytes] = []
            for row in together:
                packed.append(ID_ROW.pack(*row))
                counts.append(row[1])
            self._append(producer_id, bucket, packed, counts)

    def _append(
        self, producer_id: bytes, bucket: int, rows: list[bytes], counts: Sequence[int]
    ) -> None:
        """Append rows, of so many records each, to a bucket; leave out those without room."""
        opened = self._open.get(producer_id)
        if opened is None:
            opened = self._load(producer_id)
        if bucket != opened.bucket:
            self._enter(opened, producer_id, bucket)
        if opened.rows >= ROWS_PER_BUCKET_MAX:
            return
        is_new_bucket = not opened.rows
        if len(rows) > 1:
            del rows[ROWS_PER_BUCKET_MAX - opened.rows :]
        self._writer.append(opened.key, b"".join(rows), is_new=is_new_bucket)
        opened.rows += len(rows)
        records_max = max(counts[: len(rows)])
        if records_max > opened.records_max:
            opened.records_max = records_max
            self._writer.put(_START + producer_id, RECORDS_MAX_VALUE.pack(records_max))
        if is_new_bucket and self._sweep is not None:
            self._sweep_some(self._sweep)

    def _load(self, producer_id: bytes) -> _Open:
        key = _START + producer_id
        value = self._store.get(key)
        last = self._store.scan(key + b"\0", after(key), 1, reverse=True)
        newest = KEY_U64.unpack(last[0][0][_PRODUCER_KEY_SIZE:])[0] if last else -1
        opened = _Open(0 if value is None else RECORDS_MAX_VALUE.unpack(value)[0], newest)
        if len(self._open) >= CACHED_PRODUCERS_MAX:
            self._open.clear()
        self._open[producer_id] = opened
        return opened

    def _enter(self, opened: _Open, producer_id: bytes, bucket: int) -> None:
        opened.bucket = bucket
        opened.key = _START + producer_id + KEY_U64.pack(bucket)
        if bucket > opened.newest:
            opened.newest = bucket
            opened.rows = 0
        else:
            opened.rows = len(self._store.get(opened.key) or b"") // ID_ROW.size

    def find(self, producer_id: bytes, number: int) -> MessagePlace | None:
        """Return where a message lies, or None; it may lie below its queue's minimum by now."""
        value = self._store.get(_START + producer_id)
        if value is None:
            return None
        records_max: int = RECORDS_MAX_VALUE.unpack(value)[0]
        assert records_max <= BATCH_RECORDS_MAX, f"records_max {records_max}"
        prefix = _START + producer_id
        first = max(number - records_max + 1, 0) // BUCKET_NUMBERS
        start = prefix + KEY_U64.pack(first)
        stop = prefix + KEY_U64.pack(number // BUCKET_NUMBERS) + b"\0"
        while rows := self._store.scan(start, stop, _WALK_BUCKETS, reverse=True):
            for _, bucket in rows:
                for base, count, queue, base_offset, topic_id in ID_ROW.iter_unpack(bucket):
                    if base <= number < base + count:
                        record = number - base
                        return MessagePlace(topic_id, queue, base_offset + record, record)
            stop = rows[-1][0]
        return None

    # Sweeping.

    def start_sweeping(self) -> None:
        """Begin to sweep: records were trimmed."""
        if self._sweep is None:
            self._move_sweep(_START)

    def _move_sweep(self, key: bytes) -> None:
        self._sweep = key
        self._writer.put(_SWEEP_KEY, key)

    def _sweep_some(self, start: bytes) -> None:
        rows = self._store.scan(start, _STOP, SWEEP_ROWS + 1)
        for key, value in rows[:SWEEP_ROWS]:
            if len(key) > _PRODUCER_KEY_SIZE and all(
                self._is_trimmed(topic_id, queue, base_offset + count)
                for _, count, queue, base_offset, topic_id in ID_ROW.iter_unpack(value)
            ):
                self._writer.delete(key)
                producer_key = key[:_PRODUCER_KEY_SIZE]
                self._open.pop(producer_key[1:], None)
                # Backwards: a scan from the start would pass all rows deleted since the last save.
                first, stop = producer_key + b"\0", after(producer_key)
                if not self._store.scan(first, stop, 1, reverse=True):
                    self._writer.delete(producer_key)
        self._move_sweep(rows[SWEEP_ROWS][0] if len(rows) > SWEEP_ROWS else _START)

    def _is_trimmed(self, topic_id: bytes, queue: int, end_offset: int) -> bool:
        topic = self._topics.find(topic_id)
        if topic is None or topic.deleted:
            return True
        return end_offset <= self._queues.find((topic_id, queue)).minimum


def _bucket_of(row: IdRow) -> int:
    return row[0] // BUCKET_NUMBERS
