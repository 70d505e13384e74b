"""A batch that nobody can decode in a range that is read: refused at once, or left out and told.

Method: small servers on loopback, as in `test_reader.py`.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from dledger_client.errors import CorruptData, UnreadableData
from dledger_client.export.cluster_source import ClusterRanges
from dledger_client.export.layout import Piece
from dledger_client.export.source import Compacted, RangeUnreadable
from dledger_client.reading import Hold, Origin, Range, RangeReader
from dledger_client.reading.left import LeftMembers
from dledger_client.reading.reader import BAD_ANSWERS_MAX
from dledger_client.unreadable import Unreadable
from dledger_proto.rpc.frames import FetchRow, encode_fetch
from tests.unit.proto.samples import TOPIC_ID
from tests.unit.reading.test_reader import members
from tests.unreadable import compressed, with_bad_bodies

COLUMNS = ("queue_offset", "body")
SOUND = compressed(TOPIC_ID, 2, 3)
BAD = with_bad_bodies(SOUND)


def frame(*batches: bytes) -> bytes:
    rows = [FetchRow(3 * at, 0, 3, len(batch)) for at, batch in enumerate(batches)]
    end = 3 * len(batches)
    return encode_fetch(rows, batches, assignment=0, min_offset=0, max_offset=end, next_offset=end)


def range_of(batches: int) -> Range:
    return Range("t", TOPIC_ID, 2, "g", 0, 3 * batches, 100)


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [at for batch in batches for at in batch.column("queue_offset").to_pylist()]


def test_it_is_refused_at_once_and_says_what_to_do() -> None:
    """No other member is asked: all have the same bytes."""
    with (
        members(frame(SOUND, BAD, SOUND), frame(SOUND, SOUND, SOUND)) as origin,
        RangeReader(origin, COLUMNS, LeftMembers()) as opened,
    ):
        read = opened.read(range_of(3))
        assert next(read).num_rows == 3
        with pytest.raises(UnreadableData) as caught:
            next(read)
        assert opened.gaps == []
    told = str(caught.value)
    assert "t/2 of group g: offsets 3 to 5, 3 records, cannot be decoded: " in told
    assert "failOnUnreadable=false" in told


def test_it_is_left_out_where_that_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    """Also in the middle of what is wanted, and at both ends; each is told."""
    wanted = replace(range_of(4), start=1, end=11)
    with members(frame(BAD, SOUND, BAD, BAD)) as origin:
        accepting = replace(origin, fail_on_unreadable=False)
        with RangeReader(accepting, COLUMNS, LeftMembers()) as opened:
            assert offsets(opened.read(wanted)) == [3, 4, 5]
            found = [(gap.start, gap.end, isinstance(gap, Unreadable)) for gap in opened.gaps]
    assert found == [(1, 3, True), (6, 9, True), (9, 11, True)]
    told = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert len(told) == 3
    assert "t/2 of group g: offsets 1 to 2, 2 records, cannot be decoded" in told[0]


def test_damage_is_read_from_another_member_whatever_is_accepted() -> None:
    """It is not what the producer sent (I15)."""
    damaged = SOUND[:-8] + b"nonsense"
    with members(frame(SOUND, damaged), frame(SOUND, SOUND)) as origin:
        accepting = replace(origin, fail_on_unreadable=False)
        with RangeReader(accepting, COLUMNS, LeftMembers()) as opened:
            assert offsets(opened.read(range_of(2))) == [*range(6)]
            assert opened.gaps == []
    with members(*[frame(damaged)] * BAD_ANSWERS_MAX) as origin:
        accepting = replace(origin, fail_on_unreadable=False)
        with RangeReader(accepting, COLUMNS, LeftMembers()) as opened:
            with pytest.raises(CorruptData) as caught:
                list(opened.read(range_of(1)))
            assert not isinstance(caught.value, UnreadableData)
            assert opened.gaps == []


def ranges(origin: Origin) -> ClusterRanges:
    accepting = replace(origin, fail_on_data_loss=False, fail_on_unreadable=False)
    return ClusterRanges("t", TOPIC_ID, {2: "g"}, accepting, {2: Hold("export", 0, 60_000)})


@pytest.mark.parametrize(
    ("batches", "rows", "bad"),
    [
        ([SOUND, BAD, BAD, SOUND], 3, (3, 9)),
        ([BAD, SOUND, BAD], 0, (0, 3)),
        ([SOUND, BAD, BAD], 3, (3, 9)),
    ],
)
def test_an_exports_task_hears_of_all_that_follow_one_another(
    batches: Sequence[bytes], rows: int, bad: tuple[int, int]
) -> None:
    """Behind the rows before them: what is yielded is the beginning of the range."""
    piece = Piece(2, 0, 3 * len(batches), "", 100)
    with members(frame(*batches)) as origin:
        read = ranges(origin).read(piece, COLUMNS)
        if rows:
            first = next(read)
            assert not isinstance(first, Compacted)
            assert first.column("queue_offset").to_pylist() == [*range(rows)]
        with pytest.raises(RangeUnreadable) as caught:
            next(read)
    assert (caught.value.what.start, caught.value.what.end) == bad
    assert caught.value.what.group == "g"
