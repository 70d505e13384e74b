"""Readers and offsets whose records are compacted: they pass over these, and over nothing else.

Goal: whatever is gone, and however frames are cut, a reader hands out exactly what is left, and a
record that a member leaves out without a word is an error. Small enough to catch known bugs with.
Method: frames as a member encodes them, with rows of size 0.
"""

import random
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_client._core.consumer import actions as fetch
from dledger_client._core.consumer.core import ConsumerCore
from dledger_client._core.group.dispatch import Dispatcher
from dledger_client._core.group.flow import FlowLimits
from dledger_client._core.group.progress import Range
from dledger_client._core.group.queues import HeldQueue, QueueState
from dledger_client._core.members import MemberChoice
from dledger_client._core.routes import RouteTable
from dledger_client.arrow import Decoder, ExpectedQueue
from dledger_client.arrow import Span as Columns
from dledger_client.errors import error_of
from dledger_client.export import ExportCode, ExportError, upkeep
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.layout import Piece
from dledger_client.export.manifests import history
from dledger_client.export.planning import MIB, Options
from dledger_client.export.run import export_once
from dledger_client.export.source import Compacted
from dledger_client.records import RecordBatch
from dledger_proto.batch.codec import Record, encode_batch
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.frames import FetchFrame, FetchRow, encode_fetch, parse_fetch
from dledger_proto.v1 import routes_pb2
from tests.unit.client.model_cluster import ModelGroup, topic_id, topic_message
from tests.unit.export.fakes import FakeLog, HereEngine, QuickDisk
from tests.unreadable import compressed, with_bad_bodies

PLACE = ("t", 0)
Span = tuple[int, int, bool]
"""Offset, records, whether they are gone."""


def batch_of(first: int, count: int) -> bytes:
    """Return the batch of the records at some offsets; each body is its offset."""
    records = [Record(b"%d" % offset) for offset in range(first, first + count)]
    return encode_batch(
        records, topic_id=topic_id("t"), queue=0, stamp=None, base_number=0, base_time_ms=1
    )


def frame_of(spans: Sequence[Span], *, minimum: int = 0) -> FetchFrame:
    """Return what a member sends of some spans."""
    batches = [b"" if gone else batch_of(first, count) for first, count, gone in spans]
    rows = [
        FetchRow(first, 0, count, len(batch))
        for (first, count, _), batch in zip(spans, batches, strict=True)
    ]
    end = spans[-1][0] + spans[-1][1] if spans else minimum
    return parse_fetch(
        encode_fetch(
            rows, batches, assignment=0, min_offset=minimum, max_offset=1_000, next_offset=end
        )
    )


def make_core(*, fail_on_unreadable: bool = True) -> ConsumerCore:
    routes = RouteTable()
    group = ModelGroup("a", ["a0", "a1", "a2"])
    topics = [topic_message("t", [("a", 1)])]
    routes.apply(
        routes_pb2.RoutesReply(full=True, cluster="c", groups=[group.route()], topics=topics)
    )
    return ConsumerCore(
        routes, MemberChoice(), random.Random(1), prefer="leader", buffer_bytes=1 << 20,
        fail_on_unreadable=fail_on_unreadable,
    )  # fmt: skip


def opened(core: ConsumerCore) -> fetch.OpenFetch:
    core.pump(0.0)
    (found,) = [each for each in core.take_actions() if isinstance(each, fetch.OpenFetch)]
    return found


def start(core: ConsumerCore, offset: int = 0) -> int:
    core.assign(PLACE, topic_id("t"), "a", offset)
    return opened(core).stream


def told_of(runs: Sequence[RecordBatch]) -> list[tuple[int, int, int]]:
    """Return offset, records and `gone_before` of runs."""
    return [(run.base_offset, run.count, run.gone_before) for run in runs]


# Consumers.


def test_a_run_tells_how_many_offsets_before_it_are_gone() -> None:
    core = make_core()
    stream = start(core, 3)
    core.frame(stream, frame_of([(0, 5, True), (5, 2, True)]), 0.0)
    read = core.read(PLACE)
    assert (read.position, read.fetch_at) == (3, 7)
    assert not core.buffer.has_news
    core.frame(stream, frame_of([(5, 4, True), (9, 3, False), (12, 2, False)]), 0.0)
    assert told_of(core.buffer.take(1)) == [(9, 1, 6)]
    assert told_of(core.buffer.take(9)) == [(10, 2, 0), (12, 2, 0)]
    assert (read.position, read.fetch_at) == (14, 14)


def test_a_new_stream_goes_on_behind_what_is_gone() -> None:
    core = make_core()
    stream = start(core)
    core.frame(stream, frame_of([(0, 5, True)]), 0.0)
    core.stream_down(stream, error_of(Code.UNAVAILABLE), 0.0)
    again = opened(core)
    assert again.wanted[0].offset == 5
    core.frame(again.stream, frame_of([(5, 1, False)]), 0.0)
    assert told_of(core.buffer.take(9)) == [(5, 1, 5)]


def test_a_seek_a_loss_and_a_new_assignment_forget_what_is_gone() -> None:
    for how in ("seek", "loss", "assign", "give up"):
        core = make_core()
        core.frame(start(core), frame_of([(0, 5, True)]), 0.0)
        at = 20
        if how == "seek":
            core.seek(PLACE, at)
        elif how == "loss":
            core.continue_at(PLACE, at)
        elif how == "assign":
            core.assign(PLACE, topic_id("t"), "a", at)
        else:
            core.give_up(PLACE)
            core.fetch_again(PLACE)
            at = 0
        again = opened(core)
        assert again.wanted[0].offset == at, how
        core.frame(again.stream, frame_of([(at, 1, False)]), 0.0)
        assert told_of(core.buffer.take(9)) == [(at, 1, 0)], how


def test_what_is_gone_is_kept_when_a_member_was_only_behind() -> None:
    core = make_core()
    stream = start(core)
    core.frame(stream, frame_of([(0, 5, True)]), 0.0)
    refused = FetchFrame(0, Code.OFFSET_OUT_OF_RANGE, "told", 0, 3, 0, [], [])
    core.frame(stream, refused, 0.0)
    core.continue_at(PLACE, 5)
    assert core.read(PLACE).position == 0
    core.frame(opened(core).stream, frame_of([(5, 1, False)]), 0.0)
    assert told_of(core.buffer.take(9)) == [(5, 1, 5)]


def test_what_is_gone_before_records_that_are_passed_over_is_told_with_them() -> None:
    core = make_core(fail_on_unreadable=False)
    bad = with_bad_bodies(compressed(topic_id("t"), 0, 3))
    rows = [FetchRow(0, 0, 5, 0), FetchRow(5, 0, 3, len(bad))]
    views = [memoryview(b""), memoryview(bad)]
    core.frame(start(core), FetchFrame(0, Code.OK, "", 0, 99, 8, rows, views), 0.0)
    assert core.buffer.take(9) == []
    (told,) = [each for each in core.take_actions() if isinstance(each, fetch.TellUnreadable)]
    assert (told.what.start, told.what.end, told.gone_before) == (5, 8, 5)


def test_a_record_that_is_left_out_is_no_compaction() -> None:
    for spans in ([(1, 4, True), (5, 1, False)], [(0, 2, True), (3, 1, False)]):
        core = make_core()
        core.frame(start(core), frame_of(spans), 0.0)
        assert core.buffer.take(9) == [], spans
        assert opened(core).address != "a0:1", "another member is asked"


@st.composite
def queues(draw: st.DrawFn) -> list[Span]:
    """Return the rows of a queue; gone rows may follow one another."""
    at = draw(st.integers(0, 5))
    spans: list[Span] = []
    for count, gone in draw(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1)):
        spans.append((at, count, gone))
        at += count
    return spans


def left_of(spans: Sequence[Span], start: int = 0, end: int = 1_000) -> list[int]:
    """Return the offsets whose records are left."""
    return [
        offset
        for first, count, gone in spans
        if not gone
        for offset in range(first, first + count)
        if start <= offset < end
    ]


@given(spans=queues(), data=st.data())
def test_a_consumer_hands_out_exactly_what_is_left(spans: list[Span], data: st.DataObject) -> None:
    """Frames begin in the middle of rows and repeat them, as when a stream begins anew."""
    minimum, end = spans[0][0], spans[-1][0] + spans[-1][1]
    begin = data.draw(st.integers(minimum, end - 1))
    core = make_core()
    stream = start(core, begin)
    read = core.read(PLACE)
    handed_out: list[RecordBatch] = []
    while read.fetch_at < end:
        if data.draw(st.booleans()):
            core.stream_down(stream, error_of(Code.UNAVAILABLE), 0.0)
            core.tick(60.0)
            (found,) = [x for x in core.take_actions() if isinstance(x, fetch.OpenFetch)]
            assert found.wanted[0].offset == read.fetch_at
            stream = found.stream
        at = next(k for k, each in enumerate(spans) if sum(each[:2]) > read.fetch_at)
        low = data.draw(st.integers(0, at))
        high = data.draw(st.integers(at + 1, len(spans)))
        core.frame(stream, frame_of(spans[low:high], minimum=minimum), 60.0)
        handed_out += core.buffer.take(data.draw(st.integers(1, 9)))
    while more := core.buffer.take(9):
        handed_out += more
    assert read.error is None
    assert not [x for x in core.take_actions() if isinstance(x, fetch.FindOffset)]
    offsets = [int(record.body) for run in handed_out for record in run]
    assert offsets == [record.offset for run in handed_out for record in run]
    assert offsets == left_of(spans, begin)
    gone_ends = [(run.base_offset - run.gone_before, run.base_offset) for run in handed_out]
    ends = [begin, *(run.next_offset for run in handed_out)]
    assert [each[0] for each in gone_ends] == ends[:-1], "each gap is told, and nothing else"


@given(spans=queues(), data=st.data())
def test_a_consumer_takes_no_row_that_is_missing_for_compaction(
    spans: list[Span], data: st.DataObject
) -> None:
    missing = data.draw(st.integers(0, len(spans) - 1))
    minimum, at = spans[0][0], spans[missing][0]
    core = make_core()
    stream = start(core, minimum)
    core.frame(stream, frame_of(spans[:missing] + spans[missing + 1 :], minimum=minimum), 0.0)
    assert core.read(PLACE).fetch_at == at
    offsets = [record.offset for run in core.buffer.take(1_000) for record in run]
    assert offsets == left_of(spans, end=at)


# By columns.


@given(spans=queues(), data=st.data())
def test_columns_are_exactly_what_is_left_of_a_range(
    spans: list[Span], data: st.DataObject
) -> None:
    low, high = spans[0][0], spans[-1][0] + spans[-1][1]
    begin = data.draw(st.integers(low, high - 1))
    end = data.draw(st.integers(begin + 1, high))
    decoder = Decoder(ExpectedQueue("t", topic_id("t"), 0), ["queue_offset", "body"], begin, end)
    found: list[int] = []
    while not decoder.is_done:
        at = next(k for k, each in enumerate(spans) if sum(each[:2]) > decoder.next_offset)
        first = data.draw(st.integers(0, at))
        last = data.draw(st.integers(at + 1, len(spans)))
        frame = frame_of(spans[first:last])
        told = [
            Columns(row.base_offset, row.first_record, row.record_count, 1, batch)
            for row, batch in zip(frame.rows, frame.batches, strict=True)
        ]
        for batch in decoder.decode(told):
            found += batch.column("queue_offset").to_pylist()
            assert batch.column("body").to_pylist() == [
                b"%d" % each for each in found[-batch.num_rows :]
            ]
    assert found == left_of(spans, begin, end)
    assert (decoder.next_offset, decoder.gone) == (end, end - begin - len(found))


def test_what_was_gone_is_counted_when_it_is_passed_over() -> None:
    """A member that is behind has the records still: who goes on there gets them."""
    decoder = Decoder(ExpectedQueue("t", topic_id("t"), 0), ["body"], 0, 4)
    batch = memoryview(batch_of(0, 1))
    with pytest.raises(DledgerError, match="offset 3 came instead of 2"):
        list(decoder.decode([Columns(0, 0, 1, 1, batch), Columns(1, 0, 1, 1, memoryview(b"")),
                             Columns(3, 0, 1, 1, batch)]))  # fmt: skip
    assert (decoder.next_offset, decoder.gone) == (1, 0)
    assert [
        each.num_rows for each in decoder.decode([Columns(1, 0, 3, 1, memoryview(batch_of(1, 3)))])
    ]
    assert (decoder.is_done, decoder.gone) == (True, 0)


# By exports.


class Lossy(FakeLog):
    """Leaves out records without a word."""

    def read(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch | Compacted]:
        for batch in super().read(piece, columns):
            if not isinstance(batch, Compacted):
                yield batch


def test_what_a_source_leaves_out_without_a_word_is_in_no_file() -> None:
    gone = {0: frozenset({3})}
    with tempfile.TemporaryDirectory() as made:
        storage = ExportStorage(Path(made) / "lake", QuickDisk())
        options = Options("orders", file_bytes=MIB)
        with pytest.raises(ExportError, match="9 rows and 0 offsets whose records are compacted"):
            export_once(storage, Lossy({0: 10}, gone=gone), HereEngine(), options, lambda: 1)
        assert history.last_number(storage) == -1
        export_once(storage, FakeLog({0: 10}, gone=gone), HereEngine(), options, lambda: 1)
        found = upkeep.verify(storage, Lossy({0: 10}, gone={0: frozenset({3, 4})}))
        assert [each.code for each in found.problems] == [ExportCode.WRONG_ROWS]


# Consumer groups.


def claim() -> HeldQueue:
    return HeldQueue(PLACE, topic_id("t"), "a", 1, QueueState.SERVING)


def dispatcher(*, is_ordered: bool) -> Dispatcher:
    return Dispatcher(
        key_of=None, is_ordered=is_ordered, batch_size=1, listener_seconds=10.0,
        limits=FlowLimits(),
    )  # fmt: skip


def test_the_floor_of_a_group_moves_over_what_is_gone() -> None:
    for is_ordered in (False, True):
        jobs, held = dispatcher(is_ordered=is_ordered), claim()
        jobs.start(held)
        core = make_core()
        spans = [(0, 3, True), (3, 1, False), (4, 6, True), (10, 1, False)]
        core.frame(start(core), frame_of(spans), 0.0)
        for run in core.buffer.take(99):
            jobs.add(held, run, 0.0)
        assert (held.progress.floor, held.progress.ranges()) == (3, [Range(4, 10)])
        for floor in (10, 11):
            job = jobs.next(0.0)
            assert job is not None
            jobs.succeeded(job, 0.0)
            assert held.progress.floor == floor
        assert jobs.next(0.0) is None, "no listener is called for what is gone"


def test_what_is_gone_before_a_part_is_done_once() -> None:
    """Part of a run was done by an earlier claim."""
    jobs, held = dispatcher(is_ordered=False), claim()
    held.progress.done(5, 7)
    jobs.start(held)
    core = make_core()
    core.frame(start(core), frame_of([(0, 5, True), (5, 3, False)]), 0.0)
    for run in core.buffer.take(99):
        jobs.add(held, run, 0.0)
    assert held.progress.floor == 7
    job = jobs.next(0.0)
    assert job is not None
    assert [record.offset for record in job.records] == [7]


def test_a_run_keeps_what_it_tells_when_it_is_cut() -> None:
    core = make_core()
    core.frame(start(core), frame_of([(0, 5, True), (5, 6, False)]), 0.0)
    (run,) = core.buffer.take(99)
    parts = [run.part(5, 7), run.part(7, 9), run.part(9, 11), *run.split(2)]
    assert told_of(parts) == [(5, 2, 5), (7, 2, 0), (9, 2, 0), (5, 2, 5), (7, 4, 0)]
    assert all(a.next_offset == b.base_offset for a, b in pairwise(parts[:3]))
