"""Portions: many frames by one job of the pool, each with its own fate, and counted until sent."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from dledger.log.errors import SpanGone
from dledger.state.values import QueueSpan
from dledger.types import Span
from dledger_broker.read.assignments import FetchOptions
from dledger_broker.read.portions import LOOKS_AT_ONCE
from dledger_proto.errors import Code, DledgerError
from tests.unit.broker.test_fetch import FakeLog, Stage, bodies, source
from tests.waiting import until


class CountingPool(ThreadPoolExecutor):
    """Notes how many jobs it was given."""

    def __init__(self) -> None:
        super().__init__(1)
        self.jobs = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Count, and submit."""
        self.jobs += 1
        return super().submit(fn, *args, **kwargs)


def cold_stage(queues: int, each: int = 1) -> tuple[Stage, CountingPool]:
    """Return a stage with batches of so many queues, all on disk."""
    stage, pool = Stage(), CountingPool()
    stage.pool = pool
    for number in range(each):
        for queue in range(queues):
            stage.queries.add(b"%c" % (65 + number), queue=queue)
    stage.log.tail_from = len(stage.log.data)
    return stage, pool


def test_one_job_reads_what_is_old_in_many_queues() -> None:
    """A job for each costs more than it reads where a stream reads thousands of queues."""

    async def run() -> None:
        stage, pool = cold_stage(100)
        frames = await stage.once(*(source(0, queue, queue) for queue in range(100)))
        assert [each.assignment for each in frames] == list(range(100))
        assert all(bodies(each) == [b"A"] for each in frames)
        assert pool.jobs == 1
        assert stage.admission.fetch_bytes.used == 0

    asyncio.run(run())


def test_a_portion_is_no_larger_than_a_frame_may_be() -> None:
    async def run() -> None:
        stage, pool = cold_stage(8)
        size = stage.queries.rows[0][0].size
        await stage.once(*(source(0, queue, queue) for queue in range(8)), max_bytes=4 * size)
        assert pool.jobs == 3, "three, three and two: then half of a frame is there"

    asyncio.run(run())


def test_what_cannot_be_read_is_told_of_its_own_queue_alone() -> None:
    async def run() -> None:
        stage, _ = cold_stage(4)
        stage.log.data[stage.queries.rows[1][0].position + 20] ^= 1
        gone = stage.queries.rows[2][0].position

        class Trimmed(FakeLog):
            def read_span(self, span: Span) -> bytes:
                if span.position == gone:
                    raise SpanGone("trimmed")
                return super().read_span(span)

        log = Trimmed()
        log.data, log.tail_from = stage.log.data, stage.log.tail_from
        stage.log = log
        frames = await stage.once(*(source(0, queue, queue) for queue in range(4)))
        codes = [each.code for each in frames]
        assert codes == [Code.OK, Code.STORAGE_FAILED, Code.HEAD_TRIMMED, Code.OK]
        assert [bodies(each) for each in (frames[0], frames[3])] == [[b"A"], [b"A"]]
        assert len(stage.damage) == 1

    asyncio.run(run())


def test_what_was_read_ahead_is_given_up_with_its_reader() -> None:
    async def run() -> None:
        stage, pool = cold_stage(1, each=3)
        read = FakeLog.read_span
        ahead = threading.Event()

        class Noting(FakeLog):
            def read_span(self, span: Span) -> bytes:
                if self.reads:
                    ahead.set()
                return read(self, span)

        log = Noting()
        log.data, log.tail_from = stage.log.data, stage.log.tail_from
        stage.log = log

        async def send(_message: bytes) -> None:
            await asyncio.to_thread(ahead.wait, 20)
            await asyncio.to_thread(pool.shutdown)
            for _ in range(5):  # the job's answer has come; its portion takes it
                await asyncio.sleep(0)
            raise ConnectionResetError

        options = FetchOptions.of(1, 60_000, once=False)
        with pytest.raises(ConnectionResetError):
            await stage.session().run([source()], options, send)
        assert stage.admission.fetch_bytes.used == 0

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(20))
def test_a_reader_that_leaves_leaves_nothing_counted(seed: int) -> None:
    """Whenever that is: while the pool reads, while a message is sent, between the two."""

    async def run() -> None:
        random = Random(seed)
        stage, pool = cold_stage(random.randint(1, 5), each=20)
        fails_at, leaves_at = random.randint(1, 4), random.randint(1, 2)

        async def send(message: bytes) -> None:
            await stage.send(message)
            for _ in range(random.randint(0, 3)):
                await asyncio.sleep(0)
            if len(stage.messages) >= fails_at:
                raise ConnectionResetError

        sources = [source(0, queue, queue) for queue in stage.queries.rows]
        options = FetchOptions.of(random.choice((1, 200, 1_000)), 60_000, once=False)
        session = stage.session().run(sources, options, send)
        task = asyncio.get_running_loop().create_task(session)
        await until(lambda: task.done() or len(stage.messages) >= leaves_at, "the reader leaves")
        task.cancel()
        await asyncio.wait([task])
        pool.shutdown()
        await until(lambda: not stage.admission.fetch_bytes.used, "nothing is counted")

    asyncio.run(run())


def test_a_topic_that_ends_while_others_are_read_is_told_alone() -> None:
    """Its queue was empty at the look, and has no end to tell of when its turn comes."""

    async def run() -> None:
        stage, _ = cold_stage(2)
        queries, ends = stage.queries, threading.Event()
        bounds = queries.queue_bounds

        def bounds_of(topic_id: bytes, queue: int) -> tuple[int, int]:
            if queue == 7 and ends.is_set():
                raise DledgerError(Code.TOPIC_NOT_FOUND, "no such topic")
            return bounds(topic_id, queue)

        class Noting(FakeLog):
            def read_span(self, span: Span) -> bytes:
                ends.set()
                return super().read_span(span)

        log = Noting()
        log.data, log.tail_from = stage.log.data, stage.log.tail_from
        stage.log = log
        setattr(queries, "queue_bounds", bounds_of)  # noqa: B010
        frames = await stage.once(*(source(0, queue, queue) for queue in (0, 7, 1)))
        assert [each.code for each in frames] == [Code.OK, Code.TOPIC_NOT_FOUND, Code.OK]
        assert [bodies(each) for each in (frames[0], frames[2])] == [[b"A"], [b"A"]]
        assert stage.admission.fetch_bytes.used == 0

    asyncio.run(run())


def test_looks_at_many_queues_leave_the_loop_to_others_in_between() -> None:
    """Heartbeats and sends must not wait until a thousand queues are looked up."""

    async def run() -> None:
        stage, _ = cold_stage(100)
        turn, looks = 0, Counter[int]()
        spans = stage.queries.spans

        def counted(topic_id: bytes, queue: int, offset: int, size: int) -> list[QueueSpan]:
            looks[turn] += 1
            return spans(topic_id, queue, offset, size)

        async def others() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        setattr(stage.queries, "spans", counted)  # noqa: B010
        task = asyncio.get_running_loop().create_task(others())
        await stage.once(*(source(0, queue, queue) for queue in range(100)))
        task.cancel()
        assert looks.total() == 100
        assert max(looks.values()) <= LOOKS_AT_ONCE

    asyncio.run(run())
