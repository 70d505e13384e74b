"""Holds that are renewed while their job is busy.

Goal: what is held stays so until the keeper is closed, whatever a renewal meets. Method: time that
the test lets pass.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dledger_client.errors import error_of
from dledger_client.reading import Edge, HoldRequest, Keeper, ReadPlan, keeper
from dledger_proto.errors import Code
from tests.unit.reading.fakes import TOPIC, FakePlanner, FakeQueue, FakeTime

TTL_MS = 60_000


@contextmanager
def keeper_of(renew: Callable[[ReadPlan], None], time: FakeTime) -> Iterator[Keeper]:
    """Yield a keeper of that time, and close it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeper, "Event", time.event)
        found = Keeper(renew, TTL_MS)
        try:
            yield found
        finally:
            found.close()


def plan_from(offset: int) -> ReadPlan:
    planner = FakePlanner({0: FakeQueue([1_000] * 5)})
    hold = HoldRequest("job", TTL_MS)
    return planner.freeze([TOPIC], Edge(offsets={TOPIC: {0: offset}}), Edge(), hold=hold)


def test_the_plan_that_was_made_last_is_renewed() -> None:
    """Three times while its hold would last; never the one before; nothing behind the end."""
    time = FakeTime()
    renewed: list[tuple[float, int]] = []
    with keeper_of(lambda plan: renewed.append((time.now, plan.queues[0].start)), time) as kept:
        kept.keep(lambda: plan_from(1))
        time.advance(45)
        kept.keep(lambda: plan_from(3))
        time.advance(20)
    assert renewed == [(20.0, 1), (40.0, 1), (60.0, 3)]


def test_a_renewal_that_fails_is_told_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Soon when nobody answers; a refusal would be the same one a moment later."""
    time = FakeTime()
    at: list[float] = []
    errors: list[Exception | None] = [
        error_of(Code.NO_LEADER, "nobody leads"), None,
        error_of(Code.OFFSET_OUT_OF_RANGE, "orders/0: trimmed"), None,
    ]  # fmt: skip

    def renew(_plan: ReadPlan) -> None:
        at.append(time.now)
        error = errors.pop(0)
        if error is not None:
            raise error

    with keeper_of(renew, time) as kept:
        kept.keep(lambda: plan_from(0))
        time.advance(70)
    assert at == [20.0, 23.0, 43.0, 63.0]
    assert "nobody leads" in caplog.text
    assert "orders/0: trimmed" in caplog.text
