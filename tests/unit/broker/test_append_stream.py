"""One stream: answers in order however batches settle, cumulative, bounded by not reading."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_broker.append.router import PendingBatch
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import MIB
from dledger_proto.rpc.frames import encode_append, parse_answers
from tests.unit.broker.fakes import (
    TOPIC,
    batch,
    in_use,
)
from tests.unit.broker.stream_stage import END, HoldingRouter, Stage, answer, run

UNKNOWN_TOPIC = b"u" * 16


def test_answers_are_in_order_and_together() -> None:
    async def scenario() -> None:
        stage = Stage()
        serving = stage.start()
        for number in range(1, 6):
            stage.put(number, batch(b"%d" % number))
        await stage.settled(lambda: len(stage.router.items) == 5)
        for item in reversed(stage.router.items[1:]):
            answer(item)
        await asyncio.sleep(0)
        assert stage.frames == []
        answer(stage.router.items[0])
        stage.inbox.put_nowait(END)
        await serving
        assert [[row.number for row in frame] for frame in stage.frames] == [[1, 2, 3, 4, 5]]
        assert not in_use(stage.admission)

    run(scenario)


def test_the_end_waits_for_all_answers() -> None:
    async def scenario() -> None:
        stage = Stage()
        serving = stage.start()
        stage.put(1, batch(b"a"), batch(b"b"))
        stage.inbox.put_nowait(END)
        await stage.settled(lambda: len(stage.router.items) == 2)
        assert not serving.done()
        for item in stage.router.items:
            answer(item)
        await serving
        assert len(stage.rows()) == 2

    run(scenario)


def test_a_bad_batch_is_refused_in_its_place() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.rule.refused[UNKNOWN_TOPIC] = DledgerError(Code.TOPIC_NOT_FOUND, "no such topic")
        serving = stage.start()
        flipped = bytearray(batch(b"damaged"))
        flipped[-1] ^= 1
        stage.put(1, batch(b"a"), bytes(flipped), batch(b"b", UNKNOWN_TOPIC), batch(b"c"))
        stage.inbox.put_nowait(END)
        await stage.settled(lambda: len(stage.router.items) == 2)
        for item in stage.router.items:
            answer(item)
        await serving
        codes = [row.code for row in stage.rows()]
        assert codes == [Code.OK, Code.CORRUPT_BATCH, Code.TOPIC_NOT_FOUND, Code.OK]
        assert stage.rule.asked == 1

    run(scenario)


def test_unanswered_bytes_stop_the_reading() -> None:
    async def scenario() -> None:
        stage = Stage(stream_bytes_max=3 * MIB)
        serving = stage.start()
        for number in range(1, 11):
            stage.put(number, batch(bytes(MIB)))
        await stage.settled(lambda: len(stage.router.items) >= 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert stage.reads == 3  # three are over the bound together; a fourth is not asked for
        answer(stage.router.items[0])
        await stage.settled(lambda: len(stage.router.items) == 4)
        serving.cancel()

    run(scenario)


def test_a_full_member_refuses_busy_after_a_while() -> None:
    """The frame waits for room first; the clock moves by itself because nothing else does."""

    async def scenario() -> None:
        stage = Stage(append_batches_max=1)
        assert stage.admission.try_append(10, 1)
        serving = stage.start()
        stage.put(1, batch(b"a"))
        await asyncio.sleep(0)
        stage.clock.now += 10
        stage.admission.append_bytes.give(0)  # wakes the waiter, who finds no room
        stage.inbox.put_nowait(END)
        await serving
        row = stage.rows()[0]
        assert row.code is Code.BUSY
        assert "append_batches_max" in row.detail
        assert stage.router.items == []
        assert stage.admission.append_batches.used == 1

    run(scenario)


def test_room_that_comes_up_in_time_is_taken() -> None:
    async def scenario() -> None:
        stage = Stage(append_batches_max=1)
        assert stage.admission.try_append(10, 1)
        serving = stage.start()
        stage.put(1, batch(b"a"))
        for _ in range(5):
            await asyncio.sleep(0)
        stage.admission.append_done(10, 1)
        await stage.settled(lambda: len(stage.router.items) == 1)
        answer(stage.router.items[0])
        stage.inbox.put_nowait(END)
        await serving
        assert stage.rows()[0].code is Code.OK

    run(scenario)


def test_draining_refuses_frames_on_open_streams() -> None:
    async def scenario() -> None:
        stage = Stage()
        serving = stage.start()
        stage.admission.drain("ending")
        stage.put(1, batch(b"a"))
        stage.inbox.put_nowait(END)
        await serving
        assert stage.rows()[0].code is Code.SHUTTING_DOWN

    run(scenario)


def test_one_way_frames_get_no_answer_and_leave_no_trace() -> None:
    async def scenario() -> None:
        stage = Stage()
        serving = stage.start()
        stage.put(1, batch(b"a"), one_way=True)
        stage.put(2, batch(b"b"))
        stage.inbox.put_nowait(END)
        await stage.settled(lambda: len(stage.router.items) == 2)
        for item in stage.router.items:
            answer(item)
        await serving
        assert [row.number for row in stage.rows()] == [2]
        assert stage.admission.append_bytes.used == 0

    run(scenario)


@given(
    frames=st.lists(st.tuples(st.booleans(), st.integers(1, 3)), min_size=1, max_size=12),
    data=st.data(),
)
@settings(deadline=None)
def test_one_way_and_normal_frames_in_any_order_are_answered_exactly_once(
    frames: list[tuple[bool, int]], data: st.DataObject
) -> None:
    """However they settle: each normal batch by its own number, in order; one-way ones never."""

    async def scenario() -> None:
        stage = Stage()
        serving = stage.start()
        expected: list[int] = []
        number = data.draw(st.integers(0, 2**32))
        first = number
        for one_way, count in frames:
            batches = [batch(b"%d" % (number + place)) for place in range(count)]
            stage.put(number, *batches, one_way=one_way)
            if not one_way:
                expected += range(number, number + count)
            number += count
        stage.inbox.put_nowait(END)
        await stage.settled(lambda: len(stage.router.items) == number - first)
        for item in data.draw(st.permutations(stage.router.items)):
            answer(item)
            if data.draw(st.booleans()):
                await asyncio.sleep(0)
        await serving
        assert [(row.number, row.base_offset) for row in stage.rows()] == [
            (number, number * 10) for number in expected
        ]
        assert stage.admission.append_bytes.used == 0

    run(scenario)


def test_a_broken_stream_gives_its_bytes_back() -> None:
    async def scenario() -> None:
        stage = Stage()
        serving = stage.start()
        stage.put(1, batch(b"a"))
        await stage.settled(lambda: len(stage.router.items) == 1)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        answer(stage.router.items[0])
        assert stage.admission.append_bytes.used == 0

    run(scenario)


def test_a_stream_that_breaks_while_a_batch_is_judged_gives_everything_back() -> None:
    """What was in order before is on its way; the rest of the frame was never proposed."""

    async def scenario() -> None:
        stage = Stage()
        judging = asyncio.Event()

        async def confirm() -> None:
            judging.set()
            await asyncio.Event().wait()

        stage.rule.refused[UNKNOWN_TOPIC] = DledgerError(Code.TOPIC_NOT_FOUND, "no such topic")
        stage.rule.confirm = confirm  # type: ignore[method-assign]
        serving = stage.start()
        stage.put(1, batch(b"a"), batch(b"b", UNKNOWN_TOPIC), batch(b"c"), batch(b"d"))
        await judging.wait()
        serving.cancel()
        await asyncio.wait([serving])
        assert len(stage.router.items) == 1
        assert stage.admission.append_batches.used == 4, "a view of one keeps all of the frame"
        answer(stage.router.items[0])
        assert not in_use(stage.admission)

    run(scenario)


def test_a_garbled_frame_ends_the_stream() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.inbox.put_nowait(b"garbage that is no frame at all")
        with pytest.raises(DledgerError, match="magic"):
            await stage.session.run(stage.receive, stage.send)

    run(scenario)


def test_unary_append_answers_all_batches_of_its_frame() -> None:
    async def scenario() -> None:
        stage = Stage()
        frame = encode_append([batch(b"a"), batch(b"b", TOPIC, 1)], 5, 1_000)
        call = asyncio.get_running_loop().create_task(stage.append_unary(frame))
        await stage.settled(lambda: len(stage.router.items) == 2)
        answer(stage.router.items[1])
        answer(stage.router.items[0])
        assert [row.number for row in parse_answers(await call)] == [5, 6]

    run(scenario)


@pytest.mark.parametrize("bounds", [{}, {"stream_bytes_max": 1}])
def test_unary_append_hears_of_each_answer_whenever_it_comes(bounds: dict[str, int]) -> None:
    """The first batch's answer came in a turn of its own: the second one's woke nobody, ever. Nor
    in a frame above a stream's bound: a unary call has no frame after it that could wait.
    """

    async def scenario() -> None:
        stage = Stage(**bounds)
        frame = encode_append([batch(b"a"), batch(b"b", TOPIC, 1)], 5, 1_000)
        call = asyncio.get_running_loop().create_task(stage.append_unary(frame))
        await stage.settled(lambda: len(stage.router.items) == 2)
        for item in stage.router.items:
            answer(item)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await stage.settled(call.done)
        assert [row.number for row in parse_answers(await call)] == [5, 6]

    run(scenario)


def test_a_one_way_unary_append_is_answered_by_nothing_at_once() -> None:
    """It was an internal error: an answer frame of no rows cannot be made."""

    async def scenario() -> None:
        stage = Stage()
        frame = encode_append([batch(b"a")], 5, 1_000, one_way=True)
        assert await stage.append_unary(frame) == b""
        answer(stage.router.items[0])
        assert stage.admission.append_bytes.used == 0

    run(scenario)


def test_a_unary_append_that_is_cancelled_gives_its_room_back() -> None:
    async def scenario() -> None:
        stage = Stage()
        frame = encode_append([batch(b"a")], 5, 1_000)
        call = asyncio.get_running_loop().create_task(stage.append_unary(frame))
        await stage.settled(lambda: len(stage.router.items) == 1)
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        answer(stage.router.items[0])
        assert not in_use(stage.admission)

    run(scenario)


# Faults at each await: nobody is stranded, nothing is answered twice, all room is given back.


class Broken(Exception):
    """A fault that nobody expects."""


def break_receive(stage: Stage) -> None:
    async def receive() -> object:
        if stage.reads == 1:
            raise Broken
        stage.reads += 1
        return await stage.inbox.get()

    stage.receive = receive  # type: ignore[method-assign]


def break_send(stage: Stage) -> None:
    async def send(frame: bytes) -> None:
        raise Broken

    stage.send = send  # type: ignore[method-assign]


def break_check(stage: Stage) -> None:
    stage.rule.refused[UNKNOWN_TOPIC] = DledgerError(Code.TOPIC_NOT_FOUND)

    async def confirm() -> None:
        await asyncio.sleep(0)
        raise Broken

    stage.rule.confirm = confirm  # type: ignore[method-assign]


def break_submit(stage: Stage) -> None:
    def submit(items: Sequence[PendingBatch], *, forwarded: bool) -> None:
        if stage.router.items:
            raise Broken
        HoldingRouter.submit(stage.router, items, forwarded=forwarded)

    stage.router.submit = submit  # type: ignore[method-assign]


@pytest.mark.parametrize("fault", [break_receive, break_send, break_check, break_submit])
def test_a_fault_ends_the_stream_with_it(fault: Callable[[Stage], None]) -> None:
    async def scenario() -> None:
        stage = Stage()
        fault(stage)
        serving = stage.start()
        stage.put(1, batch(b"a"))
        await stage.settled(lambda: len(stage.router.items) == 1 or serving.done())
        if fault is break_send:
            answer(stage.router.items[0])  # the client hears nothing, and goes on waiting
        else:
            stage.put(2, batch(b"b", UNKNOWN_TOPIC))
        with pytest.raises(Broken):
            async with asyncio.timeout(10):
                await serving
        for item in stage.router.items:
            if item.row is None:
                answer(item)
        assert not in_use(stage.admission)

    run(scenario)


def wait_in_receive(stage: Stage) -> None:
    """The client says no more."""


def wait_in_send(stage: Stage) -> None:
    async def send(frame: bytes) -> None:
        stage.frames.append([])
        await asyncio.Event().wait()

    stage.send = send  # type: ignore[method-assign]


def wait_in_check(stage: Stage) -> None:
    stage.rule.refused[TOPIC] = DledgerError(Code.TOPIC_NOT_FOUND)

    async def confirm() -> None:
        stage.frames.append([])
        await asyncio.Event().wait()

    stage.rule.confirm = confirm  # type: ignore[method-assign]


def wait_for_room(stage: Stage) -> None:
    stage.admission.append_regardless(stage.admission.limits.append_bytes_max, 0)


@pytest.mark.parametrize("where", [wait_in_receive, wait_in_send, wait_in_check, wait_for_room])
def test_a_cancellation_at_each_await_leaves_nothing_behind(
    where: Callable[[Stage], None],
) -> None:
    async def scenario() -> None:
        stage = Stage()
        where(stage)
        serving = stage.start()
        stage.put(1, batch(b"a"), batch(b"b"))
        if where is wait_in_send:
            await stage.settled(lambda: len(stage.router.items) == 2)
            answer(stage.router.items[0])
        await stage.settled(
            lambda: bool(stage.frames or stage.router.items or stage.admission.append_bytes.used)
        )
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        for item in stage.router.items:
            if item.row is None:
                answer(item)
        if where is wait_for_room:
            stage.admission.append_done(stage.admission.limits.append_bytes_max, 0)
        assert not in_use(stage.admission)

    run(scenario)


def test_more_waiters_than_there_may_be_are_refused_and_the_stream_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dledger_broker.rpc.admission.WAITERS_MAX", 0)

    async def scenario() -> None:
        stage = Stage(append_bytes_max=1)
        serving = stage.start()
        stage.put(1, batch(b"a"))
        stage.put(2, batch(b"b"))
        await stage.settled(lambda: len(stage.router.items) == 1)
        answer(stage.router.items[0])
        await stage.settled(lambda: len(stage.rows()) == 2)
        assert [row.code for row in stage.rows()] == [Code.OK, Code.BUSY]
        stage.inbox.put_nowait(END)
        await serving

    run(scenario)
