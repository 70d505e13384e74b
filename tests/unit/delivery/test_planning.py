"""From rows to the Assign to propose: patterns, rooms, retries, bounds; and never for nothing."""

from dataclasses import replace

import pytest

from dledger.state.consumers.granting import Assign
from dledger.state.consumers.settings import ConsumeOrder, GroupSettings
from dledger.state.consumers.table import (
    Consumer,
    ConsumerGroup,
    Epochs,
    Grant,
    QueueKey,
    Subscribed,
)
from dledger.state.values import Topic
from dledger_broker.delivery.planning import plan
from dledger_broker.delivery.subscribed import Subscription
from tests.unit.state.consumer_kit import BILLING, DEAD, orders, retry_topic
from tests.unit.state.kit import GROUP, TOPIC

SETTINGS = GroupSettings(GROUP, DEAD)


def group(*names: str, **fields: object) -> ConsumerGroup:
    found = ConsumerGroup(BILLING, Epochs(group=1))
    for name in names:
        found.consumers[name] = replace(Consumer(1, 0, "", "", "", ()), **fields)  # type: ignore[arg-type]
    return found


def planned(rows: ConsumerGroup, *topics: Topic, **settings: object) -> dict[str, list[str]]:
    """Return the queues of each consumer, as the command says."""
    chosen = replace(SETTINGS, **settings)  # type: ignore[arg-type]
    by_id = {topic.topic_id: topic for topic in topics}
    command = plan(rows, chosen, retry_topic(chosen), by_id).command
    assert isinstance(command, Assign)
    names = {TOPIC: "t", BILLING: "r"}
    dealt: dict[str, list[str]] = {}
    for topic_id, places in command.topics:
        for queue, place in enumerate(places):
            if place:
                taker = command.consumers[place - 1]
                dealt.setdefault(taker, []).append(f"{names[topic_id]}{queue}")
    return dealt


@pytest.mark.parametrize("order", list(ConsumeOrder))
def test_the_retry_queue_is_read_without_asking(order: ConsumeOrder) -> None:
    """In an ordered group, too: dead letters that are sent again come there."""
    dealt = planned(group("c1"), orders(), order=order)
    assert dealt == {"c1": ["r0", "t0", "t1", "t2", "t3"]}


def test_rooms_come_from_the_names_of_broker_groups() -> None:
    near = group("c1", "c2", room="east")
    dealt = planned(near, orders(group="east@g1"), strategy="nearby-room")
    assert [len(queues) for queues in dealt.values()] == [3, 2]
    far = planned(near, orders(group="west@g1"), strategy="machine-room")
    assert far == {"c1": ["r0"]}


def test_what_a_strategy_cannot_deal_is_told_and_changes_nothing() -> None:
    found = plan(
        group("c1", room="east"), replace(SETTINGS, strategy="nearby-room"), retry_topic(),
        {TOPIC: orders()},
    )  # fmt: skip
    assert found.command is None
    assert "broker group g1 names no room" in found.problems[0]


def test_too_many_queues_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger_broker.delivery.planning.QUEUES_PER_CONSUMER_GROUP_MAX", 4)
    found = plan(group("c1"), SETTINGS, retry_topic(), {TOPIC: orders()})
    assert found.command is None
    assert found.problems == ["5 queues are subscribed to, at most 4"]


def test_nothing_is_proposed_when_what_is_stored_is_right() -> None:
    rows = group("c1")
    for key in (*(QueueKey(TOPIC, queue) for queue in range(4)), QueueKey(BILLING, 0)):
        rows.grants[key] = Grant("c1", "c1", 3, 0)
    assert plan(rows, SETTINGS, retry_topic(), {TOPIC: orders()}).command is not None
    rows.epochs = Epochs(group=1, assignment=1)
    assert plan(rows, SETTINGS, retry_topic(), {TOPIC: orders()}).command is None


def test_a_static_consumer_keeps_its_place_under_another_id() -> None:
    rows = group("c1", "c2")
    rows.consumers["z9"] = replace(rows.consumers.pop("c1"), instance="a")
    dealt = planned(rows, orders(), strategy="average")
    assert dealt["z9"] == ["r0", "t0", "t1"]


def test_patterns_mean_topics_of_users_that_may_be_read() -> None:
    every = Subscription([Subscribed(".*", pattern=True)])
    assert every.wants(orders())
    assert not every.wants(retry_topic())
    assert not every.wants(replace(orders(), permission=2))
    assert not every.wants(replace(orders(), deleted=True))
    assert Subscription([Subscribed("%RETRY%billing")]).wants(retry_topic())
