"""The delivery time of a batch: an extension of its header."""

import struct

import pytest

from dledger_proto.batch.codec import (
    BatchView,
    check_batch,
    cut_record,
    delivery_time_of,
    encode_batch,
)
from dledger_proto.errors import Code
from dledger_proto.limits import TIME_MS_MAX
from tests.unit.proto.samples import (
    BASE_TIME_MS,
    RICH,
    TOPIC_ID,
    make_batch,
    refused,
    with_extensions,
)


def test_a_delivery_time_is_an_extension() -> None:
    batch = encode_batch(
        RICH, topic_id=TOPIC_ID, queue=3, stamp=None, base_number=0, base_time_ms=BASE_TIME_MS,
        delivery_time_ms=77,
    )  # fmt: skip
    header = check_batch(batch)
    assert delivery_time_of(batch, header) == 77
    assert [view.body for view in BatchView(batch).records()] == [each.body for each in RICH]
    cut = cut_record(BatchView(batch), 1)
    assert delivery_time_of(cut, check_batch(cut)) == 77
    plain = make_batch()
    assert delivery_time_of(plain, check_batch(plain)) == 0


@pytest.mark.parametrize("time_ms", [-1, 0, TIME_MS_MAX + 1])
def test_a_delivery_time_out_of_range_is_refused(time_ms: int) -> None:
    batch = with_extensions(make_batch(), struct.pack("<HHq", 1, 8, time_ms))
    error = refused(lambda: check_batch(batch), Code.MESSAGE_ILLEGAL)
    assert f"delivery_time_ms {time_ms}, must be in 1..{TIME_MS_MAX}" in error.detail
    short = with_extensions(make_batch(), struct.pack("<HHi", 1, 4, 1))
    refused(lambda: check_batch(short), Code.CORRUPT_BATCH)
