"""Entry frame, segment header, genesis payload: golden bytes, round trips, refusals."""

import dataclasses
import struct
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from dledger.types import EntryKind
from dledger_proto import entry as entry_format
from dledger_proto.entry import (
    ENTRY_HEADER_SIZE,
    ENTRY_HEADER_SIZE_MAX,
    KIND_BATCHES,
    KIND_COMMANDS,
    KIND_GENESIS,
    KIND_NO_OP,
    SEGMENT_HEADER_SIZE,
    CorruptEntry,
    DecodedEntry,
    Genesis,
    NewerEntry,
    SegmentHeader,
    ShortEntry,
    check_local,
    decode_entry,
    encode_genesis,
    frame_entry,
    parse_entry_header,
    parse_genesis,
    parse_segment_header,
    parse_segment_name,
    segment_name,
    stamp_local,
)
from dledger_proto.limits import ENTRY_PAYLOADS_MAX, ENTRY_SIZE_MAX, MIB
from tests.unit.proto.samples import RICH, make_batch, untimed

SALT = b"saltsalt"
PLACE = {"index": 7, "term": 3, "time_ms": 1_700_000_000_000, "position": 4096, "previous_crc": 99}

GOLDEN_ENTRY = (
    "444c4531c8018ba66800000060000102070000000000000003000000000000000068e5cf8b01000000100000"
    "000000006300000003000000a00f000000000000de6484400000000003000000e9b2942a0000000000000000"
    "05000000bc51441c6f6e657468726565"
)
GOLDEN_NO_OP = (
    "444c4531cc041bd94800000048000100070000000000000003000000000000000068e5cf8b01000000100000"
    "000000006300000000000000a00f00000000000060fd4a8200000000"
)
GOLDEN_SEGMENT = (
    "444c5331e1ca420a0100000000000000000102030405060708090a0b0c0d0e0f001000000000000007000000"
    "0000000002000000000000006300000073616c7473616c740000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
)
GOLDEN_GENESIS = (
    "444c4731010301000800000102030405060708090a0b0c0d0e0f6362726f6b65722d6102006e310000000000"
    "000000000000000000000002006e320101010101010101010101010101010104006472656902020202020202"
    "020202020202020202"
)

SEGMENT = SegmentHeader(bytes(range(16)), 4096, 7, 2, 99, SALT)
MEMBERS = [("n1", bytes(16)), ("n2", b"\1" * 16), ("drei", b"\2" * 16)]


def make_entry(kind: int, payloads: list[bytes], **changes: Any) -> bytes:
    header, _ = frame_entry(kind, payloads, **(PLACE | changes))
    return stamp_local(header, SALT, 4000) + b"".join(payloads)


def decode(data: bytes, offset: int = 0) -> DecodedEntry:
    return decode_entry(data, offset, check_payloads=True)


def test_golden_bytes() -> None:
    assert make_entry(KIND_COMMANDS, [b"one", b"", b"three"]).hex() == GOLDEN_ENTRY
    assert make_entry(KIND_NO_OP, []).hex() == GOLDEN_NO_OP
    assert SEGMENT.encode().hex() == GOLDEN_SEGMENT
    assert encode_genesis("c", "broker-a", bytes(range(16)), MEMBERS).hex() == GOLDEN_GENESIS


def test_kinds_are_those_of_the_log() -> None:
    assert list(EntryKind) == [KIND_NO_OP, KIND_BATCHES, KIND_COMMANDS, KIND_GENESIS]


def test_an_entry_is_read_as_drawn() -> None:
    header, crc = frame_entry(KIND_COMMANDS, [b"abc", b"de"], **PLACE)
    entry = decode(b"before" + stamp_local(header, SALT, 4000) + b"abcde" + b"after", 6)
    assert dataclasses.asdict(entry.header) == {
        "header_crc": crc, "size": 72 + 16 + 5, "header_size": 88, "kind": KIND_COMMANDS,
        "payload_count": 2, "synced_position": 4000, "local_crc": entry.header.local_crc,
    } | PLACE  # fmt: skip
    assert entry.payloads == [b"abc", b"de"]
    assert entry.starts == [4096 + 88, 4096 + 91]
    assert entry.header.end_position == 4096 + 93
    assert entry.header.describe() == (
        "entry 7 term=3 commands=2 position=4096 size=93 time=1700000000000 "
        f"crc={crc:08x} previous=00000063"
    )


@untimed
@given(
    st.lists(st.binary(max_size=30), max_size=6),
    st.integers(1, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
)
def test_round_trip(payloads: list[bytes], index: int, position: int, previous_crc: int) -> None:
    data = make_entry(
        KIND_COMMANDS, payloads, index=index, position=position, previous_crc=previous_crc
    )
    entry = decode(data)
    assert entry.payloads == payloads
    assert entry.header.size == len(data)
    assert (entry.header.index, entry.header.position) == (index, position)
    assert entry.header.previous_crc == previous_crc


def test_a_batch_is_under_its_own_crc() -> None:
    batches = [make_batch(), make_batch(RICH[:1], stamp=None)]
    entry = decode(make_entry(KIND_BATCHES, batches))
    assert entry.payloads == batches
    with pytest.raises(ValueError, match="no batch"):
        frame_entry(KIND_BATCHES, [b"junk"], **PLACE)


@pytest.mark.parametrize("kind", [KIND_BATCHES, KIND_COMMANDS])
def test_one_flipped_bit_anywhere_is_refused(kind: int) -> None:
    data = make_entry(kind, [make_batch(RICH[:1]), make_batch(RICH[1:2])])
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            header = decode(bytes(damaged)).header
        except CorruptEntry:
            continue
        assert 56 <= bit // 8 < 68, "only the local bytes are not under the entry's CRCs"
        assert not check_local(header, SALT)


def test_the_header_alone_covers_the_payload_table() -> None:
    data = bytearray(make_entry(KIND_COMMANDS, [b"abc"]))
    assert parse_entry_header(data[:80]).payload_count == 1
    data[76] ^= 1
    with pytest.raises(CorruptEntry, match="header_crc"):
        parse_entry_header(data)


def test_a_truncated_entry_is_short() -> None:
    data = make_entry(KIND_COMMANDS, [b"abc", b"de"])
    for size in range(len(data)):
        with pytest.raises(ShortEntry):
            decode(data[:size])
    assert decode(data + b"next").payloads == [b"abc", b"de"]


def test_payloads_are_not_read_without_need() -> None:
    data = bytearray(make_entry(KIND_COMMANDS, [b"abc"]))
    data[-1] ^= 1
    assert decode_entry(data, check_payloads=False).payloads == [b"abb"]
    with pytest.raises(CorruptEntry, match="payload 0"):
        decode(bytes(data))


@untimed
@given(st.binary(max_size=300), st.integers(0, 20))
def test_garbage_is_corrupt_and_nothing_else_happens(garbage: bytes, offset: int) -> None:
    for prefix in (b"", b"DLE1", make_entry(KIND_COMMANDS, [b"abc"])[:ENTRY_HEADER_SIZE]):
        with pytest.raises(CorruptEntry):
            decode(prefix + garbage, offset + len(prefix) + 1)
        if prefix + garbage != make_entry(KIND_COMMANDS, [b"abc"]):
            with pytest.raises(CorruptEntry):
                decode(prefix + garbage)


def resealed(data: bytes, at: int, value: bytes) -> bytes:
    """Return the entry with bytes replaced and its header CRC right."""
    changed = bytearray(data)
    changed[at : at + len(value)] = value
    header_size = int.from_bytes(changed[12:14], "little")
    crc = crc32c(bytes(changed[72:header_size]), crc32c(bytes(changed[8:56])))
    changed[4:8] = crc.to_bytes(4, "little")
    return bytes(changed)


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (8, struct.pack("<I", ENTRY_SIZE_MAX + 1), "size"),
        (8, struct.pack("<I", 79), "size"),
        (8, struct.pack("<I", 84), "add up"),
        (12, struct.pack("<H", 72), "header_size"),
        (15, b"\4", "kind 4"),
        (16, bytes(8), "index 0"),
        (52, struct.pack("<I", 2), "header_size"),
        (68, b"\1", "reserved"),
        (72, struct.pack("<I", 4), "add up"),
    ],
)
def test_a_field_outside_its_limit_is_refused(at: int, value: bytes, reason: str) -> None:
    data = resealed(make_entry(KIND_COMMANDS, [b"abc"]), at, value)
    with pytest.raises(CorruptEntry, match=reason):
        decode(data + bytes(100))


def test_an_entry_of_a_later_version_is_told_from_damage() -> None:
    """Also one whose header is longer; without its CRC nothing is believed of it."""
    entry = make_entry(KIND_COMMANDS, [b"abc"])
    for newer in (resealed(entry, 14, b"\2"), resealed(entry, 12, struct.pack("<HB", 82, 3))):
        with pytest.raises(NewerEntry, match=r"version [23], this dledger knows 1"):
            decode(newer + bytes(100))
        for bit in range(8 * 8, 8 * 56):
            damaged = bytearray(newer)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(CorruptEntry) as caught:
                decode(bytes(damaged) + bytes(ENTRY_HEADER_SIZE_MAX))
            assert not isinstance(caught.value, NewerEntry)


def test_local_bytes_name_the_member_and_are_not_part_of_the_entry() -> None:
    header, crc = frame_entry(KIND_COMMANDS, [b"abc"], **PLACE)
    plain = parse_entry_header(header)
    assert (plain.synced_position, plain.local_crc) == (0, 0)
    assert not check_local(plain, SALT)
    stamped = parse_entry_header(stamp_local(header, SALT, 4000))
    assert stamped.header_crc == crc
    assert stamped.synced_position == 4000
    assert check_local(stamped, SALT)
    assert not check_local(stamped, b"another!")
    again = stamp_local(stamp_local(header, b"another!", 1), SALT, 4000)
    assert again == stamp_local(header, SALT, 4000)
    whole = stamp_local(header + b"abc", SALT, 4000)
    assert whole == again + b"abc"


def test_limits_of_an_entry() -> None:
    payloads = [b"x"] * ENTRY_PAYLOADS_MAX
    assert len(decode(make_entry(KIND_COMMANDS, payloads)).payloads) == ENTRY_PAYLOADS_MAX
    assert len(frame_entry(KIND_COMMANDS, payloads, **PLACE)[0]) == ENTRY_HEADER_SIZE_MAX
    for kind, refused_payloads, changes in (
        (KIND_COMMANDS, [*payloads, b"x"], {}),
        (KIND_COMMANDS, [bytes(MIB)] * 8, {}),
        (4, [], {}),
        (KIND_NO_OP, [], {"index": 0}),
        (KIND_NO_OP, [], {"term": -1}),
        (KIND_NO_OP, [], {"position": 2**64}),
    ):
        with pytest.raises(ValueError, match=r"payloads|bytes|range"):
            frame_entry(kind, refused_payloads, **(PLACE | changes))


def test_segment_header() -> None:
    data = SEGMENT.encode()
    assert len(data) == SEGMENT_HEADER_SIZE
    assert parse_segment_header(data + b"entries") == SEGMENT
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptEntry):
            parse_segment_header(damaged)
    with pytest.raises(ShortEntry):
        parse_segment_header(data[:-1])
    for changes in ({"group_id": b""}, {"salt": b""}, {"base_index": -1}, {"previous_crc": 2**32}):
        with pytest.raises(ValueError, match=next(iter(changes))):
            dataclasses.replace(SEGMENT, **changes).encode()


def test_a_segment_of_another_version_is_refused() -> None:
    data = bytearray(SEGMENT.encode())
    data[8] = 2
    data[4:8] = crc32c(bytes(data[8:])).to_bytes(4, "little")
    with pytest.raises(NewerEntry, match="version 2"):
        parse_segment_header(data)


def test_segment_names() -> None:
    assert segment_name(0) == "00000000000000000000.log"
    assert segment_name(2**64 - 1) == "18446744073709551615.log"
    assert parse_segment_name(segment_name(1 << 30)) == 1 << 30
    for name in ("1.log", "00000000000000000000", "00000000000000000000.idx", "x" * 20 + ".log",
                 "\u0660" * 20 + ".log", f"{1 << 64}.log"):  # fmt: skip
        assert parse_segment_name(name) is None
    with pytest.raises(ValueError, match="position"):
        segment_name(-1)


def test_genesis() -> None:
    payload = encode_genesis("cluster", "broker-a", bytes(range(16)), MEMBERS)
    expected = Genesis("cluster", "broker-a", bytes(range(16)), tuple(MEMBERS))
    assert parse_genesis(payload) == expected
    assert parse_genesis(memoryview(payload)) == expected
    for size in range(len(payload)):
        with pytest.raises(CorruptEntry):
            parse_genesis(payload[:size])
    with pytest.raises(CorruptEntry):
        parse_genesis(payload + b"x")


@untimed
@given(st.binary(max_size=100))
def test_garbage_is_no_genesis(garbage: bytes) -> None:
    for prefix in (b"", b"DLG1\1"):
        with pytest.raises(CorruptEntry):
            parse_genesis(prefix + garbage)


@pytest.mark.parametrize(
    "arguments",
    [
        ("", "g", bytes(16), MEMBERS),
        ("c", "g" * 121, bytes(16), MEMBERS),
        ("c", "g", bytes(15), MEMBERS),
        ("c", "g", bytes(16), []),
        ("c", "g", bytes(16), MEMBERS * 3),
        ("c", "g", bytes(16), [("n1", b"short")]),
        ("c", "g", bytes(16), [("", bytes(16))]),
    ],
)
def test_a_genesis_outside_its_limits_is_our_misuse(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"bytes|members|1\.\."):
        encode_genesis(*arguments)


def test_the_drawing_names_the_sizes_in_use() -> None:
    assert entry_format.__doc__ is not None
    assert f"{SEGMENT_HEADER_SIZE} bytes" in entry_format.__doc__
    assert f"{ENTRY_HEADER_SIZE} + 8 * payload_count" in entry_format.__doc__
