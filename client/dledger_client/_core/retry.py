"""What a producer does after each answer: repeat, move, refresh, register, give up. Pure.

Owns: one table from code to plan (D10, D11, S30), back-offs, deadlines of tries, final errors.
Not: carrying a plan out (`producer/batch_fate.py`), order (`producer/lane.py`).

A plan's rules:
- after an unknown outcome a repeat goes to the same queue with the same stamp, never elsewhere;
- only a definite refusal may move a batch, and only one that is bound to no queue;
- a refusal that no repeat can change ends the batch; if an earlier try may have stored it, the end
  is UnknownOutcome and not the refusal.
"""

import enum
import random
from dataclasses import dataclass
from typing import Final

from dledger_client._core.producer.batch import Batch
from dledger_client.errors import ClientError, error_of
from dledger_proto.errors import Code

BACKOFF_MIN: Final = 0.010
BACKOFF_MAX: Final = 0.250
"""Seconds between tries of one batch."""
TRY_GRACE: Final = 0.250
"""Seconds that a try waits beyond the member's own deadline, so that its answer still arrives."""
GAPS_MAX: Final = 3
"""New epochs that one batch may cause by being refused as SEQUENCE_GAP."""


class NextStep(enum.Enum):
    """What happens next to a batch whose try was answered."""

    STORED = "stored"
    AGAIN = "again"
    REFRESH = "refresh the route, then again"
    REGISTER = "register again, then again"
    GAP = "again, in order"
    FENCED = "fenced"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """How one code is handled."""

    step: NextStep
    is_unknown: bool = False
    """The try may have stored the batch."""
    may_move: bool = False
    """Another group may take it now."""
    switch_member: bool = False
    """This member will not take it soon; ask another one of the group."""
    waits: bool = True
    """A back-off comes before the next try."""


_ELSEWHERE = AnswerPlan(NextStep.AGAIN, may_move=True, switch_member=True)
_HERE = AnswerPlan(NextStep.AGAIN, may_move=True)

PLANS: Final[dict[Code, AnswerPlan]] = {
    Code.OK: AnswerPlan(NextStep.STORED),
    Code.DUPLICATE: AnswerPlan(NextStep.STORED),
    Code.NOT_LEADER: AnswerPlan(NextStep.AGAIN, switch_member=True, waits=False),
    Code.NO_LEADER: _HERE,
    Code.NOT_FORMED: _HERE,
    Code.BUSY: _HERE,
    Code.DISK_FULL: _HERE,
    Code.NOT_PROPOSED: _HERE,
    Code.SHUTTING_DOWN: _ELSEWHERE,
    Code.STORAGE_FAILED: _ELSEWHERE,
    Code.UNAVAILABLE: _ELSEWHERE,
    Code.TOO_MANY_IN_FLIGHT: AnswerPlan(NextStep.AGAIN),
    Code.TOO_MANY_TIMERS: AnswerPlan(NextStep.AGAIN),
    Code.UNAUTHENTICATED: AnswerPlan(NextStep.AGAIN),  # the login of the stream ended: a new stream
    Code.UNKNOWN_OUTCOME: AnswerPlan(NextStep.AGAIN, is_unknown=True),
    Code.INTERNAL: AnswerPlan(NextStep.FAIL, is_unknown=True),
    Code.WRONG_GROUP: AnswerPlan(NextStep.REFRESH),
    Code.STALE_LAYOUT: AnswerPlan(NextStep.REFRESH),
    Code.UNKNOWN_PRODUCER: AnswerPlan(NextStep.REGISTER, waits=False),
    Code.STALE_EPOCH: AnswerPlan(NextStep.FENCED),
    Code.SEQUENCE_GAP: AnswerPlan(NextStep.GAP, waits=False),
}
"""A code that is not listed ends the batch: the caller must change something."""


NOT_THERE: Final = frozenset((Code.TOPIC_NOT_FOUND, Code.QUEUE_NOT_FOUND))
"""While the client's route has the queue, the group may not have heard of the decision yet. Then
the client refreshes the route and sends the batch again. The codes are final once the route agrees.
"""


def plan_for(code: Code) -> AnswerPlan:
    """Return how an answer is handled."""
    return PLANS.get(code) or AnswerPlan(NextStep.FAIL)


def backoff(tries: int, generator: random.Random) -> float:
    """Return seconds to wait before try `tries` + 1: doubling, within half of itself at random."""
    full: float = min(BACKOFF_MIN * (1 << min(tries, 16)), BACKOFF_MAX)
    return full * generator.uniform(0.5, 1.0)


def try_deadline(now: float, deadline: float, try_timeout: float) -> float:
    """Return when a try that starts now counts as unanswered. Monotonic seconds."""
    return min(deadline, now + try_timeout) + TRY_GRACE


def final_error(batch: Batch, reason: str) -> ClientError:
    """Return the error of a batch that is given up: unknown if any try may have stored it."""
    last = batch.last_error
    tried = (
        f"after {batch.tries} tries at {', '.join(dict.fromkeys(batch.members_tried))}"
        if batch.tries
        else "before the first try"
    )
    because = f"; last: {last.code.name} {last.detail}".rstrip() if last is not None else ""
    text = f"{batch.topic}/{batch.queue} of group {batch.group}: {reason} {tried}{because}"
    if batch.maybe_stored or batch.is_outstanding:
        error = error_of(Code.UNKNOWN_OUTCOME, text)
    elif last is not None and last.definite:
        error = error_of(last.code, text, hint=last.hint)
    else:
        error = error_of(Code.NOT_PROPOSED, text)
    error.__cause__ = last
    return error
