"""One append stream: frames in, answers out, in order and cumulative.

Owns the bounds of a stream (unanswered bytes, by not reading on) and the order of its answers. Not
owned: where batches go (`append`). A reader task checks and submits batches; a writer task sends
one frame for all that settled since the last, so a busy stream has far fewer answers than frames.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from dledger.clock import Clock
from dledger_broker.admission import Admission
from dledger_broker.append import Answerable, AppendRouter, Item
from dledger_proto.batch import BatchHeader, check_batch
from dledger_proto.errors import Code, DledgerError
from dledger_proto.frames import AnswerRow, encode_answers, parse_append
from dledger_proto.limits import FRAME_ROWS_MAX

APPEND_WAIT_SECONDS: Final = 0.2
"""A frame waits this long for room before it is refused BUSY; RocketMQ's queued sends too (S142).
Meanwhile the stream is not read, so a producer that is merely fast is slowed and not refused."""
TIMEOUT_DEFAULT_MS: Final = 10_000
"""Of a frame that names none."""
TIMEOUT_MAX_MS: Final = 300_000
END_SECONDS: Final = 1.0
"""How long a stream's end waits for its tasks; gRPC may swallow a cancellation."""
ANSWERS_WAITING_MAX: Final = 8_192
"""Rows that a client left unread; beyond it the stream is not read on."""


class BatchGate(Protocol):
    """Decides whether a batch may be proposed to the group (`messaging.WriteGate`)."""

    def admits(self, header: BatchHeader) -> bool:
        """True when queue and permission are known to be fine; False: ask `check`."""
        ...

    async def check(self, header: BatchHeader) -> None:
        """DledgerError when the batch may not be written, judged on confirmed state."""
        ...


Send = Callable[[bytes], Awaitable[None]]
Receive = Callable[[], Awaitable[object]]
"""Returns the next frame, or gRPC's end mark, which is not bytes."""


class AppendSession:
    """The state of one stream."""

    def __init__(
        self,
        router: AppendRouter,
        gate: BatchGate,
        admission: Admission,
        clock: Clock,
        *,
        forwarded: bool,
    ) -> None:
        self._router = router
        self._gate = gate
        self._admission = admission
        self._clock = clock
        self._forwarded = forwarded
        self._waiting: deque[Item] = deque()
        self._unanswered_bytes = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._read_all = False
        self._one_way = _OneWay(admission)

    async def run(self, receive: Receive, send: Send) -> None:
        """Serve until the client has closed its side and everything is answered.

        When either side fails the other ends too, and the error is raised: the stream then breaks,
        and the client knows that what is not answered is unknown.
        """
        loop = asyncio.get_running_loop()
        reader = loop.create_task(self._read(receive), name="append frames")
        writer = loop.create_task(self._write(send), name="append answers")
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            if reader.done():
                await reader
            await writer
        finally:
            for task in (reader, writer):
                task.cancel()
            ended, _ = await asyncio.wait((reader, writer), timeout=END_SECONDS)
            for task in ended:
                if not task.cancelled():
                    task.exception()  # the first of two is raised, the other one is its echo

    async def _read(self, receive: Receive) -> None:
        while isinstance(frame := await receive(), bytes):
            await self._take(frame)
            while self._is_full():
                self._room.clear()
                await self._room.wait()
        self._read_all = True
        self._wake.set()

    def answered(self, item: Item) -> None:
        """See `append.Answerable`."""
        self._unanswered_bytes -= item.size
        self._admission.append_done(item.size, 1)
        if item is self._waiting[0]:
            self._wake.set()
            self._room.set()

    async def take_one(self, frame: bytes) -> bytes:
        """Serve a unary append: one frame in, its answers out."""
        await self._take(frame)
        rows = self._take_rows()
        while self._waiting:
            self._wake.clear()
            await self._wake.wait()
            rows += self._take_rows()
        return encode_answers(rows)

    async def _take(self, frame: bytes) -> None:
        """Check the batches of a frame and submit them."""
        header, batches = parse_append(frame)
        timeout_ms = min(header.timeout_ms or TIMEOUT_DEFAULT_MS, TIMEOUT_MAX_MS)
        deadline = self._clock.monotonic() + timeout_ms / 1000
        owner: Answerable = self._one_way if header.one_way else self
        refusal = await self._admit(batches)
        items = [
            Item(batch, number, deadline, owner)
            for number, batch in enumerate(batches, header.first_number)
        ]
        if owner is self:
            self._waiting += items
            self._unanswered_bytes += sum(item.size for item in items)
        await self._judge(deque(items), refusal)

    async def _judge(self, left: deque[Item], refusal: DledgerError | None) -> None:
        """Submit or refuse each item. Of what the stream's end leaves over nothing is proposed."""
        passed: list[Item] = []
        try:
            while left:
                error = refusal
                if error is None:
                    try:
                        batch_header = check_batch(left[0].batch)
                        if not self._gate.admits(batch_header):
                            # What the check waits for must not overtake what is in order before.
                            self._submit(passed)
                            await self._gate.check(batch_header)
                    except DledgerError as found:
                        error = found
                item = left.popleft()
                if error is None:
                    passed.append(item)
                else:
                    item.refuse(error.code, error.detail, hint=error.hint)
            self._submit(passed)
        finally:
            for item in (*passed, *left):
                item.refuse(Code.NOT_PROPOSED, "the stream ended")

    def _submit(self, items: list[Item]) -> None:
        """Hand items to the router, and empty the list."""
        if items:
            self._router.submit(items, forwarded=self._forwarded)
            items.clear()

    def _is_full(self) -> bool:
        return (
            self._unanswered_bytes > self._admission.limits.stream_bytes_max
            or len(self._waiting) > ANSWERS_WAITING_MAX
        )

    async def _admit(self, batches: list[memoryview]) -> DledgerError | None:
        """Count the frame in; the refusal when no room came up in time (then counted anyway).

        What is refused is counted for the moment until it is answered: one rule for all items.
        """
        admission = self._admission
        size = sum(len(batch) for batch in batches)
        count = len(batches)
        if admission.draining:
            admission.append_regardless(size, count)
            return DledgerError(Code.SHUTTING_DOWN, "the member is draining")
        if admission.try_append(size, count):
            return None
        until = self._clock.monotonic() + APPEND_WAIT_SECONDS
        while (left := until - self._clock.monotonic()) > 0:
            freed = asyncio.Event()
            try:
                admission.append_bytes.when_free(freed.set)
                async with asyncio.timeout(left):
                    await freed.wait()
            except (TimeoutError, DledgerError):  # too late, or too many wait already
                break
            if admission.try_append(size, count):
                return None
        admission.append_regardless(size, count)
        return admission.append_refusal()

    async def _write(self, send: Send) -> None:
        while True:
            rows = self._take_rows()
            if rows:
                await send(encode_answers(rows))
            elif self._read_all and not self._waiting:
                return
            else:
                self._wake.clear()
                await self._wake.wait()

    def _take_rows(self) -> list[AnswerRow]:
        """Return the answers that are next in order."""
        waiting = self._waiting
        rows: list[AnswerRow] = []
        while waiting and (row := waiting[0].row) is not None and len(rows) < FRAME_ROWS_MAX:
            rows.append(row)
            waiting.popleft()
        self._room.set()
        return rows


class _OneWay:
    """Nobody waits; the bytes are given back."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def answered(self, item: Item) -> None:
        self._admission.append_done(item.size, 1)
