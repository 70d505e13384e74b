"""One unary append: a frame comes in, its answers go out when all of them are known."""

import asyncio
from collections.abc import Sequence

from dledger_broker.append.intake import AppendIntake
from dledger_broker.append.router import PendingBatch
from dledger_broker.security.gate import EVERYBODY, Caller
from dledger_proto.rpc.frames import AnswerRow, encode_answers


class _Call:
    """Waits for the last answer of one frame."""

    def __init__(self) -> None:
        self._left = 0
        self._items: Sequence[PendingBatch] = ()
        self._all_answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def expects(self, items: Sequence[PendingBatch], _frame_bytes: int) -> None:
        self._items = items
        self._left = len(items)

    def answered(self, _item: PendingBatch) -> None:
        self._left -= 1
        if not self._left and not self._all_answered.done():
            self._all_answered.set_result(None)

    def freed(self, frame_bytes: int) -> None:
        """See `intake.FrameOwner`."""

    async def rows(self) -> list[AnswerRow]:
        """Wait for all answers; a one-way frame has none."""
        if self._left:
            await self._all_answered
        return [item.row for item in self._items if item.row is not None]


async def append_unary(intake: AppendIntake, frame: bytes, caller: Caller = EVERYBODY) -> bytes:
    """Return the frame of answers, in order; empty for a one-way frame.

    DledgerError when the bytes are not a frame.
    """
    call = _Call()
    await intake.take(frame, call, caller)
    rows = await call.rows()
    return encode_answers(rows) if rows else b""
