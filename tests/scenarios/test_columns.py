"""What decoding by columns must never hand out. Small enough to catch known bugs with."""

from dledger_client.arrow import Decoder, ExpectedQueue, Span
from dledger_proto.batch.codec import BATCH_HEADER_SIZE, Record, encode_batch
from dledger_proto.errors import Code
from tests.unit.proto.samples import TOPIC_ID, refused, sealed

SOURCE = ExpectedQueue("orders", TOPIC_ID, 0)


def batch_of(*bodies: bytes) -> bytes:
    return encode_batch(
        [Record(body) for body in bodies],
        topic_id=TOPIC_ID, queue=0, stamp=None, base_number=0, base_time_ms=1,
    )  # fmt: skip


def bodies_of(*spans: Span, end: int) -> list[bytes]:
    decoder = Decoder(SOURCE, ["body"], 0, end)
    return [row["body"] for batch in decoder.decode(spans) for row in batch.to_pylist()]


def test_a_flipped_bit_is_never_handed_out() -> None:
    """The CRC covers bodies, too (I15)."""
    broken = bytearray(batch_of(b"first", b"second"))
    broken[-1] ^= 1
    span = Span(0, 0, 2, 1, memoryview(broken))
    refused(lambda: bodies_of(span, end=2), Code.CORRUPT_BATCH)


def test_a_gap_is_never_passed_over() -> None:
    """A row that is missing is an error, not a shorter answer."""
    first = Span(0, 0, 1, 1, memoryview(batch_of(b"a")))
    third = Span(2, 0, 1, 1, memoryview(batch_of(b"c")))
    refused(lambda: bodies_of(first, third, end=3), Code.OFFSET_OUT_OF_RANGE)


def test_only_what_a_row_says_is_compacted() -> None:
    """Before, within and behind the range; a missing row is an error all the same."""
    gone = [Span(0, 0, 2, 1, memoryview(b"")), Span(3, 0, 3, 1, memoryview(b""))]
    record = Span(2, 0, 1, 1, memoryview(batch_of(b"c")))
    assert bodies_of(gone[0], record, gone[1], end=5) == [b"c"]
    refused(lambda: bodies_of(gone[0], gone[1], end=5), Code.OFFSET_OUT_OF_RANGE)


def test_what_was_handed_out_is_not_handed_out_again() -> None:
    """A repeated batch, after a change of the member, is cut to what is new."""
    first = Span(0, 0, 2, 1, memoryview(batch_of(b"a", b"b")))
    again = Span(1, 0, 2, 1, memoryview(batch_of(b"b", b"c")))
    assert bodies_of(first, first, again, end=3) == [b"a", b"b", b"c"]


def test_sizes_that_lie_are_never_followed() -> None:
    """A producer may give its batch a right CRC and wrong sizes: nothing is read outside."""
    broken = bytearray(batch_of(b"first", b"second"))
    broken[BATCH_HEADER_SIZE] += 1
    span = Span(0, 0, 2, 1, memoryview(sealed(broken)))
    refused(lambda: bodies_of(span, end=2), Code.UNREADABLE_BATCH)
