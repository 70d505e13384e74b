"""Records decoded one by one, slowly and obviously: what the columns must equal."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

from dledger_client.arrow import ExpectedQueue, Span
from dledger_proto.batch.codec import NO_ID, BatchView, Record, check_batch, encode_batch
from dledger_proto.limits import BATCH_RECORDS_MAX
from tests.unit.proto.samples import TOPIC_ID

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SOURCE = ExpectedQueue("orders", TOPIC_ID, 2)
BITS = 1 << 64


def time_of(time_ms: int) -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=time_ms)


def rows_of(span: Span, start: int, end: int) -> list[dict[str, Any]]:
    """Return the rows of a span whose offsets are in start..end - 1, all columns."""
    header = check_batch(span.batch)
    view = BatchView(span.batch, header)
    rows: list[dict[str, Any]] = []
    for k in range(span.record_count):
        offset = span.base_offset + k
        if not start <= offset < end:
            continue
        i = span.first_record + k
        properties = view.properties(i)
        hashes = view.key_hashes(i)
        has_stamp = header.stamp is not None
        rows.append({
            "topic": SOURCE.topic,
            "queue_id": SOURCE.queue,
            "queue_offset": offset,
            "store_timestamp": time_of(span.store_time_ms),
            "born_timestamp": time_of(view.times[i]),
            "key": properties.pop("KEYS", None),
            "tag": properties.pop("TAGS", None),
            "body": bytes(view.body(i)),
            "properties": properties,
            "producer_id": header.producer_id if has_stamp else None,
            "producer_epoch": header.producer_epoch if has_stamp else None,
            "sequence": header.base_sequence + i if has_stamp else None,
            "message_id": view.message_id(i),
            "tag_hash": view.tag_hashes[i] or None,
            "log_position": span.position if span.position >= 0 else None,
            "body_size": len(view.body(i)),
            "key_hashes": [each - BITS if each >= BITS // 2 else each for each in hashes],
        })  # fmt: skip
    return rows


def spans_of(batches: Sequence[bytes], base_offset: int = 0) -> list[Span]:
    """Return whole batches as consecutive spans of a queue."""
    spans: list[Span] = []
    for number, batch in enumerate(batches):
        count = check_batch(batch).record_count
        position = 1_000 * number if number != 1 else -1
        spans.append(
            Span(base_offset, 0, count, 1_700_000_000_000 + number, memoryview(batch), position)
        )
        base_offset += count
    return spans


def plain_batch(bodies: Sequence[bytes], **changes: Any) -> bytes:
    """Return a batch of bare bodies without a producer's stamp."""
    assert len(bodies) <= BATCH_RECORDS_MAX
    arguments: dict[str, Any] = {
        "topic_id": TOPIC_ID, "queue": 2, "base_number": 0, "base_time_ms": 1, "stamp": None,
    } | changes  # fmt: skip
    return encode_batch([Record(body) for body in bodies], **arguments)


assert NO_ID != TOPIC_ID
