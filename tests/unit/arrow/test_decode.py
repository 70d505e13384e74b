"""Decoding by columns gives what decoding record by record gives, or the same refusal.

Goal: no record, field or bit differs, whatever the batches and however they are cut. Method:
batches drawn by hypothesis, decoded by both; and by hand what a member could send that is wrong.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_client.arrow import COLUMNS, Decoder, Span, choose_columns, schema_of
from dledger_client.arrow import decode as decode_module
from dledger_proto.batch.codec import BATCH_HEADER_SIZE, Compression, ProducerStamp, Record
from dledger_proto.errors import Code, DledgerError
from tests.unit.arrow.oracle import SOURCE, plain_batch, rows_of, spans_of
from tests.unit.proto.samples import (
    BASE_TIME_MS,
    PRODUCER_ID,
    RICH,
    make_batch,
    refused,
    sealed,
    untimed,
    with_fields,
)

ALL = tuple(COLUMNS)

words = st.text(
    st.characters(codec="utf-8", exclude_categories=["Z", "C"], exclude_characters="|"),
    min_size=1,
    max_size=6,
)
records = st.builds(
    Record,
    body=st.binary(max_size=40),
    tag=st.one_of(st.just(""), words),
    keys=st.lists(words, max_size=3).map(tuple),
    properties=st.dictionaries(
        words.filter(lambda name: name not in {"TAGS", "KEYS"}), words, max_size=4
    ),
    time_ms=st.one_of(st.just(0), st.integers(BASE_TIME_MS - 1_000, BASE_TIME_MS + 1_000)),
)
stamps = st.one_of(
    st.none(),
    st.builds(
        ProducerStamp,
        st.just(PRODUCER_ID),
        st.integers(0, (1 << 32) - 1),
        st.integers(0, 1 << 50),
    ),
)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    return make_batch(
        draw(st.lists(records, min_size=1, max_size=6)),
        stamp=draw(stamps),
        base_number=draw(st.integers(0, (1 << 64) - 65_535)),
        compression=draw(st.sampled_from(Compression)),
    )


def decoded(
    spans: Sequence[Span], start: int, end: int, columns: Sequence[str] = ALL
) -> list[dict[str, Any]]:
    decoder = Decoder(SOURCE, columns, start, end)
    rows: list[dict[str, Any]] = []
    for batch in decoder.decode(spans):
        batch.validate(full=True)
        assert batch.schema.equals(schema_of(columns))
        rows += batch.to_pylist()
    assert decoder.next_offset == start + len(rows)
    for row in rows:
        if "properties" in row:
            row["properties"] = dict(row["properties"])
    return rows


def expected(spans: Sequence[Span], start: int, end: int) -> list[dict[str, Any]]:
    return [row for span in spans for row in rows_of(span, start, end)]


@untimed
@given(st.data(), st.lists(batches(), min_size=1, max_size=4))
def test_columns_equal_records(data: st.DataObject, found: list[bytes]) -> None:
    """Any batches, any part of them: the rows are those of the per-record reader."""
    spans = spans_of(found, base_offset=7)
    last = spans[-1].base_offset + spans[-1].record_count
    start = data.draw(st.integers(7, last))
    end = data.draw(st.integers(start, last + 3))
    assert decoded(spans, start, end) == expected(spans, start, end)


@untimed
@given(st.data(), batches())
def test_parts_of_batches_equal_records(data: st.DataObject, found: bytes) -> None:
    """A row may name any run of records of its batch."""
    (whole,) = spans_of([found])
    first = data.draw(st.integers(0, whole.record_count - 1))
    count = data.draw(st.integers(1, whole.record_count - first))
    span = whole._replace(base_offset=3, first_record=first, record_count=count)
    following = whole._replace(base_offset=3 + count, first_record=0, record_count=1)
    last = 3 + count + 1
    assert decoded([span, following], 3, last) == expected([span, following], 3, last)


@untimed
@given(batches(), st.integers(0, 10_000), st.integers(1, 255), st.booleans())
def test_damage_is_refused_or_equal(found: bytes, at: int, flip: int, is_sealed: bool) -> None:
    """One changed byte: refused by its CRC; with a right CRC refused, or read as by both."""
    broken = bytearray(found)
    broken[at % len(found)] ^= flip
    batch = sealed(broken) if is_sealed and len(broken) > 8 else bytes(broken)
    span = Span(0, 0, int.from_bytes(found[44:48], "little"), 1, memoryview(batch))
    try:
        mine: Any = decoded([span], 0, span.record_count)
    except DledgerError:
        return
    assert is_sealed, "a wrong CRC was not noticed"
    try:
        rows = rows_of(span, 0, span.record_count)
    except DledgerError:
        return  # the members' limits, which a reader need not repeat
    assert mine == rows


def test_each_column_alone() -> None:
    """A chosen column has the values that it has among all, in the order chosen."""
    spans = spans_of([make_batch(RICH), make_batch(RICH, stamp=None)])
    rows = expected(spans, 0, 6)
    for name in ALL:
        assert decoded(spans, 0, 6, [name]) == [{name: row[name]} for row in rows]
    pair = ("body", "queue_offset")
    assert decoded(spans, 0, 6, pair) == [{name: row[name] for name in pair} for row in rows]


def test_equal_names_the_last_wins() -> None:
    """As in the per-record reader."""
    twice = b"\1\0\1\0ab" + b"\1\0\1\0xy" + b"\1\0\1\0ac" + b"\4\0\1\0TAGS1" + b"\4\0\1\0TAGS2"
    batch = make_batch([Record(b"", "", (), {"n": "v" * (len(twice) - 5)})])
    at = batch.index(b"nvvv") - 4
    changed = sealed(batch[:at] + twice + batch[at + len(twice) :])
    spans = spans_of([changed])
    assert decoded(spans, 0, 1) == expected(spans, 0, 1)
    assert decoded(spans, 0, 1)[0]["properties"] == {"a": "c", "x": "y"}
    assert decoded(spans, 0, 1)[0]["tag"] == "2"


def test_portions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame of batches that decompress to much becomes several Arrow batches."""
    monkeypatch.setattr(decode_module, "PORTION_BYTES", 300_000)
    found = [plain_batch([b"x" * 100_000], compression=Compression.ZSTD) for _ in range(7)]
    decoder = Decoder(SOURCE, ["body"], 0, 7)
    sizes = [batch.num_rows for batch in decoder.decode(spans_of(found))]
    assert sizes == [2, 2, 2, 1]


def test_a_gap_is_refused_behind_what_is_sound() -> None:
    """Rows before the gap are handed out; `next_offset` says where to go on."""
    spans = spans_of([plain_batch([b"a", b"b"])]) + spans_of([plain_batch([b"d"])], base_offset=3)
    decoder = Decoder(SOURCE, ["body"], 0, 4)
    found = decoder.decode(spans)
    assert next(found).to_pylist() == [{"body": b"a"}, {"body": b"b"}]
    refused(lambda: next(found), Code.OFFSET_OUT_OF_RANGE)
    assert decoder.next_offset == 2
    assert not decoder.is_done


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"queue": 3}, Code.CORRUPT_BATCH),
        ({"topic_id": bytes(range(1, 17))}, Code.CORRUPT_BATCH),
        ({"version": 2}, Code.UNSUPPORTED_FORMAT),
        ({"required_flags": 2}, Code.UNSUPPORTED_FORMAT),
        ({"required_flags": 1}, Code.UNIMPLEMENTED),
    ],
)
def test_a_batch_of_another_place_or_form(change: dict[str, Any], code: Code) -> None:
    """What is not of this queue, or of a form that is not known, is never decoded."""
    batch = with_fields(make_batch(RICH), **change)
    span = Span(5, 0, 3, 1, memoryview(batch))
    error = refused(lambda: decoded([span], 5, 8), code)
    assert "orders/2" in error.detail


def test_a_row_of_more_records_than_its_batch() -> None:
    """Is a lie of the member."""
    span = Span(0, 1, 3, 1, memoryview(make_batch(RICH)))
    refused(lambda: decoded([span], 0, 3), Code.CORRUPT_BATCH)


def test_columns_that_do_not_add_up() -> None:
    """Sizes that point behind the batch are noticed before anything is read there."""
    batch = bytearray(make_batch(RICH))
    for column in (0, 1, 4):
        broken = bytearray(batch)
        broken[BATCH_HEADER_SIZE + 12 * column + 2] ^= 0x40
        span = Span(0, 0, 3, 1, memoryview(sealed(broken)))
        error = refused(partial(decoded, [span], 0, 3), Code.UNREADABLE_BATCH)
        assert "adds up" in error.detail


def test_columns_are_chosen_by_name() -> None:
    """A wrong name is answered with the nearest; a name twice, or none, is refused."""
    assert "properties" not in choose_columns()
    assert choose_columns(include_properties=True)[-1] == "properties"
    assert choose_columns(["body"], include_properties=True) == ("body", "properties")
    error = refused(lambda: choose_columns(["queue_ofset"]), Code.INVALID_ARGUMENT)
    assert "'queue_offset'" in error.detail
    refused(lambda: choose_columns(["body", "body"]), Code.INVALID_ARGUMENT)
    refused(lambda: choose_columns([]), Code.INVALID_ARGUMENT)
