"""Frames from memory and from disk, checked; waiting, errors, and damage that stays."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import cast

import pytest

from dledger.log.errors import DamagedLog
from dledger.state.queries import Queries
from dledger.state.values import QueueSpan
from dledger.types import Position, Span
from dledger_broker.group.group_view import GroupView
from dledger_broker.group.long_poll import LongPoll
from dledger_broker.metrics.meters import GroupMeters
from dledger_broker.read.assignments import Assignment, FetchOptions
from dledger_broker.read.batches import read_batches, read_runs
from dledger_broker.read.fetch import FetchSession
from dledger_broker.read.portions import FRAME_COPIES
from dledger_broker.rpc.admission import FETCH_FRAME_MIN
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.frames import FETCH_HEADER_SIZE, FETCH_ROW_SIZE, FetchFrame, parse_fetches
from tests.unit.broker.fakes import TOPIC, admission, batch
from tests.waiting import until


class FakeQueries(Queries):
    """Queues whose batches lie one after the other in a log, a header apart."""

    def __init__(self, log: "FakeLog") -> None:
        self.log = log
        self.rows: dict[int, list[QueueSpan]] = {}
        self.minimum = 0

    def add(self, body: bytes, queue: int = 0) -> None:
        rows = self.rows.setdefault(queue, [])
        position, size = self.log.add(batch(body, TOPIC, queue))
        rows.append(QueueSpan(len(rows), position, 0, 1, size, 1_000))

    def queue_bounds(self, topic_id: bytes, queue: int) -> tuple[int, int]:
        if topic_id != TOPIC:
            raise DledgerError(Code.TOPIC_NOT_FOUND, "no such topic")
        return self.minimum, len(self.rows.get(queue, []))

    def spans(self, topic_id: bytes, queue: int, offset: int, max_bytes: int) -> list[QueueSpan]:
        found: list[QueueSpan] = []
        for row in self.rows.get(queue, [])[offset:]:
            if found and sum(each.size for each in found) + row.size > max_bytes:
                break
            found.append(row)
        return found


class FakeLog:
    """Bytes, of which those from `tail_from` on are in memory."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.tail_from = 0
        self.reads: list[Span] = []

    def add(self, payload: bytes) -> tuple[int, int]:
        self.data += b"#" * 80
        position = len(self.data)
        self.data += payload
        return position, len(payload)

    def tail_span(self, span: Span) -> list[memoryview] | None:
        if span.position < self.tail_from:
            return None
        return [memoryview(bytes(self.data))[span.position : span.position + span.size]]

    def read_span(self, span: Span) -> bytes:
        self.reads.append(span)
        return bytes(self.data[span.position : span.position + span.size])

    def path_of(self, position: Position) -> str:
        return f"log/{position}"


class Fresh:
    """Confirms at once, after running what the test wants to happen meanwhile."""

    def __init__(self) -> None:
        self.calls = 0
        self.meanwhile: Callable[[], None] = lambda: None
        self.error: DledgerError | None = None

    async def confirm(self) -> None:
        self.calls += 1
        self.meanwhile()
        if self.error is not None:
            raise self.error


class Stage:
    def __init__(self) -> None:
        self.log = FakeLog()
        self.queries = FakeQueries(self.log)
        self.poll = LongPoll()
        self.fresh = Fresh()
        self.damage: list[Exception] = []
        self.admission = admission()
        self.pool = ThreadPoolExecutor(1)
        self.frames: list[FetchFrame] = []
        self.messages: list[int] = []
        """How many frames each had."""

    async def send(self, message: bytes) -> None:
        found = parse_fetches(message)
        self.messages.append(len(found))
        self.frames += found

    def session(self) -> FetchSession:
        view = SimpleNamespace(
            machine=SimpleNamespace(queries=self.queries),
            log=self.log,
            pool=self.pool,
            long_poll=self.poll,
            confirm=self.fresh.confirm,
            host=SimpleNamespace(failed=self.damage.append),
            meters=GroupMeters(),
        )
        return FetchSession(cast("GroupView", view), self.admission)

    async def once(
        self,
        *sources: Assignment,
        wait_ms: int = 0,
        max_bytes: int = 0,
        with_positions: bool = False,
    ) -> list[FetchFrame]:
        wanted = FetchOptions.of(max_bytes, wait_ms, once=True, with_positions=with_positions)
        async with asyncio.timeout(5):
            await self.session().run(sources, wanted, self.send)
        return self.frames

    def follow(self, *sources: Assignment) -> "asyncio.Task[None]":
        wanted = FetchOptions.of(200, 60_000, once=False)
        return asyncio.get_running_loop().create_task(
            self.session().run(sources, wanted, self.send)
        )

    async def until(self, count: int) -> None:
        await until(lambda: len(self.frames) >= count, f"{count} frames")


def source(offset: int = 0, queue: int = 0, number: int = 0, topic: bytes = TOPIC) -> Assignment:
    from dledger.types import QueueOffset

    return Assignment(number, topic, queue, QueueOffset(offset))


def bodies(frame: FetchFrame) -> list[bytes]:
    return [bytes(each[-1:]) for each in frame.batches]


@pytest.mark.parametrize("cold", [False, True])
def test_memory_and_disk_give_the_same_frame(cold: bool) -> None:
    async def run() -> None:
        stage = Stage()
        for body in (b"a", b"b", b"c"):
            stage.queries.add(body)
        stage.log.tail_from = len(stage.log.data) if cold else 0
        (frame,) = await stage.once(source(1))
        assert bodies(frame) == [b"b", b"c"]
        assert (frame.min_offset, frame.max_offset, frame.next_offset) == (0, 3, 3)
        assert [row.base_offset for row in frame.rows] == [1, 2]
        assert {row.store_time_ms for row in frame.rows} == {1_000}
        assert len(stage.log.reads) == (1 if cold else 0)
        assert stage.admission.fetch_bytes.used == 0

    asyncio.run(run())


def test_at_least_one_batch_however_small_the_frame() -> None:
    async def run() -> None:
        stage = Stage()
        stage.queries.add(b"a")
        stage.queries.add(b"b")
        (frame,) = await stage.once(source(), max_bytes=1)
        assert bodies(frame) == [b"a"]

    asyncio.run(run())


def test_nothing_new_is_an_empty_frame_per_assignment() -> None:
    async def run() -> None:
        stage = Stage()
        stage.queries.add(b"a")
        frames = await stage.once(source(1), source(0, queue=1, number=1), wait_ms=1)
        assert [(each.assignment, each.next_offset, list(each.rows)) for each in frames] == [
            (0, 1, []),
            (1, 0, []),
        ]

    asyncio.run(run())


def test_what_is_new_in_many_queues_shares_messages_up_to_their_size() -> None:
    """A busy reader pays for messages: one for each queue and it falls behind."""

    async def run() -> None:
        stage = Stage()
        for number in range(5):
            stage.queries.add(b"x", queue=number)
        sources = [source(0, queue=number, number=number) for number in range(5)]
        frames = await stage.once(*sources)
        assert [each.assignment for each in frames] == [0, 1, 2, 3, 4]
        assert stage.messages == [5]

        size = len(stage.log.data) // 5
        stage.frames, stage.messages = [], []
        sources = [source(0, queue=number, number=number) for number in range(5)]
        await stage.once(*sources, max_bytes=2 * (size + FETCH_HEADER_SIZE + FETCH_ROW_SIZE))
        assert [each.assignment for each in stage.frames] == [0, 1, 2, 3, 4]
        assert stage.messages == [2, 2, 1]
        assert stage.admission.fetch_bytes.used == 0

    asyncio.run(run())


def test_readers_that_stop_reading_shrink_messages_of_many_frames_too() -> None:
    """What is held for readers of many queues is bounded as for those of one (I17)."""

    async def run() -> None:
        stage = Stage()
        for number in range(8):
            stage.queries.add(b"x" * (FETCH_FRAME_MIN // 2), queue=number)
        sources = [source(0, queue=number, number=number) for number in range(8)]
        held: list[int] = []

        async def send(message: bytes) -> None:
            held.append(stage.admission.fetch_bytes.used - others)
            assert held[-1] == FRAME_COPIES * len(message), "counted"
            await stage.send(message)

        others = stage.admission.fetch_bytes.limit
        stage.admission.fetch_bytes.take_regardless(others)
        wanted = FetchOptions.of(16 * FETCH_FRAME_MIN, 0, once=True)
        await stage.session().run(sources, wanted, send)
        assert max(held) <= FRAME_COPIES * FETCH_FRAME_MIN
        assert [each.assignment for each in stage.frames] == list(range(8))
        assert stage.admission.fetch_bytes.used == others

    asyncio.run(run())


@pytest.mark.parametrize("cold", [False, True])
def test_frames_that_wait_for_others_are_counted_and_given_back(*, cold: bool) -> None:
    """They wait while the disk is read for the next queue; the reader may leave meanwhile."""

    async def run() -> None:
        stage = Stage()
        stage.queries.add(b"x" * 1_000, queue=0)
        stage.queries.add(b"x" * 1_000, queue=1)
        stage.log.tail_from = len(stage.log.data) if cold else 0
        counted: list[int] = []
        bounds = stage.queries.queue_bounds

        def look(topic_id: bytes, queue: int) -> tuple[int, int]:
            counted.append(stage.admission.fetch_bytes.used)
            if queue == 1:
                raise ZeroDivisionError
            return bounds(topic_id, queue)

        stage.queries.queue_bounds = look  # type: ignore[method-assign]
        with pytest.raises(ZeroDivisionError):
            await stage.once(source(0, queue=0), source(0, queue=1, number=1))
        assert counted[0] == 0
        assert counted[-1] > FRAME_COPIES * 1_000
        assert stage.admission.fetch_bytes.used == 0

    asyncio.run(run())


def test_a_stream_without_news_says_so_in_one_frame() -> None:
    """However many queues it reads: an empty one for each was most of what an idle reader cost."""

    async def run() -> None:
        stage = Stage()
        reading = asyncio.get_running_loop().create_task(
            stage.session().run(
                [source(0, queue=number, number=number) for number in range(5)],
                FetchOptions.of(0, 10, once=False),
                stage.send,
            )
        )
        await stage.until(3)
        assert [(each.assignment, list(each.rows)) for each in stage.frames[:3]] == [(0, [])] * 3
        reading.cancel()

    asyncio.run(run())


def test_a_waiting_reader_is_woken_by_the_arrival() -> None:
    async def run() -> None:
        stage = Stage()
        reading = stage.follow(source(), source(0, queue=1, number=1))
        await until(lambda: len(stage.poll) == 1, "a waiting reader")
        stage.queries.add(b"x", queue=1)
        stage.poll.arrived(TOPIC, 1)
        await stage.until(1)
        assert (stage.frames[0].assignment, bodies(stage.frames[0])) == (1, [b"x"])
        reading.cancel()

    asyncio.run(run())


def test_a_backlog_is_read_ahead_and_in_order() -> None:
    async def run() -> None:
        stage = Stage()
        for number in range(20):
            stage.queries.add(b"%c" % (65 + number))
        stage.log.tail_from = len(stage.log.data)
        reading = stage.follow(source())
        await stage.until(20)
        assert b"".join(body for each in stage.frames for body in bodies(each)) == bytes(
            range(65, 85)
        )
        reading.cancel()

    asyncio.run(run())


def test_past_the_end_is_refused_only_when_confirmed() -> None:
    async def run() -> None:
        stage = Stage()
        stage.queries.add(b"a")
        (frame,) = await stage.once(source(5))
        assert frame.code is Code.OFFSET_OUT_OF_RANGE
        assert "0 to 1" in frame.detail
        assert stage.fresh.calls == 1

    asyncio.run(run())


def test_past_an_old_end_waits_for_the_confirmed_one() -> None:
    """A follower that is behind serves the offset once it has caught up (D10)."""

    async def run() -> None:
        stage = Stage()

        def catch_up() -> None:
            for number in range(6):
                stage.queries.add(b"%d" % number)

        stage.fresh.meanwhile = catch_up
        (frame,) = await stage.once(source(5))
        assert (frame.code, bodies(frame)) == (Code.OK, [b"5"])

    asyncio.run(run())


def test_past_the_end_without_a_leader_waits() -> None:
    async def run() -> None:
        stage = Stage()
        stage.fresh.error = DledgerError(Code.NO_LEADER, "election")
        (frame,) = await stage.once(source(5))
        assert (frame.code, list(frame.rows)) == (Code.OK, [])

    asyncio.run(run())


def test_below_the_minimum_and_unknown_topics_end_one_assignment() -> None:
    async def run() -> None:
        stage = Stage()
        for body in (b"a", b"b", b"c"):
            stage.queries.add(body)
        stage.queries.minimum = 2
        frames = await stage.once(
            source(1), source(0, number=1, topic=b"z" * 16), source(2, number=2)
        )
        assert [each.code for each in frames] == [
            Code.OFFSET_OUT_OF_RANGE,
            Code.TOPIC_NOT_FOUND,
            Code.OK,
        ]

    asyncio.run(run())


def test_a_refused_assignment_is_told_and_the_others_are_served_on() -> None:
    async def run() -> None:
        stage = Stage()
        stage.queries.add(b"a")
        refused = source(0, queue=7, number=1)
        refused.refusal = DledgerError(Code.NO_PERMISSION, "topic t may not be read")
        reading = stage.follow(source(), refused)
        await stage.until(2)
        assert [(each.assignment, each.code, each.detail) for each in stage.frames] == [
            (0, Code.OK, ""),
            (1, Code.NO_PERMISSION, "topic t may not be read"),
        ]
        stage.queries.add(b"b")
        stage.poll.arrived(TOPIC, 0)
        await stage.until(3)
        assert (stage.frames[2].assignment, bodies(stage.frames[2])) == (0, [b"b"])
        reading.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("cold", [False, True])
def test_damage_is_never_served(cold: bool) -> None:
    async def run() -> None:
        stage = Stage()
        stage.queries.add(b"a")
        stage.log.data[-1] ^= 1
        stage.log.tail_from = len(stage.log.data) if cold else 0
        (frame,) = await stage.once(source())
        assert frame.code is Code.STORAGE_FAILED
        assert frame.detail.startswith("log/80: the batch at position 80")
        assert len(stage.damage) == 1

    asyncio.run(run())


@pytest.mark.parametrize(
    "error",
    [
        OSError(5, "EIO"),
        DamagedLog("00000000000000000000.log", Position(0), "READ", "the file ends here"),
    ],
)
def test_a_log_that_cannot_be_read_ends_the_member(error: Exception) -> None:
    """I16: the reader is told, and so is the process."""

    class Failing(FakeLog):
        def read_span(self, span: Span) -> bytes:
            raise error

    async def run() -> None:
        stage = Stage()
        stage.log = stage.queries.log = Failing()
        stage.queries.add(b"a")
        stage.log.tail_from = len(stage.log.data)
        (frame,) = await stage.once(source())
        assert frame.code is Code.STORAGE_FAILED
        assert stage.damage == [error]

    asyncio.run(run())


def test_damage_that_a_second_read_does_not_show_is_served() -> None:
    log = FakeLog()
    queries = FakeQueries(log)
    queries.add(b"a")
    sound = bytes(log.data)
    log.data[-1] ^= 1

    class Flaky(FakeLog):
        def read_span(self, span: Span) -> bytes:
            found = super().read_span(span)
            self.data = bytearray(sound)
            return found

    flaky = Flaky()
    flaky.data = log.data
    assert bytes(read_batches(flaky, queries.rows[0])[0]) == batch(b"a")
    assert len(flaky.reads) == 2


def test_runs_join_near_batches_only() -> None:
    spans = [
        QueueSpan(0, 0, 0, 1, 100, 0),
        QueueSpan(1, 180, 0, 1, 100, 0),
        QueueSpan(2, 1_000_000, 0, 1, 100, 0),
        QueueSpan(3, 500, 0, 1, 100, 0),
    ]
    assert [[span.base_offset for span in run] for run in read_runs(spans)] == [[0, 1], [2], [3]]
