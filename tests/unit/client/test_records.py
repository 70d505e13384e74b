"""Records of a batch whose bodies cannot be unpacked: the checksum is the producer's, and right."""

from collections.abc import Callable

import pytest

from dledger_client import RecordBatch, UnreadableData
from dledger_proto.batch.codec import BatchView, Compression, Record, encode_batch


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
