"""One append stream: frames in, answers out, in order, with the numbers that the batches came with.

Owns the bound of a stream and the order of its answers. While too many bytes of frames are not
wholly answered, the member does not read on. Not owned: what becomes of a frame (`append.intake`).
A reader task takes frames. A writer task sends one frame for all answers since the last one, so a
busy stream sends far fewer frames of answers than it receives frames of batches. One-way frames get
no answer; their numbers are missing among the answers.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from dledger_broker.append.intake import AppendIntake
from dledger_broker.append.router import PendingBatch
from dledger_broker.rpc.admission import AdmissionControl
from dledger_broker.security.gate import EVERYBODY, Caller
from dledger_proto.limits import FRAME_ROWS_MAX
from dledger_proto.rpc.frames import AnswerRow, encode_answers

END_SECONDS: Final = 1.0
"""How long the end of a stream waits for its tasks; gRPC may swallow a cancellation."""
ANSWERS_WAITING_MAX: Final = 8_192
"""Answers that a client left unread; beyond this number the member does not read the stream on."""


Send = Callable[[bytes], Awaitable[None]]
Receive = Callable[[], Awaitable[object]]
"""Returns the next frame, or gRPC's end mark, which is not bytes."""


class AppendSession:
    """The state of one stream."""

    def __init__(
        self, intake: AppendIntake, admission: AdmissionControl, caller: Caller = EVERYBODY
    ) -> None:
        self._intake = intake
        self._caller = caller
        self._admission = admission
        self._waiting: deque[PendingBatch] = deque()
        self._unanswered_bytes = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._read_all = False

    async def run(self, receive: Receive, send: Send) -> None:
        """Serve until the client has closed its side and everything is answered.

        When one side fails, the other side ends too, and the error is raised. The stream then
        breaks, and the client knows that the outcome of unanswered batches is unknown.
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
                    task.exception()  # the first error is raised; the second follows from it

    async def _read(self, receive: Receive) -> None:
        while isinstance(frame := await receive(), bytes):
            await self._intake.take(frame, self, self._caller)
            del frame  # or the frame stays in memory until the next one comes
            while self._is_full():
                self._room.clear()
                await self._room.wait()
        self._read_all = True
        self._wake.set()

    def expects(self, items: Sequence[PendingBatch], frame_bytes: int) -> None:
        self._waiting += items
        self._unanswered_bytes += frame_bytes

    def freed(self, frame_bytes: int) -> None:
        self._unanswered_bytes -= frame_bytes
        self._room.set()

    def answered(self, item: PendingBatch) -> None:
        if item is self._waiting[0]:
            self._wake.set()
            self._room.set()

    def _is_full(self) -> bool:
        return (
            self._unanswered_bytes > self._admission.limits.stream_bytes_max
            or len(self._waiting) > ANSWERS_WAITING_MAX
        )

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
