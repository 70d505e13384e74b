"""Forwarded batches: whatever breaks at whichever await, each has exactly one outcome."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

import grpc.aio
import pytest

from dledger_broker.append.router import PendingBatch
from dledger_broker.cluster import forward
from dledger_broker.cluster.channels import Channels
from dledger_broker.cluster.forward import AppendForwarder
from dledger_proto.errors import Code
from dledger_proto.network.tls import Callee
from dledger_proto.rpc.frames import AnswerRow, encode_answers, parse_append
from tests.unit.broker.fakes import AnswerList, ManualClock, batch
from tests.waiting import until

RPC_ERROR = grpc.aio.AioRpcError(
    grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "gone", ""
)
Fault = Callable[[], None]


def rpc_error() -> None:
    raise RPC_ERROR


def bug() -> None:
    raise ZeroDivisionError("a bug of ours")


def cancelled() -> None:
    raise asyncio.CancelledError


class Call:
    """A stream to a leader that answers what it is given, until a fault strikes."""

    def __init__(self, faults: dict[str, Fault], hangs: str) -> None:
        self.faults = faults
        self.hangs = hangs
        self.written: list[bytes] = []
        self.answers: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.answering = True
        self.is_cancelled = False
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def _await(self, place: str) -> None:
        await asyncio.sleep(0)
        if place in self.faults:
            self.faults[place]()
        if place == self.hangs:
            await self._ended

    async def initial_metadata(self) -> None:
        await self._await("initial_metadata")

    async def write(self, frame: bytes) -> None:
        await self._await("write")
        self.written.append(frame)
        header, batches = parse_append(frame)
        if self.answering:
            rows = [AnswerRow(header.first_number + i, base_offset=i) for i in range(len(batches))]
            self.answers.put_nowait(encode_answers(rows))

    async def done_writing(self) -> None:
        await self._await("done_writing")
        self.answers.put_nowait(None)

    async def read(self) -> bytes | None:
        await self._await("read")
        found = await self.answers.get()
        await self._await("answer")
        return found

    def done(self) -> bool:
        return self.is_cancelled

    def cancel(self) -> bool:
        """As gRPC: whoever waits learns of it."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self.answers.put_nowait(None)
            if not self._ended.done():
                self._ended.cancel()
        return True


class Stage:
    """A forwarder whose streams do what a test says."""

    def __init__(self) -> None:
        self.plans: deque[tuple[dict[str, Fault], str]] = deque()
        self.calls: list[Call] = []
        self.rerouted: list[PendingBatch] = []
        self.owner = AnswerList()
        self.numbers = 0
        self.forwarder = AppendForwarder(
            "g", cast("Channels", self), ManualClock(), self.rerouted.extend
        )

    def to(self, _leader: Callee) -> "Stage":
        return self

    def stream_stream(self, _method: str, _to: None, _from: None) -> Callable[..., Call]:
        def make(**_options: object) -> Call:
            faults, hangs = self.plans.popleft() if self.plans else ({}, "")
            self.calls.append(Call(faults, hangs))
            return self.calls[-1]

        return make

    def items(self, count: int) -> list[PendingBatch]:
        made = [
            PendingBatch(memoryview(batch(b"x")), self.numbers + place, 200.0, self.owner)
            for place in range(count)
        ]
        self.numbers += count
        return made

    async def outcomes(self, count: int) -> list[str]:
        """Wait until every item has an outcome; Item refuses a second one itself."""
        await until(lambda: len(self.owner.rows) + len(self.rerouted) >= count, "an outcome each")
        for _ in range(5):
            await asyncio.sleep(0)
        found = {row.number: row.code.name for row in self.owner.rows}
        found |= {item.number: "REROUTED" for item in self.rerouted}
        assert len(found) == len(self.owner.rows) + len(self.rerouted) == count
        return [found[number] for number in sorted(found)]


def leader(address: str) -> Callee:
    return Callee(address, "dledger://c/member/g/n")


def run(scenario: Callable[[Stage], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(30):
            await scenario(Stage())

    asyncio.run(whole())


def test_answers_come_back_under_the_numbers_of_the_callers() -> None:
    async def scenario(stage: Stage) -> None:
        first, second = stage.items(2), stage.items(3)
        stage.forwarder.send(leader("h:1"), first)
        stage.forwarder.send(leader("h:1"), second)
        assert await stage.outcomes(5) == ["OK"] * 5
        await stage.forwarder.stop()
        assert len(stage.calls) == 1

    run(scenario)


@pytest.mark.parametrize("fault", [rpc_error, bug, cancelled])
@pytest.mark.parametrize(
    ("place", "was_sent"),
    [
        ("initial_metadata", False),
        ("write", True),
        ("read", False),
        ("answer", True),
    ],
)
def test_a_fault_at_each_await_settles_every_batch(
    place: str, was_sent: bool, fault: Fault, capfd: pytest.CaptureFixture[str]
) -> None:
    async def scenario(stage: Stage) -> None:
        stage.plans.append(({place: fault}, "initial_metadata" if place == "read" else ""))
        stage.forwarder.send(leader("h:1"), stage.items(3))
        refused = "NOT_PROPOSED" if fault is bug else "REROUTED"
        assert await stage.outcomes(3) == ["UNKNOWN_OUTCOME" if was_sent else refused] * 3
        assert stage.calls[0].is_cancelled
        stage.forwarder.send(leader("h:1"), stage.items(1))  # the next one opens a new stream
        assert (await stage.outcomes(4))[3] == "OK"
        await stage.forwarder.stop()

    run(scenario)
    shown = capfd.readouterr()
    assert (shown.out + shown.err).count("forwarding failed because of a bug") == (fault is bug)
    assert "never retrieved" not in shown.err


@pytest.mark.parametrize("fault", [rpc_error, bug, cancelled])
def test_a_fault_when_closing_settles_what_is_unanswered(fault: Fault) -> None:
    async def scenario(stage: Stage) -> None:
        stage.plans.append(({"done_writing": fault}, ""))
        stage.forwarder.send(leader("h:1"), stage.items(2))
        await until(lambda: bool(stage.calls[0].written), "a frame")
        stage.calls[0].answering = False
        stage.forwarder.send(leader("h:1"), stage.items(2))
        await until(lambda: len(stage.calls[0].written) == 2, "another frame")
        stage.forwarder.send(
            leader("h:2"), stage.items(1)
        )  # the leader changed: the old one closes
        assert await stage.outcomes(5) == ["OK"] * 2 + ["UNKNOWN_OUTCOME"] * 2 + ["OK"]
        await stage.forwarder.stop()

    run(scenario)


@pytest.mark.parametrize(
    "garbage",
    [
        b"garbage",
        encode_answers([AnswerRow(1), AnswerRow(2)]),
        encode_answers([AnswerRow(0)]),
        encode_answers([AnswerRow(2)]),
    ],
    ids=["garbage", "too many", "number too low", "number too high"],
)
def test_answers_that_make_no_sense_are_unknown(garbage: bytes) -> None:
    async def scenario(stage: Stage) -> None:
        stage.forwarder.send(leader("h:1"), [])
        stage.calls[0].answering = False
        stage.forwarder.send(leader("h:1"), stage.items(1))
        await until(lambda: bool(stage.calls[0].written), "a frame")
        stage.calls[0].answers.put_nowait(garbage)
        assert await stage.outcomes(1) == ["UNKNOWN_OUTCOME"]

    run(scenario)


def test_a_receiver_that_fails_does_not_strand_the_others() -> None:
    class Failing(AnswerList):
        def answered(self, item: PendingBatch) -> None:
            super().answered(item)
            if item.number == 1:
                raise ZeroDivisionError

    async def scenario(stage: Stage) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        stage.owner = Failing()
        stage.forwarder.send(leader("h:1"), [])
        stage.calls[0].answering = False
        stage.forwarder.send(leader("h:1"), stage.items(4))
        await until(lambda: bool(stage.calls[0].written), "a frame")
        stage.calls[0].cancel()
        assert await stage.outcomes(4) == ["UNKNOWN_OUTCOME"] * 4

    run(scenario)


def test_a_leader_that_does_not_take_the_stream_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forward, "CONNECT_SECONDS", 0.01)

    async def scenario(stage: Stage) -> None:
        stage.plans.append(({}, "initial_metadata"))
        stage.forwarder.send(leader("h:1"), stage.items(2))
        assert await stage.outcomes(2) == ["REROUTED"] * 2

    run(scenario)


def test_stopping_ends_streams_that_hang_and_those_that_were_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forward, "CONNECT_SECONDS", 0.01)

    async def scenario(stage: Stage) -> None:
        for address in ("h:1", "h:2"):
            stage.forwarder.send(leader(address), [])
            stage.calls[-1].answering = False
            stage.forwarder.send(leader(address), stage.items(1))
            await until(lambda: bool(stage.calls[-1].written), "a frame")
        stage.calls[0].hangs = "done_writing"
        await stage.forwarder.stop()
        assert await stage.outcomes(2) == ["UNKNOWN_OUTCOME"] * 2
        assert all(call.is_cancelled for call in stage.calls)

    run(scenario)


def test_a_closed_channel_refuses() -> None:
    async def scenario(stage: Stage) -> None:
        def closed(_leader: Callee) -> Stage:
            raise grpc.aio.UsageError("Channel is closed.")

        stage.to = closed  # type: ignore[method-assign]
        stage.forwarder.send(leader("h:1"), stage.items(2))
        assert await stage.outcomes(2) == [Code.NOT_PROPOSED.name] * 2

    run(scenario)
