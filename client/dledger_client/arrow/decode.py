"""Batches of the wire as Arrow record batches: checked, cut to offsets, in portions.

Owns: every check between bytes and columns (CRC, header, topic and queue, order of offsets), the
size of portions, the table from column name to values. Not: fetching.

The decoder hands out exactly the wanted range without a gap, or raises an error: CORRUPT_BATCH for
bytes that contradict themselves, OFFSET_OUT_OF_RANGE where offsets do not follow one another,
UNREADABLE_BATCH for a batch that nobody can decode, although it is as its producer sent it. Such
batches are left out only if the caller asks to be told of them. Offsets of which a row says that
their records are compacted are passed over; a row must say so.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from dledger_client.arrow.columns import Int64s, Joined, Run, back_to_back
from dledger_client.arrow.properties import Properties
from dledger_client.arrow.schema import schema_of
from dledger_client.unreadable import Unreadable
from dledger_proto.batch.codec import BatchView, check_envelope
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import BATCH_SIZE_MAX, MIB
from dledger_proto.names import holds_references

PORTION_BYTES: Final = 4 * MIB
"""Bytes of bodies and properties in one Arrow batch, about. It bounds the memory, whatever batches
decompress to. A reader asks for less at once."""
assert PORTION_BYTES + 2 * BATCH_SIZE_MAX < 1 << 31, "Arrow's binary columns have 32 bits"

_RECORD_BYTES: Final = 64
"""Bytes of a record besides its body and properties, about: empty records count, too."""
_US_PER_MS: Final = 1_000
_ID_SIZE: Final = 16


class Span(NamedTuple):
    """Records of one batch as a fetch frame or a consume queue names them."""

    base_offset: int
    """Of record `first_record`."""
    first_record: int
    record_count: int
    store_time_ms: int
    batch: memoryview
    position: int = -1
    """Of the batch in the log; -1: not told."""

    @property
    def is_gone(self) -> bool:
        """True: there is no batch, because the records of these offsets were compacted."""
        return not self.batch


@dataclass(frozen=True, slots=True)
class ExpectedQueue:
    """The queue that batches must be of."""

    topic: str
    topic_id: bytes
    queue: int
    group: str = ""
    """Broker group, for errors; empty: not known."""

    def describe(self) -> str:
        """Return one stable line."""
        return f"{self.topic}/{self.queue}"


class Decoder:
    """Decodes a run of one queue, from `next_offset` up to `end`, frame by frame."""

    def __init__(
        self,
        source: ExpectedQueue,
        columns: Sequence[str],
        start: int,
        end: int,
        tell: Callable[[Unreadable], None] | None = None,
    ) -> None:
        """`tell` gets each run that is left out; None: UNREADABLE_BATCH is raised instead."""
        self._source = source
        self._tell = tell
        self._columns = tuple(columns)
        self._schema = schema_of(columns)
        self._end = end
        self.next_offset = start
        """All records before it were handed out. After an error reading continues here."""
        self.gone = 0
        """So many offsets before `next_offset` hold nothing any more: they were compacted."""
        self._gone_ahead: list[tuple[int, int]] = []
        """Those that are passed over once what lies before them is handed out."""

    @property
    def is_done(self) -> bool:
        """True: the whole range was handed out."""
        return self.next_offset >= self._end

    def decode(self, spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
        """Yield the wanted records of the spans; spans before and behind the range are left out.

        Records that were yielded before an error are sound, and `next_offset` is behind them.
        """
        runs: list[Run] = []
        size = 0
        self._gone_ahead = []
        expected = self.next_offset
        for span in spans:
            if span.base_offset + span.record_count <= expected or span.base_offset >= self._end:
                continue
            if span.is_gone:
                expected = self._behind_gone(span, expected)
                continue
            try:
                run = self._checked(span, expected)
            except DledgerError:
                if runs:
                    yield from self._portions(runs)
                raise
            header = run.view.header
            more = header.bodies_size + header.properties_size
            more += _RECORD_BYTES * header.record_count
            if runs and size + more > PORTION_BYTES:
                yield from self._portions(runs)
                runs, size = [], 0
            runs.append(run)
            size += more
            expected = run.base_offset + run.record_count
        if runs:
            yield from self._portions(runs)
        self._move(expected)

    def _behind_gone(self, span: Span, expected: int) -> int:
        """Note that the offsets of a span are gone; return where reading goes on."""
        self._check_follows(span, expected)
        end = min(span.base_offset + span.record_count, self._end)
        self._gone_ahead.append((expected, end))
        return end

    def _move(self, offset: int) -> None:
        """Note that everything before an offset was handed out, left out, or is gone."""
        self.next_offset = offset
        while self._gone_ahead and self._gone_ahead[0][1] <= offset:
            first, end = self._gone_ahead.pop(0)
            self.gone += end - first

    def _check_follows(self, span: Span, expected: int) -> None:
        if span.base_offset > expected:
            raise DledgerError(
                Code.OFFSET_OUT_OF_RANGE,
                f"{self._source.describe()}: offset {span.base_offset} came instead of {expected}",
            )

    def _checked(self, span: Span, expected: int) -> Run:
        """Return the wanted part of a span after all checks but that of the columns' sums."""
        source = self._source
        self._check_follows(span, expected)
        try:
            header = check_envelope(span.batch)
        except DledgerError as error:
            raise DledgerError(
                error.code,
                f"{source.describe()}: batch at offset {span.base_offset}: {error.detail}",
            ) from error
        is_own = header.topic_id == source.topic_id and header.queue == source.queue
        if not (is_own or holds_references(source.topic)):
            raise DledgerError(
                Code.CORRUPT_BATCH,
                f"{source.describe()}: the batch at offset {span.base_offset} is of topic "
                f"{header.topic_id.hex()} queue {header.queue}",
            )
        if span.first_record + span.record_count > header.record_count:
            raise DledgerError(
                Code.CORRUPT_BATCH,
                f"{source.describe()}: records {span.first_record}+{span.record_count} at offset "
                f"{span.base_offset} of a batch with {header.record_count}",
            )
        skipped = expected - span.base_offset
        last = min(span.base_offset + span.record_count, self._end)
        return Run(
            expected,
            span.first_record + skipped,
            last - expected,
            span.store_time_ms,
            span.position,
            BatchView(span.batch, header),
        )

    def _portions(self, runs: Sequence[Run]) -> Iterator[pa.RecordBatch]:
        """Yield runs in one batch; where one of them cannot be decoded, each by itself."""
        try:
            batch = self._portion(runs)
        except DledgerError as error:
            if error.code is not Code.UNREADABLE_BATCH:
                raise
            if len(runs) == 1:
                self._pass_over(runs[0], error)
            else:
                for run in runs:
                    yield from self._portions([run])
            return
        yield batch

    def _pass_over(self, run: Run, error: DledgerError) -> None:
        source, end = self._source, run.base_offset + run.record_count
        what = Unreadable(
            source.group, source.topic, source.queue, run.base_offset, end, error.detail
        )
        if self._tell is None:
            raise DledgerError(error.code, what.describe()) from error
        self._tell(what)
        self._move(end)

    def _portion(self, runs: Sequence[Run]) -> pa.RecordBatch:
        try:
            joined = Joined(runs)
            values = Values(joined, self._source)
            arrays = [_VALUES[name](values) for name in self._columns]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        except DledgerError as error:
            if error.code is Code.UNREADABLE_BATCH or error.detail.startswith(self._source.topic):
                raise
            raise DledgerError(
                error.code,
                f"{self._source.describe()} from offset {runs[0].base_offset}: {error.detail}",
            ) from error
        batch = _wanted(batch, joined)
        self._move(runs[-1].base_offset + runs[-1].record_count)
        return batch


def _wanted(batch: pa.RecordBatch, joined: Joined) -> pa.RecordBatch:
    """Return the records of the runs, of a batch with all records of their batches."""
    if all(run.record_count == run.view.header.record_count for run in joined.runs):
        return batch
    starts = joined.ends - joined.counts + [run.first_record for run in joined.runs]
    counts = np.array([run.record_count for run in joined.runs], np.int64)
    if np.array_equal(starts[:-1] + counts[:-1], starts[1:]):
        return batch.slice(int(starts[0]), int(counts.sum()))
    before = np.cumsum(counts) - counts
    places: Int64s = np.repeat(starts - before, counts) + np.arange(int(counts.sum()))
    return batch.take(pa.array(places))


class Values:
    """The columns of joined batches as Arrow arrays; properties are walked once."""

    def __init__(self, joined: Joined, source: ExpectedQueue) -> None:
        self.joined = joined
        self.source = source
        self._properties: Properties | None = None

    @property
    def properties(self) -> Properties:
        """The properties, walked at the first use."""
        if self._properties is None:
            self._properties = Properties(self.joined.properties, self.joined.property_starts)
        return self._properties

    def topic(self) -> pa.Array:
        """The topic's name, once in memory and repeated by offsets."""
        encoded = self.source.topic.encode()
        ends = np.arange(len(self.joined) + 1, dtype=np.int32) * len(encoded)
        return back_to_back(pa.string(), ends, encoded * len(self.joined))

    def queue(self) -> pa.Array:
        """The queue's number."""
        return pa.array(np.full(len(self.joined), self.source.queue, np.int32))

    def stamped(self, values: Int64s) -> pa.Array:
        """Return values that only records with a producer's stamp have."""
        without = self.joined.spread(self.joined.of_headers("base_sequence")) < 0
        return pa.array(np.ma.masked_array(values, without))

    def producer_ids(self) -> pa.Array:
        """16 bytes; null without a stamp."""
        headers = self.joined.headers
        ids = [header.producer_id if header.stamp else None for header in headers]
        spread = self.joined.spread(np.arange(len(headers), dtype=np.int64))
        return pa.array(ids, pa.binary()).take(pa.array(spread))

    def message_ids(self) -> pa.Array:
        """Producer id and number of each record, 24 bytes."""
        joined = self.joined
        ids = np.frombuffer(b"".join([each.producer_id for each in joined.headers]), np.uint8)
        bases = np.array([header.base_number for header in joined.headers], np.uint64)
        numbers = np.repeat(bases, joined.counts) + joined.places.astype(np.uint64)
        table = np.empty((len(joined), _ID_SIZE + 8), np.uint8)
        table[:, :_ID_SIZE] = np.repeat(ids.reshape(-1, _ID_SIZE), joined.counts, axis=0)
        table[:, _ID_SIZE:] = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
        ends = np.arange(len(joined) + 1, dtype=np.int32) * (_ID_SIZE + 8)
        return back_to_back(pa.binary(), ends, table.tobytes())

    def positions(self) -> pa.Array:
        """Each batch's position in the log; null when it was not told."""
        joined = self.joined
        spread = joined.spread(np.array([run.position for run in joined.runs], np.int64))
        return pa.array(np.ma.masked_array(spread, spread < 0))

    def tag_hashes(self) -> pa.Array:
        """Null without a tag."""
        hashes = self.joined.tag_hashes
        return pa.array(np.ma.masked_array(hashes, hashes == 0))

    def key_hashes(self) -> pa.Array:
        """One list for each record."""
        joined = self.joined
        return pa.ListArray.from_arrays(pa.array(joined.key_ends), pa.array(joined.key_hashes))

    def times(self, times_ms: Int64s) -> pa.Array:
        """Return milliseconds as Arrow's microseconds."""
        return pa.array(times_ms * _US_PER_MS).cast(pa.timestamp("us", "UTC"))


_VALUES: Final[dict[str, Callable[[Values], pa.Array]]] = {
    "topic": Values.topic,
    "queue_id": Values.queue,
    "queue_offset": lambda values: pa.array(values.joined.offsets),
    "store_timestamp": lambda values: values.times(values.joined.store_times_ms),
    "born_timestamp": lambda values: values.times(values.joined.born_times_ms),
    "key": lambda values: values.properties.keys,
    "tag": lambda values: values.properties.tags,
    "body": lambda values: values.joined.bodies,
    "properties": lambda values: values.properties.others,
    "producer_id": Values.producer_ids,
    "producer_epoch": lambda values: values.stamped(
        values.joined.spread(values.joined.of_headers("producer_epoch"))
    ),
    "sequence": lambda values: values.stamped(
        values.joined.spread(values.joined.of_headers("base_sequence")) + values.joined.places
    ),
    "message_id": Values.message_ids,
    "tag_hash": Values.tag_hashes,
    "log_position": Values.positions,
    "body_size": lambda values: pa.array(values.joined.body_sizes),
    "key_hashes": Values.key_hashes,
}
