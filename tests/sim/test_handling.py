"""The checks of what consumers get, each with a history that is fine and one that is not.

Goal: an oracle that never fires proves nothing. Method: the model of a topic with one queue, whose
entries the test plays; a violation that is planted in a world must end it.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger_client import ConsumeOrder
from dledger_client._core.group.queues import HeldQueue
from tests.sim.invariants.delivery.handling import Call, Handling
from tests.sim.invariants.delivery.queue_contents import Contents
from tests.sim.invariants.delivery.records import TOPIC, Copy, SharedGroup, SharedRecords
from tests.sim.invariants.violation import Property, Violation
from tests.sim.run import run_seed

TOPIC_ID = b"t" * 16
QUEUE = TOPIC_ID, 0
SEED_WITH_PUSH_CONSUMERS = 12


class Played:
    """A group that consumes one queue of six records."""

    def __init__(self, order: ConsumeOrder) -> None:
        plan = SimpleNamespace(
            order=order, is_ordered=order is not ConsumeOrder.CONCURRENT, retries_max=3
        )
        self.group = SharedGroup("g", cast("Any", plan))
        self.group.id = b"r" * 16
        self.records = SharedRecords([self.group], Contents())
        self.records.topic_id = TOPIC_ID
        self.records.topics[TOPIC] = cast("Any", SimpleNamespace(topic_id=TOPIC_ID))
        self.records.home[QUEUE] = "b1"
        self.records.queues[QUEUE] = [Copy(bytes([each]) * 16, "", b"", 0) for each in range(6)]
        self.handling = Handling(self.records)
        self.handling.stamps["b1"] = cast("Any", SimpleNamespace(majority_was_wrong=False))
        self.floor = self.group.floor(QUEUE)
        self.floor.floor = 0

    def claim(self, epoch: int) -> HeldQueue:
        """Store a claim, and answer it."""
        resets = self.floor.resets
        self.floor.answer(epoch)
        return _held(epoch, resets)

    def gets(self, held: HeldQueue | None, offset: int, who: str = "v0") -> Call:
        """Let a consumer get a record."""
        message = self.records.queues[QUEUE][offset].message
        record = SimpleNamespace(topic=TOPIC, queue=0, offset=offset, message_id=message)
        return self.handling.begin(who, "g", cast("Any", record), held, 0, 99.0, 1.0, 1_000)

    def handles(self, held: HeldQueue | None, *offsets: int) -> None:
        """Let a consumer handle records one after the other."""
        for offset in offsets:
            self.handling.end("g", self.gets(held, offset), is_handled=True)

    def resets(self, offset: int) -> None:
        """Set the offset of the group, as an administrator does."""
        self.floor.reset(offset)
        again = {copy.message for copy in self.records.queues[QUEUE][offset:]}
        self.group.handled -= again
        self.group.dead -= again


@pytest.fixture(params=list(ConsumeOrder))
def played(request: pytest.FixtureRequest) -> Played:
    """Return a group of each order."""
    return Played(request.param)


@pytest.fixture
def ordered() -> Played:
    """Return a group with order by queue."""
    return Played(ConsumeOrder.QUEUE)


def _held(epoch: int, resets: int) -> HeldQueue:
    return HeldQueue((TOPIC, 0), TOPIC_ID, "b1", epoch, resets=resets)


def _complains(broken: Property, action: Callable[[], object]) -> None:
    with pytest.raises(Violation) as caught:
        action()
    assert caught.value.broken is broken


def test_all_is_handled(played: Played) -> None:
    played.handles(played.claim(1), *range(6))
    played.handling.check_end()


def test_a_record_that_nobody_handled(played: Played) -> None:
    played.handles(played.claim(1), *range(5))
    _complains(Property.DELIVERED, played.handling.check_end)


def test_a_record_that_a_reset_takes_back_is_handled_again(played: Played) -> None:
    played.handles(played.claim(1), *range(6))
    played.resets(2)
    played.handles(played.claim(1), 2, 3, 4)
    _complains(Property.DELIVERED, played.handling.check_end)
    played.handles(played.claim(1), 5)
    played.handling.check_end()


def test_what_a_reset_skips_counts_until_one_comes_back(played: Played) -> None:
    played.resets(5)
    played.handles(played.claim(1), 5)
    played.handling.check_end()
    played.resets(1)
    played.handles(played.claim(1), 1, 2, 3)
    _complains(Property.DELIVERED, played.handling.check_end)


def test_an_outcome_by_a_claim_from_before_a_reset_does_not_count(played: Played) -> None:
    old = played.claim(1)
    played.handles(old, *range(4))
    played.resets(1)
    played.handles(old, 4, 5)  # its consumer has not heard of the reset
    played.handles(played.claim(1), 1, 2, 3)
    _complains(Property.DELIVERED, played.handling.check_end)


def test_a_record_that_one_claim_hands_out_twice(played: Played) -> None:
    claim = played.claim(1)
    played.handles(claim, 0)
    _complains(Property.NOT_AGAIN, lambda: played.gets(claim, 0))
    assert played.gets(played.claim(2), 0)


def test_a_claim_that_nobody_stored(played: Played) -> None:
    _complains(Property.NOT_AGAIN, lambda: played.gets(_held(7, 0), 0))


def test_a_record_that_was_done_when_it_was_claimed(played: Played) -> None:
    played.floor.finish(2, [])
    claim = played.claim(1)
    _complains(Property.NOT_AGAIN, lambda: played.gets(claim, 1))


def test_a_claim_that_is_told_more_with_each_renewal(played: Played) -> None:
    first = played.claim(1)
    played.floor.finish(2, [])
    played.claim(1)
    played.handles(first, 0)  # its consumer has not heard yet
    _complains(Property.NOT_AGAIN, lambda: played.gets(played.claim(2), 0))


def test_a_record_before_the_one_before_it_is_handled(ordered: Played) -> None:
    claim = ordered.claim(1)
    ordered.handles(claim, 0)
    _complains(Property.DELIVERED, lambda: ordered.gets(claim, 2))


def test_two_consumers_with_one_queue(ordered: Played) -> None:
    first, second = ordered.claim(1), ordered.claim(2)
    ordered.gets(first, 0)
    _complains(Property.ONE_HOLDER, lambda: ordered.gets(second, 0, "v1"))


@pytest.mark.slow
def test_a_violation_in_a_listener_ends_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer under test takes what its listener raises for a record that failed."""

    def begin(self: Handling, *_: object) -> Call:
        raise Violation(Property.ONE_HOLDER, "planted")

    monkeypatch.setattr(Handling, "begin", begin)
    failure = run_seed(SEED_WITH_PUSH_CONSUMERS).failure
    assert failure
    assert "planted" in str(failure)
