"""Frames of the native streams: golden bytes, round trips, refusals."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_proto.batch.codec import Record
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import DETAIL_SIZE_MAX, FRAME_ROWS_MAX, FRAME_SIZE_MAX, MIB
from dledger_proto.rpc.frames import (
    AnswerRow,
    AppendHeader,
    FetchFrame,
    FetchRow,
    RowOrigin,
    encode_answers,
    encode_append,
    encode_fetch,
    parse_answers,
    parse_append,
    parse_fetch,
    parse_fetches,
)
from tests.unit.proto.samples import make_batch, refused, untimed

SMALL = make_batch([Record(b"x")], stamp=None)
ROWS = [
    AnswerRow(7, Code.OK, base_offset=100, index=5, term=2),
    AnswerRow(8, Code.OK, duplicate=True, unsynced=True, base_offset=50, index=6, term=2),
    AnswerRow(9, Code.NOT_LEADER, detail="führt nicht", hint="127.0.0.1:9000"),
]
FETCHED = [
    FetchRow(1000, 1, 2, len(make_batch()), 1_700_000_000_000),
    FetchRow(1002, 0, 1, len(SMALL)),
]
PLACE: dict[str, Any] = {
    "assignment": 3, "min_offset": 10, "max_offset": 2000, "next_offset": 1003,
}  # fmt: skip

GOLDEN_APPEND = "444c46410101010088130000000000002900000000000000"
GOLDEN_ANSWERS = (
    "444c465201000300070000000000000000000000000000006400000000000000050000000000000002000000"
    "0000000008000000000000000000030000000000320000000000000006000000000000000200000000000000"
    "0900000000000000640000000c000e00ffffffffffffffff0000000000000000000000000000000066c3bc68"
    "7274206e696368743132372e302e302e313a39303030"
)
GOLDEN_FETCH = (
    "444c46460100030000000000020000000a00000000000000d007000000000000eb03000000000000e8030000"
    "000000000100000002000000210100000068e5cf8b010000ea03000000000000000000000100000085000000"
    "0000000000000000"
)
GOLDEN_FETCH_ERROR = (
    "444c46460100030031010a00000000000a00000000000000d007000000000000eb030000000000006e6f2074"
    "6f7069632078"
)


def append_frame() -> bytes:
    return encode_append([SMALL], 41, 5000, one_way=True)


def fetch_frame() -> bytes:
    return encode_fetch(FETCHED, [make_batch(), SMALL], **PLACE)


def fetch_error() -> bytes:
    return encode_fetch([], [], code=Code.TOPIC_NOT_FOUND, detail="no topic x", **PLACE)


def test_origins_travel_with_their_rows() -> None:
    origins = {
        0: RowOrigin(b"t" * 16, 7, 55, 3, "é" * 2_000),
        1: RowOrigin(b"u" * 16, 0, 0, 1, ""),
    }
    frame = encode_fetch(FETCHED, [make_batch(), SMALL], origins=origins, **PLACE)
    found = parse_fetch(frame)
    assert found.origins == {0: origins[0]._replace(error="é" * 512), 1: origins[1]}
    assert [bytes(each) for each in found.batches] == [make_batch(), SMALL]
    assert parse_fetch(fetch_frame()).origins is None
    refused(lambda: parse_fetch(frame[:130]))


def test_a_message_of_several_frames_gives_each_a_buffer_of_its_own() -> None:
    """Who keeps one queue's batches does not keep the whole message."""
    one, other = fetch_frame(), fetch_error()
    assert parse_fetches(one) == [parse_fetch(one)]
    first, second, third = parse_fetches(one + other + one)
    assert (first, second, third) == (parse_fetch(one), parse_fetch(other), parse_fetch(one))
    kept = [frame.batches[0].obj for frame in (first, third)]
    assert kept[0] is not kept[1]
    assert [memoryview(each).nbytes for each in kept] == [sum(len(b) for b in first.batches)] * 2
    assert parse_fetches(one)[0].batches[0].obj is one
    refused(lambda: parse_fetches(one + b"x"))
    refused(lambda: parse_fetches(one + other[:-1]))
    refused(lambda: parse_fetches(b""))
    refused(lambda: parse_fetch(one + other))


def test_golden_bytes() -> None:
    assert append_frame().removesuffix(SMALL).hex() == GOLDEN_APPEND
    assert encode_answers(ROWS).hex() == GOLDEN_ANSWERS
    assert fetch_frame().removesuffix(make_batch() + SMALL).hex() == GOLDEN_FETCH
    assert fetch_error().hex() == GOLDEN_FETCH_ERROR


def test_append_round_trip() -> None:
    batches = [make_batch(), SMALL, make_batch()]
    header, parsed = parse_append(encode_append(batches, 2**64 - 3, 2**32 - 1))
    assert header == AppendHeader(2**64 - 3, 3, 2**32 - 1, one_way=False)
    assert parsed == batches
    assert parse_append(append_frame())[0].one_way


def test_answers_round_trip() -> None:
    assert parse_answers(encode_answers(ROWS)) == ROWS
    many = [AnswerRow(i, base_offset=i) for i in range(FRAME_ROWS_MAX)]
    assert parse_answers(memoryview(encode_answers(many))) == many


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_answers_carry_any_numbers_in_the_order_given(numbers: list[int]) -> None:
    rows = [AnswerRow(number) for number in numbers]
    assert parse_answers(encode_answers(rows)) == rows


def test_an_answer_as_an_error() -> None:
    assert ROWS[0].error() is None
    error = ROWS[2].error()
    assert error is not None
    assert (error.code, error.detail, error.hint) == (
        Code.NOT_LEADER, "führt nicht", "127.0.0.1:9000",
    )  # fmt: skip


def test_fetch_round_trip() -> None:
    batches = [make_batch(), SMALL]
    expected = FetchFrame(3, Code.OK, "", 10, 2000, 1003, FETCHED, [memoryview(b) for b in batches])
    assert parse_fetch(fetch_frame()) == expected
    joined = encode_fetch(FETCHED, [b"".join(batches)], **PLACE)
    assert joined == fetch_frame(), "a run of log bytes is as good as single batches"
    assert parse_fetch(fetch_error()) == FetchFrame(
        3, Code.TOPIC_NOT_FOUND, "no topic x", 10, 2000, 1003, [], []
    )


def test_long_sentences_are_cut_between_characters() -> None:
    long = "ü" * DETAIL_SIZE_MAX
    row = parse_answers(encode_answers([AnswerRow(1, Code.BUSY, detail="a" + long, hint=long)]))[0]
    assert row.detail == "a" + "ü" * (DETAIL_SIZE_MAX // 2 - 1)
    assert row.hint == "ü" * (DETAIL_SIZE_MAX // 2)
    frame = parse_fetch(encode_fetch([], [], code=Code.BUSY, detail=long, **PLACE))
    assert frame.detail == "ü" * (DETAIL_SIZE_MAX // 2)
    lone = parse_answers(encode_answers([AnswerRow(1, Code.BUSY, detail="\ud800")]))[0]
    assert lone.detail == "?"


def test_a_code_of_a_newer_member_is_an_unknown_outcome() -> None:
    frame = bytearray(encode_answers(ROWS[:1]))
    frame[16:18] = (999).to_bytes(2, "little")
    row = parse_answers(frame)[0]
    assert row.code is Code.UNKNOWN_OUTCOME
    assert "999" in row.detail
    fetched = bytearray(fetch_error())
    fetched[8:10] = (999).to_bytes(2, "little")
    assert parse_fetch(fetched).code is Code.UNKNOWN_OUTCOME


PARSERS: list[tuple[Callable[[Any], object], bytes]] = [
    (parse_append, append_frame()),
    (parse_answers, encode_answers(ROWS)),
    (parse_fetch, fetch_frame()),
    (parse_fetch, fetch_error()),
]


@pytest.mark.parametrize(("parse", "frame"), PARSERS)
def test_a_cut_or_longer_frame_is_refused(parse: Callable[[Any], object], frame: bytes) -> None:
    for size in range(len(frame)):
        refused(lambda size=size: parse(frame[:size]))  # type: ignore[misc]
    refused(lambda: parse(frame + b"\0"))


@pytest.mark.parametrize(("parse", "frame"), PARSERS)
def test_another_magic_version_or_size_is_refused(
    parse: Callable[[Any], object], frame: bytes
) -> None:
    refused(lambda: parse(b"X" + frame[1:]), Code.INVALID_ARGUMENT)
    refused(lambda: parse(frame[:4] + b"\3" + frame[5:]), Code.UNSUPPORTED_FORMAT)
    refused(lambda: parse(frame + bytes(FRAME_SIZE_MAX)), Code.INVALID_ARGUMENT)


@pytest.mark.parametrize(("parse", "frame"), PARSERS)
@untimed
@given(data=st.data())
def test_garbage_is_refused_and_nothing_else_happens(
    parse: Callable[[Any], object], frame: bytes, data: st.DataObject
) -> None:
    garbage = bytearray(frame[: data.draw(st.integers(0, len(frame)))])
    for _ in range(data.draw(st.integers(0, 4))):
        if garbage:
            garbage[data.draw(st.integers(0, len(garbage) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DledgerError):
        parse(bytes(garbage) + data.draw(st.binary(max_size=30)))


def numbered_to_the_end(frame: bytes) -> bytes:
    return frame[:16] + b"\xff" * 8 + frame[24:]


def test_the_last_number_of_all_is_one() -> None:
    header, _ = parse_append(numbered_to_the_end(append_frame()))
    assert header.first_number == 2**64 - 1


def changed(frame: bytes, at: int, value: int) -> bytes:
    copy = bytearray(frame)
    copy[at] = value
    return bytes(copy)


@pytest.mark.parametrize(
    "call",
    [
        lambda: parse_append(changed(append_frame(), 5, 2)),
        lambda: parse_append(changed(append_frame(), 6, 0)),
        lambda: parse_append(changed(append_frame(), 6, 2)),
        lambda: parse_append(changed(append_frame(), 12, 1)),
        lambda: parse_append(changed(append_frame(), 7, 255)),
        lambda: parse_append(numbered_to_the_end(encode_append([SMALL] * 2, 0, 0))),
        lambda: parse_answers(changed(encode_answers(ROWS), 6, 0)),
        lambda: parse_answers(changed(encode_answers(ROWS), 7, 255)),
        lambda: parse_fetch(changed(fetch_frame(), 13, 255)),
    ],
)
def test_a_field_outside_its_limit_is_refused(call: Callable[[], object]) -> None:
    refused(call, Code.INVALID_ARGUMENT)


@pytest.mark.parametrize(
    "call",
    [
        lambda: encode_append([], 0, 0),
        lambda: encode_append([SMALL] * (FRAME_ROWS_MAX + 1), 0, 0),
        lambda: encode_append([SMALL], -1, 0),
        lambda: encode_append([SMALL] * 2, 2**64 - 1, 0),
        lambda: encode_append([SMALL], 0, 2**32),
        lambda: encode_append([bytes(4 * MIB)] * 4, 0, 0),
        lambda: encode_answers([]),
        lambda: encode_answers([AnswerRow(1)] * (FRAME_ROWS_MAX + 1)),
        lambda: encode_fetch(FETCHED, [SMALL], **PLACE),
        lambda: encode_fetch([], [SMALL], **PLACE),
        lambda: encode_fetch([FetchRow(0, 0, 1, 0)] * (FRAME_ROWS_MAX + 1), [], **PLACE),
        lambda: encode_fetch([], [], **(PLACE | {"assignment": 2**16})),
        lambda: encode_fetch([FetchRow(0, 0, 1, 16 * MIB)], [bytes(16 * MIB)], **PLACE),
    ],
)
def test_our_own_misuse_is_a_value_error(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"batches|rows|number|bytes|u32"):
        call()


def test_rows_with_positions_are_a_form_of_their_own() -> None:
    """A reader that did not ask gets the old form; one that did gets where each batch lies."""
    rows = [row._replace(position=1_000_000 + k) for k, row in enumerate(FETCHED)]
    batches = [make_batch(), SMALL]
    old = encode_fetch(rows, batches, **PLACE)
    assert old == encode_fetch(FETCHED, batches, **PLACE)
    assert list(parse_fetch(old).rows) == FETCHED
    new = encode_fetch(rows, batches, with_positions=True, **PLACE)
    assert (old[4], new[4], len(new) - len(old)) == (1, 2, 16)
    found = parse_fetch(new)
    assert list(found.rows) == rows
    assert [bytes(batch) for batch in found.batches] == batches
    refused(lambda: parse_fetch(new[:4] + b"\x03" + new[5:]), Code.UNSUPPORTED_FORMAT)
    refused(lambda: parse_fetch(new[:4] + b"\x01" + new[5:]))
