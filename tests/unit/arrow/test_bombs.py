"""Bodies that unpack to a thousand times what came over the wire: a bulk read's memory is bounded.

Method: batches whose bodies are zeros, decoded portion by portion, what is allocated measured.
"""

import tracemalloc

import pytest

from dledger_client.arrow import Decoder, Span
from dledger_client.arrow.decode import PORTION_BYTES
from dledger_proto.batch.codec import Compression, Record, encode_batch
from dledger_proto.limits import BODIES_SIZE_MAX, BODY_SIZE_MAX
from tests.unit.arrow.oracle import SOURCE

COUNT = 30


@pytest.mark.parametrize("compression", [Compression.ZSTD, Compression.LZ4])
@pytest.mark.parametrize("records", [1, 4_096])
def test_no_more_than_two_portions_are_in_memory(compression: Compression, records: int) -> None:
    """A frame holds many such batches; each is decompressed when its portion is made."""
    bomb = encode_batch(
        [Record(bytes(BODY_SIZE_MAX // records))] * records,
        topic_id=SOURCE.topic_id, queue=SOURCE.queue, stamp=None, base_number=0, base_time_ms=1,
        compression=compression,
    )  # fmt: skip
    spans = [Span(records * at, 0, records, 1, memoryview(bomb)) for at in range(COUNT)]
    decoder = Decoder(SOURCE, ["body"], 0, records * COUNT)
    rows = 0
    tracemalloc.start()
    try:
        for batch in decoder.decode(spans):
            rows += batch.num_rows
            del batch
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == records * COUNT
    assert peak < 2 * (PORTION_BYTES + BODIES_SIZE_MAX)
