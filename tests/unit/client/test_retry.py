"""The table from codes to plans, and the errors at the end of a batch."""

import random

import pytest

from dledger_client._core.producer.batch import Batch
from dledger_client._core.retry import (
    BACKOFF_MAX,
    BACKOFF_MIN,
    PLANS,
    TRY_GRACE,
    NextStep,
    backoff,
    final_error,
    plan_for,
    try_deadline,
)
from dledger_client.errors import DeadlineExpired, NoPermission, UnknownOutcome, error_of
from dledger_proto.errors import MEANINGS, Code

OF_CONSUMERS = {code for code in Code if 330 <= code < 340 or code is Code.GROUP_PAUSED}
"""No producer gets these."""


@pytest.mark.parametrize("code", list(Code))
def test_plans_agree_with_the_table_of_outcomes(code: Code) -> None:
    plan = plan_for(code)
    stored = code in (Code.OK, Code.DUPLICATE)
    assert (plan.step is NextStep.STORED) == stored
    if not stored and code not in OF_CONSUMERS:
        assert plan.is_unknown == (not MEANINGS[code].definite)
        if plan.step in (NextStep.AGAIN, NextStep.REFRESH):
            is_login = code is Code.UNAUTHENTICATED  # of an append stream: another one logs in
            assert MEANINGS[code].retriable or plan.is_unknown or is_login
        if MEANINGS[code].retriable:
            assert plan.step is not NextStep.FAIL
    if plan.is_unknown:
        assert not plan.may_move, "an unknown outcome stays on its queue"
    assert (code in PLANS) or plan.step is NextStep.FAIL


def test_back_off_doubles_and_is_bounded() -> None:
    generator = random.Random(1)
    for tries in range(40):
        wait = backoff(tries, generator)
        full = min(BACKOFF_MIN * 2**tries, BACKOFF_MAX)
        assert full / 2 <= wait <= full


def test_a_try_ends_before_the_budget_and_its_answer_may_still_come() -> None:
    assert try_deadline(10.0, 20.0, 1.5) == 11.5 + TRY_GRACE
    assert try_deadline(10.0, 10.5, 1.5) == 10.5 + TRY_GRACE


def test_final_errors() -> None:
    batch = Batch("t", b"t" * 16, 3, "a")
    nothing = final_error(batch, "out of time")
    assert isinstance(nothing, DeadlineExpired)
    assert "t/3 of group a: out of time before the first try" in str(nothing)
    batch.tries = 2
    batch.members_tried = ["h:1", "h:2", "h:1"]
    batch.last_error = error_of(Code.NO_PERMISSION, "told")
    refused = final_error(batch, "refused")
    assert isinstance(refused, NoPermission)
    assert "2 tries at h:1, h:2; last: NO_PERMISSION told" in str(refused)
    batch.maybe_stored = True
    assert isinstance(final_error(batch, "refused"), UnknownOutcome)
    batch.maybe_stored = False
    batch.last_error = error_of(Code.UNKNOWN_OUTCOME)
    # Known by now not to be stored (a new epoch fenced it), so the old answer must not show.
    assert final_error(batch, "out of time").definite
