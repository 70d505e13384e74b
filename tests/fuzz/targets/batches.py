"""Targets: record batches, their records, columns and pieces."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from dledger_client.arrow.decode import Decoder, ExpectedQueue, Span
from dledger_client.arrow.schema import COLUMNS
from dledger_proto.batch.codec import (
    BatchView,
    Compression,
    ProducerStamp,
    Record,
    check_batch,
    check_envelope,
    cut_record,
    cut_records,
    delivery_time_of,
    encode_batch,
    parse_header,
    parse_message_id,
    restamp,
    split_batches,
)
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import BODIES_SIZE_MAX, MIB
from tests.fuzz.target import Target
from tests.fuzz.targets import reseal

TOPIC_ID: Final = bytes(range(16))
STAMP: Final = ProducerStamp(bytes(range(100, 116)), 3, 40)
TIME_MS: Final = 1_700_000_000_000
RECORDS: Final = (
    Record(b"first", "blue", ("k1", "k2"), {"a": "1", "city": "Zürich"}, TIME_MS + 5),
    Record(b"", "", ("k3",), {}, 0),
    Record(b"third body", "green", (), {"empty": ""}, TIME_MS - 7),
)
CODES_OF_CHECKS: Final = (
    Code.CORRUPT_BATCH, Code.UNSUPPORTED_FORMAT, Code.MESSAGE_TOO_LARGE, Code.MESSAGE_ILLEGAL,
    Code.UNIMPLEMENTED, Code.UNREADABLE_BATCH,
)  # fmt: skip


def made(
    records: Sequence[Record] = RECORDS,
    *,
    stamp: ProducerStamp | None = STAMP,
    compression: Compression = Compression.NONE,
    delivery_time_ms: int = 0,
) -> bytes:
    """Return a batch as producers make them."""
    return encode_batch(
        records, topic_id=TOPIC_ID, queue=2, stamp=stamp, base_number=9, base_time_ms=TIME_MS,
        compression=compression, delivery_time_ms=delivery_time_ms,
    )  # fmt: skip


def seeds() -> Sequence[bytes]:
    """Return batches of every form."""
    long = [Record(b"again and again " * 20, properties={"a": "b"})] * 3
    many = [Record(b"x", "t", ("k",), {"p": "v", "q": ""})] * 90
    return [
        made(), made(stamp=None), made([Record(b"alone")]), made(delivery_time_ms=TIME_MS),
        made(long, compression=Compression.ZSTD), made(long, compression=Compression.LZ4),
        made(many),
    ]  # fmt: skip


@contextmanager
def only(*codes: Code) -> Iterator[None]:
    """Check that what is raised has one of the codes."""
    try:
        yield
    except DledgerError as error:
        if error.code not in codes:
            raise AssertionError(f"{error.code.name} is none of {codes}") from error
        raise


def _check(data: bytes) -> None:
    """A batch that a member stores can be read but for its compressed bodies, and cut."""
    with only(*CODES_OF_CHECKS):
        header = check_batch(data)
    assert parse_header(data) == header == check_envelope(data)
    delivery_time_of(data, header)
    assert check_batch(restamp(data, STAMP)).stamp == STAMP
    view = BatchView(data, header)
    for i in range(min(len(view), 4)):
        view.properties(i), view.keys(i), view.key_hashes(i), view.message_id(i)
    for wanted in view.all_key_hashes[:2]:
        assert view.records_with_hash(wanted)
    columns = view.columns()
    assert columns.times_ms.tolist() == list(view.times)
    with only(Code.UNREADABLE_BATCH):
        piece = cut_record(view, len(view) - 1)
        pieces = cut_records(view, 0, len(view))
    assert len(BatchView(piece, check_batch(piece))) == 1
    assert list(BatchView(pieces, check_batch(pieces)).records()) == list(view.records())


def _view(data: bytes) -> None:
    """Whatever the bytes are, decoding raises only DledgerError."""
    view = BatchView(data)
    problem = view.problem
    view.columns()
    if problem is not None:
        raise problem
    with only(Code.UNSUPPORTED_FORMAT):
        assert len(list(view.records())) == len(view)


def _split(data: bytes) -> None:
    assert b"".join(split_batches(data)) == data


def _decode(data: bytes) -> None:
    """Decode as bulk reads do: by columns."""
    wanted = ExpectedQueue("orders", TOPIC_ID, 2)
    count = parse_header(data).record_count
    decoder = Decoder(wanted, tuple(COLUMNS), 5, 5 + count)
    span = Span(5, 0, count, TIME_MS, memoryview(data))
    assert sum(batch.num_rows for batch in decoder.decode([span])) == count
    assert decoder.is_done


_ALLOWANCE: Final = 2 * BODIES_SIZE_MAX + 4 * MIB
"""Bodies are unpacked to what the header says, and copied once."""
TARGETS: Final = (
    Target(
        "batch-check", _check, (DledgerError,), seeds,
        (
            "dledger_proto.batch.codec:check_batch", "dledger_proto.batch.header:parse_header",
            "dledger_proto.batch.property_check:check_properties",
            "dledger_proto.batch.extensions:check_extensions",
            "dledger_proto.batch.cutting:cut_records",
        ),
        reseal.batch, multiple=128, allowance=_ALLOWANCE,
    ),
    Target(
        "batch-view", _view, (DledgerError,), seeds,
        (
            "dledger_proto.batch.view:BatchView",
            "dledger_proto.batch.properties:decode_properties",
            "dledger_proto.batch.compression:decompress",
        ),
        reseal.batch, multiple=256, allowance=_ALLOWANCE,
    ),
    Target(
        "batch-columns", _decode, (DledgerError,), seeds,
        ("dledger_client.arrow.decode:Decoder.decode",),
        reseal.batch, multiple=256, allowance=_ALLOWANCE, tries=600,
    ),
    Target(
        "batch-split", _split, (DledgerError,), lambda: [b"".join(seeds()[:3]), seeds()[2] * 2],
        ("dledger_proto.batch.codec:split_batches",),
    ),
    Target(
        "message-id", lambda data: parse_message_id(data), (DledgerError,),
        lambda: [bytes(24), bytes(range(24))],
        ("dledger_proto.batch.codec:parse_message_id",), tries=100,
    ),
)  # fmt: skip
