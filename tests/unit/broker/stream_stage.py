"""One append stream whose batches settle when the test says so."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from dledger_broker.append.intake import AppendIntake
from dledger_broker.append.router import AppendRouter, PendingBatch
from dledger_broker.append.stream import AppendSession
from dledger_broker.append.unary import append_unary
from dledger_broker.metrics.meters import GroupMeters
from dledger_proto.rpc.frames import AnswerRow, encode_append, parse_answers
from tests.unit.broker.fakes import (
    NAMES,
    FakeForwarder,
    FakeHost,
    ManualClock,
    OpenRule,
    admission,
)
from tests.waiting import until

END = object()


class HoldingRouter(AppendRouter):
    """Keeps items until the test answers them."""

    def __init__(self) -> None:
        super().__init__(
            FakeHost(),
            NAMES,
            FakeForwarder().send,
            ManualClock(),
            GroupMeters(),
        )
        self.items: list[PendingBatch] = []

    def submit(self, items: Sequence[PendingBatch], *, forwarded: bool) -> None:
        """Keep."""
        assert not forwarded
        self.items += items


class Stage:
    def __init__(self, **bounds: int) -> None:
        self.router = HoldingRouter()
        self.rule = OpenRule()
        self.admission = admission(**bounds)
        self.clock = ManualClock()
        self.intake = AppendIntake(
            self.router, self.rule, self.admission, self.clock, forwarded=False
        )
        self.session = AppendSession(self.intake, self.admission)
        self.inbox: asyncio.Queue[object] = asyncio.Queue()
        self.frames: list[list[AnswerRow]] = []
        self.reads = 0

    async def receive(self) -> object:
        self.reads += 1
        return await self.inbox.get()

    async def send(self, frame: bytes) -> None:
        self.frames.append(parse_answers(frame))

    def start(self) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(self.session.run(self.receive, self.send))

    def put(self, number: int, *batches: bytes, one_way: bool = False) -> None:
        self.inbox.put_nowait(encode_append(batches, number, 1_000, one_way))

    async def append_unary(self, frame: bytes) -> bytes:
        return await append_unary(self.intake, frame)

    async def settled(self, condition: Callable[[], bool]) -> None:
        await until(condition, "what the stream should have done")

    def rows(self) -> list[AnswerRow]:
        return [row for frame in self.frames for row in frame]


def answer(item: PendingBatch) -> None:
    item.answer(AnswerRow(number=item.number, base_offset=item.number * 10))


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await scenario()

    asyncio.run(whole())
