"""Frames of batches come in; their batches are admitted, checked and submitted in order.

Owns what a stream (`append.stream`) and a single call (`append.unary`) share: the wait for room,
the check of every batch, the deadline of each. Not owned: where batches go (`append.router`), who
gets their answers.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from typing import Final, Protocol

from dledger.clock import Clock
from dledger_broker.append.router import Answerable, AppendRouter, PendingBatch
from dledger_broker.append.write_rule import WriteRule
from dledger_broker.group.group_view import ANSWER_BY
from dledger_broker.rpc.admission import AdmissionControl
from dledger_broker.security.gate import EVERYBODY, Caller, Need
from dledger_broker.security.rules import batch_need
from dledger_proto.batch.codec import BatchHeader, check_batch
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.frames import parse_append

APPEND_WAIT_SECONDS: Final = 0.2
"""A frame waits this long for room before it is refused BUSY, as sends in RocketMQ are (S142).
Meanwhile the member does not read the stream: it slows a fast producer, and does not refuse it."""
TIMEOUT_DEFAULT_MS: Final = 10_000
"""The time-out of a frame that names none."""
TIMEOUT_MAX_MS: Final = 300_000


class FrameOwner(Answerable, Protocol):
    """What sends frames in, and waits for the answers to their batches."""

    def expects(self, items: Sequence[PendingBatch], frame_bytes: int, /) -> None:
        """Expect the answers to a frame's batches, in order; each is answered exactly once."""
        ...

    def freed(self, frame_bytes: int, /) -> None:
        """Note that all batches of a frame are answered: none of its bytes are in memory here."""
        ...


class AppendIntake:
    """The way in to one group, for what clients send or for what members forward."""

    def __init__(
        self,
        router: AppendRouter,
        rule: WriteRule,
        admission: AdmissionControl,
        clock: Clock,
        *,
        forwarded: bool,
    ) -> None:
        self._router = router
        self._rule = rule
        self._admission = admission
        self._clock = clock
        self._forwarded = forwarded

    async def take(self, frame: bytes, owner: FrameOwner, caller: Caller = EVERYBODY) -> None:
        """Check the batches of a frame and submit them; a one-way frame tells `owner` nothing.

        DledgerError when the bytes are not a frame. The frame counts as a whole until all of its
        batches are answered: a view of one batch keeps the whole frame in memory.
        """
        header, batches = parse_append(frame)
        timeout_ms = min(header.timeout_ms or TIMEOUT_DEFAULT_MS, TIMEOUT_MAX_MS)
        deadline = self._clock.monotonic() + timeout_ms / 1000
        refusal = await self._admit(len(frame), len(batches))
        of_frame = _Frame(
            len(frame), len(batches), self._admission, _ONE_WAY if header.one_way else owner
        )
        items = [
            PendingBatch(batch, number, deadline, of_frame)
            for number, batch in enumerate(batches, header.first_number)
        ]
        of_frame.owner.expects(items, len(frame))
        await self._judge(deque(items), refusal, _Sender(self._rule, caller))

    async def _judge(
        self, left: deque[PendingBatch], refusal: DledgerError | None, sender: "_Sender"
    ) -> None:
        """Submit or refuse each batch. When the call ends, the rest is not proposed."""
        passed: list[PendingBatch] = []
        try:
            while left:
                error = refusal or await self._error_of(left[0], passed, sender)
                item = left.popleft()
                if error is None:
                    passed.append(item)
                else:
                    item.refuse(error.code, error.detail, hint=error.hint)
            self._submit(passed)
        finally:
            for item in (*passed, *left):
                item.refuse(Code.NOT_PROPOSED, "the call ended")

    async def _error_of(
        self, item: PendingBatch, before: list[PendingBatch], sender: "_Sender"
    ) -> DledgerError | None:
        """Return why a batch may not be proposed; may submit the batches `before` it."""
        try:
            header = check_batch(item.batch)
            if not sender.may_send(header):
                # To catch up may take long: the batches before this one must not wait with it.
                self._submit(before)
                await _by(item.deadline, sender.check(header))
            if self._rule.refusal(header) is not None:
                self._submit(before)
                await _by(item.deadline, sender.check_rule(header))
        except DledgerError as error:
            # The traceback names frames that hold the batch, and would outlive the answer.
            return error.with_traceback(None)
        return None

    def _submit(self, items: list[PendingBatch]) -> None:
        """Hand batches to the router, and empty the list."""
        if items:
            self._router.submit(items, forwarded=self._forwarded)
            items.clear()

    async def _admit(self, size: int, count: int) -> DledgerError | None:
        """Count the frame; return the refusal when no room became free in time.

        A refused frame is counted, too, until its batches are answered: one rule for all frames.
        """
        admission = self._admission
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


class _Sender:
    """Who sends one frame, and what it may: a no is given on confirmed state (D10).

    The state is confirmed once for a frame, however many of its batches are refused.
    """

    __slots__ = ("_caller", "_is_caller_known", "_is_confirmed", "_rule")

    def __init__(self, rule: WriteRule, caller: Caller) -> None:
        self._rule = rule
        self._caller = caller
        self._is_confirmed = self._is_caller_known = False

    def may_send(self, header: BatchHeader) -> bool:
        """Tell whether the caller has the right to the topic, and the producer is not another's.

        An unknown one is not proposed: its owner may register it before the batch is applied.
        """
        caller = self._caller
        if caller is EVERYBODY:
            return True
        is_own = self._rule.refusal_of_producer(header, caller.name) is None
        return is_own and caller.allows(self._needs(header))

    async def check(self, header: BatchHeader) -> None:
        """Raise what the caller is told of what it may not send; NO_LEADER when nobody leads."""
        await self._confirm()
        if not self._is_caller_known and not self._caller.allows(self._needs(header)):
            # Users may be those of another group of this process.
            await self._caller.catch_up()
            self._is_caller_known = True
        self._caller.check(self._needs(header))
        refusal = self._rule.refusal_of_producer(header, self._caller.name)
        if refusal is not None:
            if refusal.code is Code.NO_PERMISSION:
                self._caller.was_refused(refusal, "Append")
            raise refusal

    async def check_rule(self, header: BatchHeader) -> None:
        """Raise why the queue does not take the batch."""
        await self._confirm()
        self._rule.check_applied(header)

    async def _confirm(self) -> None:
        if not self._is_confirmed:
            await self._rule.confirm()
            self._is_confirmed = True

    def _needs(self, header: BatchHeader) -> Iterator[Need]:
        yield batch_need(header.topic_id, self._rule.topic_by_id)


class _Frame:
    """Owns the room of a frame in the admission until its last batch is answered."""

    __slots__ = ("_admission", "_count", "_left", "_size", "owner")

    def __init__(
        self, size: int, count: int, admission: AdmissionControl, owner: FrameOwner
    ) -> None:
        self._size = size
        self._count = self._left = count
        self._admission = admission
        self.owner = owner

    def answered(self, item: PendingBatch) -> None:
        assert item.row is not None, f"append {item.number} has no answer"
        if item.row.code:
            self._admission.meters.refused[item.row.code] += 1
        self._left -= 1
        if not self._left:
            self._admission.append_done(self._size, self._count)
            self.owner.freed(self._size)
        self.owner.answered(item)


async def _by(deadline: float, asking: Coroutine[object, object, None]) -> None:
    """Wait for confirmed state for no longer than the sender of the batch waits."""
    token = ANSWER_BY.set(deadline)
    try:
        await asking
    finally:
        ANSWER_BY.reset(token)


class _OneWay:
    """The owner of one-way frames: no caller waits for their answers."""

    def expects(self, items: Sequence[PendingBatch], frame_bytes: int) -> None:
        """See `FrameOwner`."""

    def freed(self, frame_bytes: int) -> None:
        """See `FrameOwner`."""

    def answered(self, item: PendingBatch) -> None:
        """See `router.Answerable`."""


_ONE_WAY: Final = _OneWay()
