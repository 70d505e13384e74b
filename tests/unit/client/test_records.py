"""Records of a batch whose bodies cannot be unpacked: the checksum is the producer's, and right."""

from collections.abc import Callable

import pytest

from dledger_client import ConsumedRecord, RecordBatch, UnreadableData
from dledger_client._core.message_checks import make_record, taken_over
from dledger_proto.batch.codec import (
    BATCH_HEADER_SIZE,
    BatchView,
    Compression,
    Record,
    encode_batch,
)
from tests.unreadable import with_bad_bodies, with_bad_properties


@pytest.mark.parametrize(
    "read",
    [
        lambda run: run.bodies(),
        lambda run: run.records(),
        lambda run: next(iter(run)).body,
        lambda run: [record.body for record in run],
    ],
)
def test_the_error_names_the_place(read: Callable[[RecordBatch], object]) -> None:
    """Whoever wants to read on behind it must know where that is."""
    batch = bytearray(
        encode_batch(
            [Record(b"x" * 500)] * 3, topic_id=b"t" * 16, queue=1, stamp=None, base_number=0,
            base_time_ms=1, compression=Compression.ZSTD,
        )
    )  # fmt: skip
    batch[-8:] = b"nonsense"
    run = RecordBatch("t", 1, 40, BatchView(batch), 0, 3, 1)
    with pytest.raises(UnreadableData, match=r"t/1: offsets 40 to 42, 3 records, .*: bodies: "):
        read(run)
    assert next(iter(run)).offset == 40
    assert run.next_offset == 43


def record_of(batch: bytes) -> ConsumedRecord:
    return ConsumedRecord(RecordBatch("t", 0, 0, BatchView(batch), 0, 1, 1), 0)


def encoded(record: Record, compression: Compression = Compression.NONE) -> bytes:
    return encode_batch(
        [record], topic_id=b"t" * 16, queue=0, stamp=None, base_number=0, base_time_ms=1,
        compression=compression,
    )  # fmt: skip


def test_order_goes_by_the_ordering_key_and_without_one_by_the_first_key() -> None:
    given, _ = make_record(b"x", key="order-17", properties={"a": "b"}, ordering_key="customer-4")
    record = record_of(encoded(given))
    assert (record.order_by, record.ordering_key) == ("customer-4", "customer-4")
    assert (record.keys, record.properties) == (("order-17",), {"a": "b"})
    older, _ = make_record(b"x", key="order-17", keys=("eu",))
    record = record_of(encoded(older))
    assert (record.order_by, record.ordering_key) == ("order-17", "")
    assert record_of(encoded(Record(b"x"))).order_by == ""
    (again, _), (odd, _) = taken_over(b"x", "customer-4"), make_record(b"x", ordering_key=b"\xff")
    assert record_of(encoded(again)).order_by == "customer-4"
    assert record_of(encoded(odd)).order_by == "\\xff"


def test_the_bytes_of_a_record_without_an_ordering_key_are_as_before() -> None:
    given, size = make_record(b"x", "tag", "key")
    assert given == Record(b"x", "tag", ("key",))
    assert size >= len(encoded(given)) - BATCH_HEADER_SIZE
    with_key, size = make_record(b"x", "tag", "key", ordering_key="k")
    assert with_key.properties == {"__SHARDINGKEY": "k"}
    assert size >= len(encoded(with_key)) - BATCH_HEADER_SIZE


def test_a_record_whose_body_cannot_be_decompressed_still_has_its_key() -> None:
    given, _ = make_record(b"x" * 1_000, ordering_key="k")
    bad = record_of(with_bad_bodies(encoded(given, Compression.ZSTD)))
    assert bad.order_by == "k"
    with pytest.raises(UnreadableData):
        _ = bad.body
    with pytest.raises(UnreadableData):
        _ = record_of(with_bad_properties(encoded(given))).order_by
