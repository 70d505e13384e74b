"""The duty that gives consumer groups a queue in each broker group that joins."""

from dataclasses import replace
from itertools import pairwise

import pytest

from dledger.state.consumers.groups import DeleteConsumerGroup, WidenConsumerGroup
from dledger.state.results import ConsumerGroupChanged
from dledger.state.values import LayoutPart
from dledger_broker.group import widening
from dledger_broker.group.duty import EVERYTHING, Look
from dledger_broker.group.widening import (
    LOOK_AT_ALL_SECONDS,
    LOOK_SECONDS,
    REST_SECONDS,
    GroupWidening,
)
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import QUEUES_PER_TOPIC_MAX
from tests.unit.state.kit import Driven
from tests.unit.state.test_consumer_groups import BILLING, CREATE, changed, with_billing

WIDER = WidenConsumerGroup(BILLING, (LayoutPart("g1", 1), LayoutPart("g2", 1), LayoutPart("g3", 1)))


class Leading:
    """A leader that looks whenever the test says so."""

    def __init__(self, driven: Driven, *broker_groups: str) -> None:
        self.driven = driven
        self.broker_groups = broker_groups
        self.duty = GroupWidening(lambda: self.broker_groups)
        self.term: int | None = 1
        self.now = 100.0

    def looks(self, after: float = LOOK_SECONDS) -> WidenConsumerGroup | None:
        self.now += after
        return self.duty.due(Look(self.term, EVERYTHING, self.driven.machine.queries, self.now))

    def does_its_duty(self) -> int:
        """Propose what is due and the rest of it; return how many commands that took."""
        command, count = self.looks(), 0
        while command is not None:
            result = self.driven.one(command)
            assert isinstance(result, ConsumerGroupChanged), result
            count += self.duty.count(result)
            command = self.duty.rest(result)
        return count


def test_a_broker_group_that_joins_gets_a_queue_of_each_consumer_group() -> None:
    leading = Leading(with_billing(), "g1", "g2")
    assert leading.looks() is None
    leading.broker_groups = "g1", "g2", "g3"
    assert leading.looks() == WIDER
    assert leading.driven.one(WIDER)
    assert leading.does_its_duty() == 0


def test_only_a_leader_looks_and_only_in_its_time() -> None:
    leading = Leading(with_billing(), "g1", "g2", "g3")
    leading.term = None
    assert leading.looks() is None
    leading.term = 2
    assert leading.looks() == WIDER
    leading.term = 3
    assert leading.looks(after=LOOK_SECONDS / 2) is None
    assert leading.looks() == WIDER, "what was proposed in the term before may be lost"


def test_a_group_that_was_created_with_less_is_found_in_time() -> None:
    leading = Leading(Driven(), "g1", "g2", "g3")
    assert leading.looks() is None
    changed(leading.driven, CREATE)
    assert leading.looks() is None, "no look costs more than it must"
    assert leading.looks(after=LOOK_AT_ALL_SECONDS) == WIDER


def test_a_look_widens_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widening, "WIDENED_AT_ONCE_MAX", 2)
    leading = Leading(with_billing(), "g1", "g2", "g3")
    for number in range(3):
        create_another(leading.driven, number)
    assert [leading.does_its_duty() for _ in range(3)] == [2, 2, 0]


def test_a_group_that_is_always_refused_keeps_nobody_back() -> None:
    """It rests, longer each time, also when a look takes no more groups than it."""
    leading = Leading(with_billing(), "g1", "g2", "g3")
    create_another(leading.driven, 0)
    refusal = DledgerError(Code.INVALID_ARGUMENT, "the layout is too large")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(widening, "WIDENED_AT_ONCE_MAX", 1)
        bad = leading.looks()
        assert bad is not None
        assert leading.duty.refused(refusal) is None, "a look takes one"
        good = leading.looks()
        assert good is not None
        assert good.group_id != bad.group_id
        assert leading.duty.rest(changed(leading.driven, good)) is None
        tried: list[float] = []
        for _ in range(60):
            if leading.looks(after=LOOK_AT_ALL_SECONDS) == bad:
                tried.append(leading.now)
                leading.duty.refused(refusal)
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert pauses[:3] == [120, 240, 480]
    assert max(pauses) <= REST_SECONDS[1]


def test_all_are_tried_again_soon_when_it_was_not_the_group_that_was_refused() -> None:
    leading = Leading(with_billing(), "g1", "g2", "g3")
    create_another(leading.driven, 0)
    first = leading.looks()
    assert leading.duty.refused(DledgerError(Code.NO_LEADER)) is None
    assert leading.looks() == first
    leading.duty.refused(DledgerError(Code.NO_LEADER))
    assert leading.does_its_duty() == 2


def create_another(driven: Driven, number: int) -> None:
    own, dead = bytes((1, number)) * 8, bytes((2, number)) * 8
    settings = replace(CREATE.settings, dead_letter_topic_id=dead)
    changed(driven, replace(CREATE, group_id=own, name=f"g{number}", settings=settings))


def test_a_deleted_group_is_left_alone() -> None:
    leading = Leading(with_billing(), "g1", "g2", "g3")
    changed(leading.driven, DeleteConsumerGroup(BILLING))
    assert leading.looks() is None


def test_a_layout_keeps_its_limit() -> None:
    retry = with_billing().machine.queries.topic_by_id(BILLING)
    assert retry is not None
    many = [f"h{number}" for number in range(2 * QUEUES_PER_TOPIC_MAX)]
    assert len(widening.widened(retry, many)) == QUEUES_PER_TOPIC_MAX
