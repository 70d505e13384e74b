"""Frames of queues that hold references to parts of older batches (D7)."""

import asyncio

import pytest

from dledger.state.values import Origin, QueueSpan
from dledger_broker.read.assignments import FetchOptions
from dledger_proto.batch.codec import BatchView, Record, check_batch, encode_batch
from dledger_proto.rpc.frames import RowOrigin
from tests.unit.broker.test_fetch import FakeQueries, Stage, source

OTHER = b"o" * 16


class WithOrigins(FakeQueries):
    def origin(self, topic_id: bytes, queue: int, base_offset: int) -> Origin | None:
        return Origin(OTHER, 3, 1, 7, "no") if base_offset == 1 else None


@pytest.mark.parametrize("cold", [False, True])
def test_one_record_is_cut_out_of_a_large_batch_and_its_origin_told(cold: bool) -> None:
    async def run() -> None:
        stage = Stage()
        stage.queries = WithOrigins(stage.log)
        large = encode_batch(
            [Record(bytes(20_000)), Record(b"wanted")], topic_id=OTHER, queue=3, stamp=None,
            base_number=0, base_time_ms=1,
        )  # fmt: skip
        position, size = stage.log.add(large)
        stage.queries.add(b"a")
        spans = [QueueSpan(1, position, 1, 1, size, 2_000, True)]
        spans += [QueueSpan(2, position, 0, 2, size, 2_000, True)]
        stage.queries.rows[0] += spans
        stage.log.tail_from = len(stage.log.data) if cold else 0
        wanted = FetchOptions.of(0, 0, once=True, with_origins=True)
        await stage.session().run([source()], wanted, stage.send)
        (frame,) = stage.frames
        assert [row[:3] for row in frame.rows] == [(0, 0, 1), (1, 0, 1), (2, 0, 2)]
        cut = BatchView(frame.batches[1])
        assert [bytes(each.body) for each in cut.records()] == [b"wanted"]
        assert bytes(frame.batches[2]) == large, "of several records the whole batch is sent"
        assert check_batch(frame.batches[1]).topic_id == OTHER
        assert frame.origins == {1: RowOrigin(OTHER, 3, 1, 7, "no")}

    asyncio.run(run())
