"""Frames of batches in, items on their way out: admitted, checked, submitted in order.

Owns what is the same for a stream (`append_session`) and a single call (`append_unary`): the wait
for room, the check of every batch, the deadline of each. Not owned: where batches go (`append`),
who hears of their fate.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from dledger.clock import Clock
from dledger_broker.admission import Admission
from dledger_broker.append import Answerable, AppendRouter, Item
from dledger_broker.served import ANSWER_BY
from dledger_proto.batch import BatchHeader, check_batch
from dledger_proto.errors import Code, DledgerError
from dledger_proto.frames import parse_append

APPEND_WAIT_SECONDS: Final = 0.2
"""A frame waits this long for room before it is refused BUSY; RocketMQ's queued sends too (S142).
Meanwhile the stream is not read, so a producer that is merely fast is slowed and not refused."""
TIMEOUT_DEFAULT_MS: Final = 10_000
"""Of a frame that names none."""
TIMEOUT_MAX_MS: Final = 300_000


class BatchGate(Protocol):
    """Decides whether a batch may be proposed to the group (`messaging.WriteGate`)."""

    def admits(self, header: BatchHeader) -> bool:
        """True when queue and permission are known to be fine; False: ask `check`."""
        ...

    async def check(self, header: BatchHeader) -> None:
        """DledgerError when the batch may not be written, judged on confirmed state."""
        ...


class Taker(Answerable, Protocol):
    """Whoever sends frames in and waits for their items."""

    def expects(self, items: Sequence[Item]) -> None:
        """The items of a frame, in order; each is answered exactly once, from now on."""
        ...


class AppendIntake:
    """The way in to one group, for what clients send or for what members forward."""

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
        self._one_way = _OneWay(admission)

    async def take(self, frame: bytes, taker: Taker) -> None:
        """Check the batches of a frame and submit them; of a one-way frame `taker` hears nothing.

        DledgerError for a frame that is none. Whoever answers an item gives its room back to the
        admission (`Admission.append_done`).
        """
        header, batches = parse_append(frame)
        timeout_ms = min(header.timeout_ms or TIMEOUT_DEFAULT_MS, TIMEOUT_MAX_MS)
        deadline = self._clock.monotonic() + timeout_ms / 1000
        owner: Taker = self._one_way if header.one_way else taker
        refusal = await self._admit(batches)
        items = [
            Item(batch, number, deadline, owner)
            for number, batch in enumerate(batches, header.first_number)
        ]
        owner.expects(items)
        await self._judge(deque(items), refusal)

    async def _judge(self, left: deque[Item], refusal: DledgerError | None) -> None:
        """Submit or refuse each item. Of what a call's end leaves over nothing is proposed."""
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
                            await self._check(batch_header, left[0].deadline)
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
                item.refuse(Code.NOT_PROPOSED, "the call ended")

    async def _check(self, header: BatchHeader, deadline: float) -> None:
        """Ask the gate, for no longer than who sent the batch waits."""
        token = ANSWER_BY.set(deadline)
        try:
            await self._gate.check(header)
        finally:
            ANSWER_BY.reset(token)

    def _submit(self, items: list[Item]) -> None:
        """Hand items to the router, and empty the list."""
        if items:
            self._router.submit(items, forwarded=self._forwarded)
            items.clear()

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


class _OneWay:
    """Nobody waits; the bytes are given back."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def expects(self, items: Sequence[Item]) -> None:
        """Nobody does."""

    def answered(self, item: Item) -> None:
        self._admission.append_done(item.size, 1)
