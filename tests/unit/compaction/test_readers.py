"""Readers pass over what compaction deleted, and still take any other gap for a loss."""

import itertools
import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_client._core.consumer import actions as fetch
from dledger_client._core.consumer.core import ConsumerCore
from dledger_client._core.group.progress import Progress
from dledger_client._core.members import MemberChoice
from dledger_client._core.routes import RouteTable
from dledger_client.arrow.decode import Decoder, ExpectedQueue, Span
from dledger_client.records import RecordBatch
from dledger_proto.batch.codec import Record, encode_batch
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.frames import FetchFrame, FetchRow, encode_fetch, parse_fetch
from dledger_proto.v1 import routes_pb2
from tests.unit.client.model_cluster import ModelGroup, topic_id, topic_message

PLACE = ("t", 0)


class Part(NamedTuple):
    """Offsets of a queue: those of a batch, or gone."""

    records: int
    is_gone: bool


parts = st.lists(st.builds(Part, st.integers(1, 5), st.booleans()), min_size=1, max_size=12)


def batch(first: int, count: int) -> bytes:
    records = [Record(b"%d" % offset) for offset in range(first, first + count)]
    return encode_batch(
        records, topic_id=topic_id("t"), queue=0, stamp=None, base_number=0, base_time_ms=1
    )


def rows_of(queue: Sequence[Part]) -> tuple[list[FetchRow], list[bytes], list[int]]:
    """Return the rows of a queue, their batches, and the offsets that are left."""
    rows: list[FetchRow] = []
    batches: list[bytes] = []
    left: list[int] = []
    at = 0
    for count, is_gone in queue:
        data = b"" if is_gone else batch(at, count)
        rows.append(FetchRow(at, 0, count, len(data)))
        batches.append(data)
        if not is_gone:
            left += range(at, at + count)
        at += count
    return rows, batches, left


def frame(rows: Sequence[FetchRow], batches: Sequence[bytes]) -> FetchFrame:
    """Return a frame as a member sends it."""
    end = rows[-1].base_offset + rows[-1].record_count
    return parse_fetch(
        encode_fetch(rows, batches, assignment=0, min_offset=0, max_offset=999, next_offset=end)
    )


def consumer(offset: int) -> tuple[ConsumerCore, int]:
    """Return a core that reads from an offset, and its stream."""
    routes = RouteTable()
    group = ModelGroup("a", ["a0"])
    routes.apply(
        routes_pb2.RoutesReply(
            full=True, cluster="c", groups=[group.route()],
            topics=[topic_message("t", [("a", 2)])],
        )
    )  # fmt: skip
    core = ConsumerCore(
        routes, MemberChoice(), random.Random(1), prefer="leader", buffer_bytes=1 << 20
    )
    core.assign(PLACE, topic_id("t"), "a", offset)
    core.pump(0.0)
    (opened,) = [each for each in core.take_actions() if isinstance(each, fetch.OpenFetch)]
    return core, opened.stream


def take(core: ConsumerCore, count: int, progress: Progress, seen: list[int]) -> None:
    """Take records, and be done with them."""
    for run in core.buffer.take(count):
        assert isinstance(run, RecordBatch)
        seen += [int(record.body) for record in run]
        if run.gone_before:
            progress.done(run.base_offset - run.gone_before, run.base_offset)
        for first, end in progress.take(run.base_offset, run.next_offset):
            progress.done(first, end)


@given(parts, st.data())
def test_a_consumer_gets_what_is_left_and_its_floor_moves_over_the_rest(
    queue: list[Part], data: st.DataObject
) -> None:
    rows, batches, left = rows_of(queue)
    end = rows[-1].base_offset + rows[-1].record_count
    start = data.draw(st.integers(0, end))
    core, stream = consumer(start)
    progress, seen = Progress(start), list[int]()
    at = next((k for k, row in enumerate(rows) if row.base_offset + row.record_count > start), 99)
    while at < len(rows):
        stop = data.draw(st.integers(at + 1, len(rows)))
        core.frame(stream, frame(rows[at:stop], batches[at:stop]), 0.0)
        take(core, data.draw(st.integers(0, 4)), progress, seen)
        at = stop
    while len(core.read(PLACE).buffer):
        take(core, data.draw(st.integers(1, 4)), progress, seen)
    assert core.read(PLACE).error is None
    assert core.read(PLACE).bad_frames == 0
    assert core.read(PLACE).fetch_at == max(end, start)
    assert seen == [offset for offset in left if offset >= start]
    if seen:
        assert progress.floor == seen[-1] + 1
        assert progress.range_count == 0


def test_offsets_that_no_row_names_are_a_loss() -> None:
    core, stream = consumer(0)
    core.frame(stream, frame([FetchRow(2, 0, 1, 0), FetchRow(3, 0, 1, len(batch(3, 1)))],
                             [b"", batch(3, 1)]), 0.0)  # fmt: skip
    assert core.buffer.take(9) == []
    assert core.read(PLACE).bad_frames == 1


def test_a_seek_forgets_what_is_gone_before() -> None:
    core, stream = consumer(0)
    core.frame(stream, frame([FetchRow(0, 0, 5, 0)], [b""]), 0.0)
    core.seek(PLACE, 5)
    core.pump(0.0)
    (opened,) = [each for each in core.take_actions() if isinstance(each, fetch.OpenFetch)]
    core.frame(opened.stream, frame([FetchRow(5, 0, 1, len(batch(5, 1)))], [batch(5, 1)]), 0.0)
    (run,) = core.buffer.take(9)
    assert (run.base_offset, run.gone_before) == (5, 0)


def test_a_run_keeps_what_is_gone_before_its_first_record() -> None:
    core, stream = consumer(0)
    rows = [FetchRow(0, 0, 5, 0), FetchRow(5, 0, 4, len(batch(5, 4)))]
    core.frame(stream, frame(rows, [b"", batch(5, 4)]), 0.0)
    (run,) = core.buffer.take(9)
    first, rest = run.split(1)
    assert (first.gone_before, rest.gone_before) == (5, 0)
    assert (run.part(5, 7).gone_before, run.part(6, 7).gone_before) == (5, 0)


@given(parts, st.data())
def test_a_bulk_reader_gets_what_is_left(queue: list[Part], data: st.DataObject) -> None:
    rows, batches, left = rows_of(queue)
    last = rows[-1].base_offset + rows[-1].record_count
    start = data.draw(st.integers(0, last - 1))
    end = data.draw(st.integers(start + 1, last))
    decoder = Decoder(ExpectedQueue("t", topic_id("t"), 0), ["queue_offset"], start, end)
    found: list[int] = []
    for _ in range(len(rows)):
        if decoder.is_done:
            break
        at = next(
            k for k, row in enumerate(rows)
            if row.base_offset + row.record_count > decoder.next_offset
        )  # fmt: skip
        stop = data.draw(st.integers(at + 1, len(rows)))
        spans = [
            Span(row.base_offset, 0, row.record_count, 1, memoryview(each))
            for row, each in itertools.islice(zip(rows, batches, strict=True), at, stop)
        ]
        for table in decoder.decode(spans):
            found += table.column("queue_offset").to_pylist()
    assert decoder.is_done
    assert found == [offset for offset in left if start <= offset < end]


def test_a_bulk_reader_takes_any_other_gap_for_a_loss() -> None:
    decoder = Decoder(ExpectedQueue("t", topic_id("t"), 0), ["queue_offset"], 0, 9)
    gone = Span(1, 0, 2, 1, memoryview(b""))
    with pytest.raises(DledgerError) as caught:
        list(decoder.decode([gone]))
    assert decoder.next_offset == 0
    assert caught.value.code in (Code.OFFSET_OUT_OF_RANGE, Code.CORRUPT_BATCH)
