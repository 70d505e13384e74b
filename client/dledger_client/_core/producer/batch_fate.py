"""What becomes of the batches of one broker group when a try of theirs has ended. Pure.

Owns: what each answer does to its batch: stored, repeated, moved, fenced, given up (`PLANS` of
`_core/retry.py`). Not: links and registration (`group_sender.py`), order within a queue
(`lane.py`).
"""

from collections.abc import Callable

from dledger_client._core.producer.batch import Batch
from dledger_client._core.producer.context import ProducerContext
from dledger_client._core.producer.link import Try
from dledger_client._core.retry import (
    GAPS_MAX,
    NOT_THERE,
    AnswerPlan,
    NextStep,
    backoff,
    final_error,
    plan_for,
)
from dledger_client._core.routes import RefreshRoutes
from dledger_client.errors import ClientError, error_of
from dledger_client.latency import FaultTable
from dledger_proto.errors import Code
from dledger_proto.rpc.frames import AnswerRow


class BatchFate:
    """Decides about the batches of one group. `give_up` ends the work for the whole group."""

    def __init__(
        self, group: str, context: ProducerContext, give_up: Callable[[ClientError], None]
    ) -> None:
        self._group = group
        self._context = context
        self._give_up = give_up

    def answered(self, each: Try, row: AnswerRow, address: str, now: float) -> AnswerPlan:
        """Take in the answer to a try of the member at `address`; return how it is handled."""
        plan = plan_for(row.code)
        if self._context.faults is not None:
            self._note_latency(self._context.faults, each, plan, now)
        if plan.step is NextStep.STORED:
            self._stored(each.batch, row, address)
        else:
            detail = f"{address}: {row.detail}" if row.detail else address
            error = error_of(row.code, detail, hint=row.hint)
            self._end_try(each.batch, plan, error, now, wait=plan.waits or not row.hint)
        return plan

    def unanswered(self, batch: Batch, error: ClientError, now: float) -> None:
        """Take in that a try got no answer: it is repeated at once, over another link."""
        self._end_try(batch, plan_for(Code.UNKNOWN_OUTCOME), error, now, wait=False)

    def _note_latency(self, faults: FaultTable, each: Try, plan: AnswerPlan, now: float) -> None:
        if plan.step is NextStep.STORED:
            faults.answered(self._group, (now - each.sent_at) * 1_000, now * 1_000)
        elif plan.may_move or plan.is_unknown:
            faults.failed(self._group, now * 1_000)

    def _stored(self, batch: Batch, row: AnswerRow, address: str) -> None:
        self._context.members.worked(address)
        self._context.buffer.stored(
            batch,
            row.base_offset,
            row.index,
            row.term,
            duplicate=row.duplicate or row.code is Code.DUPLICATE,
            before_sync=row.unsynced,
        )

    def _end_try(
        self, batch: Batch, plan: AnswerPlan, error: ClientError, now: float, *, wait: bool
    ) -> None:
        batch.last_error = error
        if plan.is_unknown:
            batch.maybe_stored = True
        self._context.buffer.end_try(batch)
        self._after(batch, plan, now, wait=wait)

    def _after(self, batch: Batch, plan: AnswerPlan, now: float, *, wait: bool) -> None:
        """Repeat, move or give up a batch whose try has ended."""
        config = self._context.config
        step = plan.step
        error = batch.last_error
        assert error is not None, f"{batch.describe()}: no answer"
        if error.code in NOT_THERE and self._context.has_queue(batch):
            step = NextStep.REFRESH
        if step is NextStep.FAIL:
            if error.code is Code.TOPIC_NOT_FOUND:
                self._context.topic_gone(batch.topic, batch.topic_id)
            self.fail(batch, final_error(batch, "refused"))
        elif batch.maybe_stored and not config.idempotent:
            self.fail(batch, final_error(batch, "not repeated without idempotence"))
        elif now >= batch.deadline:
            self.fail(batch, final_error(batch, "out of time"))
        elif config.tries_max and batch.tries >= config.tries_max:
            self.fail(batch, final_error(batch, "given up"))
        elif step is NextStep.FENCED:
            self._give_up(error)
        elif step is NextStep.REGISTER:
            self._context.buffer.fence(batch)
        elif step is NextStep.GAP:
            self._gap(batch, now)
        else:
            batch.retry_at = (
                now + backoff(batch.tries - 1, self._context.generator) if wait else now
            )
            if step is NextStep.REFRESH:
                self._context.emit(RefreshRoutes())
                self._context.rehome(batch)
            elif plan.may_move and batch.is_movable and not batch.maybe_stored:
                self._context.move(batch, now)

    def fail(self, batch: Batch, error: ClientError) -> None:
        """Give up one batch."""
        self._context.buffer.failed(batch, error)

    def _gap(self, batch: Batch, now: float) -> None:
        """Handle SEQUENCE_GAP: expected behind a batch that failed; else a new epoch is needed."""
        lane = self._context.buffer.lane_of(batch)
        batch.retry_at = now
        if batch.base_sequence < 0 or lane.must_fence or lane.stamped[0] is not batch:
            return
        batch.gaps += 1
        if batch.gaps > GAPS_MAX:
            self.fail(batch, final_error(batch, "refused in each new epoch"))
        else:
            self._context.buffer.fence(batch)
