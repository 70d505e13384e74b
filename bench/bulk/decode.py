"""Batches of the wire to Arrow columns. Beside it: a loop over the records that builds the same.

Both check every batch; no cluster, no socket: bytes in memory on both sides. One core.
"""

import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared
from dledger_client.arrow.decode import Decoder, ExpectedQueue, Span
from dledger_client.arrow.schema import DEFAULT_COLUMNS, PROPERTIES, schema_of
from dledger_proto.batch.codec import BatchView, ProducerStamp, Record, check_envelope, encode_batch

COLUMNS: Final = (*DEFAULT_COLUMNS, PROPERTIES)
TOPIC_ID: Final = b"t" * 16
SOURCE: Final = ExpectedQueue("orders", TOPIC_ID, 0)
PER_BATCH: Final = 256
WANTED: Final = {100: 8.0, 1024: 4.0}
"""By bytes of a body."""
TOTAL_BYTES: Final = 48 << 20
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def measure(effort: Effort) -> list[Figure]:
    """Measure in turn, for small and larger bodies."""
    rounds = Rounds()
    for size in WANTED:
        spans = made_spans(size, min(TOTAL_BYTES // size, int(100_000 * effort.seconds)))
        count = sum(span.record_count for span in spans)
        for way in (by_columns, by_records):
            sum(1 for _ in way(spans[:1], PER_BATCH))  # the first call imports and caches
        for _ in range(effort.runs):
            for name, way in (("columns", by_columns), ("records", by_records)):
                start = time.perf_counter()
                rows = sum(batch.num_rows for batch in way(spans, count))
                rounds.add(f"{name} {size}", rows / (time.perf_counter() - start))
                assert rows == count, f"{rows} of {count}"
    return [
        compared(
            f"decode_{size}", rounds[f"columns {size}"], "records/s",
            "a loop over records", rounds[f"records {size}"], ">=", wanted,
            note="key, tag and two properties in each record; nine columns, a map among them",
        )
        for size, wanted in WANTED.items()
    ]  # fmt: skip


def made_spans(body_size: int, count: int) -> list[Span]:
    """Return batches as a member's frames hold them."""
    body = os.urandom(body_size)
    spans: list[Span] = []
    for first in range(0, count, PER_BATCH):
        records = [
            Record(
                body,
                tag=("created", "paid", "shipped")[number % 3],
                keys=(f"order-{number:08d}",),
                properties={"region": "eu-west", "trace": f"{number:016x}"},
            )
            for number in range(first, first + PER_BATCH)
        ]
        batch = encode_batch(
            records, topic_id=TOPIC_ID, queue=0, stamp=ProducerStamp(b"p" * 16, 1, first),
            base_number=first, base_time_ms=1_700_000_000_000,
        )  # fmt: skip
        spans.append(Span(first, 0, PER_BATCH, 1_700_000_000_001, memoryview(batch)))
    return spans


def by_columns(spans: Sequence[Span], count: int) -> Iterator[pa.RecordBatch]:
    """Decode as readers do."""
    return Decoder(SOURCE, COLUMNS, 0, count).decode(spans)


def by_records(spans: Sequence[Span], _count: int) -> Iterator[pa.RecordBatch]:
    """Decode record by record, batch by batch, into the same columns."""
    schema = schema_of(COLUMNS)
    for span in spans:
        view = BatchView(span.batch, check_envelope(span.batch))
        stored = EPOCH + timedelta(milliseconds=span.store_time_ms)
        rows = [
            (
                SOURCE.topic,
                SOURCE.queue,
                span.base_offset + place,
                stored,
                EPOCH + timedelta(milliseconds=record.time_ms),
                " ".join(record.keys) or None,
                record.tag or None,
                record.body,
                list(record.properties.items()),
            )
            for place, record in enumerate(view.records())
        ]
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(zip(*rows, strict=True), schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
