"""What a member checks of a batch's content before it stores it, beyond the columns' sums.

Goal: nothing is stored that no reader can decode, as far as that shows without decompressing.
Method: a lying producer's batches, and the decoder itself as the oracle of the check.
"""

import struct
from collections.abc import Sequence

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from dledger_proto.batch import property_check
from dledger_proto.batch.codec import BatchView, Compression, Record, check_batch, check_envelope
from dledger_proto.batch.compression import compress
from dledger_proto.batch.properties import decode_properties
from dledger_proto.batch.property_check import MANY, check_properties
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import (
    BODIES_SIZE_MAX,
    BODY_SIZE_MAX,
    PROPERTIES_PER_RECORD_MAX,
    PROPERTY_NAME_SIZE_MAX,
)
from tests.unit.proto.samples import make_batch, refused, sealed, untimed, with_fields

SOUND = struct.pack("<HH", 1, 2) + b"n" + b"vv"


def framed(properties: Sequence[bytes]) -> bytes:
    """Return a sound envelope whose records have properties of our choice, and no bodies."""
    rows = [Record(b"", properties={"n": "v" * (len(each) - 5)}) for each in properties]
    area = b"".join(properties)
    batch = make_batch(rows)
    return sealed(batch[: len(batch) - len(area)] + area)


BROKEN = {
    "name too long": b"\xff\xff\0\0abc",
    "name not UTF-8": b"\x01\0\x02\0\xffvv",
    "value not UTF-8": b"\x01\0\x02\0n\xc3n",
    "value too long": b"\x01\0\x05\0nvv",
    "no room for sizes": b"\x01\0\0\0n\0\0",
    "a character cut by the value's beginning": b"\x01\0\x02\0\xc3\xbcv",
}
"""Each as long as SOUND."""


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize(("count", "at"), [(1, 0), (3, 1), (MANY, MANY - 1), (1_000, 500)])
def test_properties_that_nobody_can_decode_are_refused(broken: bytes, count: int, at: int) -> None:
    rows = [SOUND] * count
    check_batch(framed(rows))
    rows[at] = broken
    lying = framed(rows)
    detail = refused(lambda: check_batch(lying), Code.UNREADABLE_BATCH).detail
    assert f"record {at}: " in detail
    check_envelope(lying)  # the bytes are as they were sent
    view = BatchView(lying)
    assert bytes(view.body(at)) == b"", "a body is read without its properties"
    refused(lambda: view.record(at), Code.UNREADABLE_BATCH)


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize("size", [0, PROPERTY_NAME_SIZE_MAX + 1])
def test_the_length_of_a_propertys_name_is_bounded(size: int, count: int) -> None:
    name = struct.pack("<HH", size, 3) + b"n" * size + b"vvv"
    detail = refused(lambda: check_batch(framed([name] * count)), Code.MESSAGE_ILLEGAL).detail
    assert f"record 0: property name of {size} bytes, must have 1 to 255" in detail


@pytest.mark.parametrize("count", [1, MANY])
def test_the_number_of_a_records_properties_is_bounded(count: int) -> None:
    most = PROPERTIES_PER_RECORD_MAX
    each = [struct.pack("<HH", 1, 1) + b"nv"] * (most + 1)
    check_batch(framed([b"".join(each[1:])] * count))
    lying = framed([SOUND] * count + [b"".join(each)])
    detail = refused(lambda: check_batch(lying), Code.MESSAGE_ILLEGAL).detail
    assert f"record {count}: more than {most} properties" in detail


def test_a_producer_is_told_the_number_at_once() -> None:
    properties = {f"{number:03x}": "" for number in range(PROPERTIES_PER_RECORD_MAX)}
    check_batch(make_batch([Record(b"", properties=properties)]))
    for more in (Record(b"", "t", (), properties), Record(b"", "", ("k",), properties)):
        detail = refused(lambda more=more: make_batch([more]), Code.MESSAGE_ILLEGAL).detail  # type: ignore[misc]
        assert "record 0: 1025 properties, at most 1024" in detail


@pytest.mark.parametrize("has_numpy", [True, False])
def test_without_numpy_the_same_is_refused(
    monkeypatch: pytest.MonkeyPatch, has_numpy: bool
) -> None:
    monkeypatch.setattr(property_check, "_HAS_NUMPY", has_numpy)
    rows = [SOUND] * MANY
    check_batch(framed(rows))
    for broken in BROKEN.values():
        refused(lambda broken=broken: check_batch(framed([*rows, broken])), Code.UNREADABLE_BATCH)  # type: ignore[misc]


def decodes(area: bytes, sizes: Sequence[int]) -> bool:
    """Say by the decoder whether each record can be read, and its names are within the limit."""
    at = 0
    for size in sizes:
        try:
            names = decode_properties(area, at, at + size)
        except DledgerError:
            return False
        if not all(0 < len(name.encode()) <= PROPERTY_NAME_SIZE_MAX for name in names):
            return False
        at += size
    return True


def one_property(name: bytes, value: bytes) -> bytes:
    return struct.pack("<HH", len(name), len(value)) + name + value


TEXTS = st.text(max_size=3).map(str.encode)
RECORDS = st.one_of(
    st.lists(st.builds(one_property, TEXTS, TEXTS), max_size=3).map(b"".join),
    st.lists(st.builds(one_property, st.binary(max_size=2), st.binary(max_size=2)), max_size=3).map(
        b"".join
    ),
    st.binary(max_size=9),
)


@untimed
@given(st.lists(RECORDS, max_size=4), st.sampled_from([0, MANY]))
def test_the_check_and_the_decoder_agree(rows: list[bytes], before: int) -> None:
    rows = [SOUND] * before + rows
    area, sizes = b"".join(rows), [len(each) for each in rows]
    if decodes(area, sizes):
        check_properties(area, sizes)
    else:
        refused(lambda: check_properties(area, sizes), Code.UNREADABLE_BATCH, Code.MESSAGE_ILLEGAL)


def packed(stored: bytes, compression: Compression, size: int = 1_000) -> bytes:
    """Return the sound envelope of a record of `size` bytes whose stored bodies are given."""
    batch = make_batch([Record(bytes(size))])
    batch = batch[: len(batch) - size] + stored
    return with_fields(
        batch, size=len(batch), bodies_stored_size=len(stored), compression=int(compression)
    )


@pytest.mark.parametrize("compression", [Compression.ZSTD, Compression.LZ4])
@pytest.mark.parametrize("size", [64, 255, 256, 257, 65_791, 65_792, BODY_SIZE_MAX])
def test_what_our_producers_compress_is_taken(compression: Compression, size: int) -> None:
    header = check_batch(make_batch([Record(bytes(size))], compression=compression))
    assert header.compression is compression or header.compression == int(compression)


def test_several_segments_are_taken() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=20)
    data = bytes(range(256)) * 16 * 1_024
    stored = zstandard.ZstdCompressor(compression_params=parameters).compress(data)
    check_batch(packed(stored, Compression.ZSTD, len(data)))


def frame(**settings: int) -> bytes:
    made = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(**settings)
    ).compressobj(size=1_000 if settings.get("write_content_size", 1) else -1)
    return made.compress(b"y" * 1_000) + made.flush()


ZSTD_LIES = {
    "declares no content size": frame(write_content_size=0),
    "not with a zstd frame": b"garbage of some length",
    "begin with 28b52ffd": zstandard.ZstdCompressor().compress(b"")[:4],
    "but the zstd frame says 999 bytes": zstandard.ZstdCompressor().compress(b"y" * 999),
    "a dictionary": b"\x28\xb5\x2f\xfd\x21" + bytes(9),
    "a dictionary or unknown": b"\x28\xb5\x2f\xfd\x28" + bytes(9),
}


def test_a_zstd_frame_that_says_something_else_is_refused() -> None:
    for told, stored in ZSTD_LIES.items():
        lying = packed(stored, Compression.ZSTD)
        detail = refused(lambda lying=lying: check_batch(lying), Code.UNREADABLE_BATCH).detail  # type: ignore[misc]
        assert told in detail


def test_a_zstd_window_beyond_the_bound_is_refused() -> None:
    descriptor = 0b0100_0000  # content size in two bytes, and a window
    stored = (
        b"\x28\xb5\x2f\xfd" + bytes([descriptor, 17 << 3 | 1]) + (1_000 - 256).to_bytes(2, "little")
    )
    detail = refused(
        lambda: check_batch(packed(stored, Compression.ZSTD)), Code.UNREADABLE_BATCH
    ).detail
    assert f"window of {(1 << 27) + (1 << 24)}, at most 8388608" in detail


def test_an_lz4_block_that_cannot_hold_its_bodies_is_refused() -> None:
    stored = compress(Compression.LZ4, bytes(BODY_SIZE_MAX))
    check_batch(packed(stored, Compression.LZ4, BODY_SIZE_MAX))
    lying = packed(stored[: BODY_SIZE_MAX // 256], Compression.LZ4, BODY_SIZE_MAX)
    detail = refused(lambda: check_batch(lying), Code.UNREADABLE_BATCH).detail
    assert "holds at most" in detail


def test_more_than_a_batch_may_unpack_to_is_refused_by_name() -> None:
    stored = zstandard.ZstdCompressor().compress(bytes(1_000))
    lying = with_fields(packed(stored, Compression.ZSTD), bodies_size=BODIES_SIZE_MAX + 1)
    detail = refused(lambda: check_batch(lying), Code.MESSAGE_TOO_LARGE).detail
    assert f"bodies_size {BODIES_SIZE_MAX + 1}, at most {BODIES_SIZE_MAX}" in detail
