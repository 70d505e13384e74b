"""What the hot path counts, and which of it gets series."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from dledger.raft.api import Leadership, Role
from dledger.state.results import Appended
from dledger.state.values import LayoutPart, Topic, TopicType
from dledger.types import LogIndex, MemberId, Settled, Term
from dledger_broker.append.router import AppendRouter, PendingBatch
from dledger_broker.group.group_view import GroupView
from dledger_broker.metrics import meters as module
from dledger_broker.metrics.cut import cut, is_system
from dledger_broker.metrics.meters import CountedTrace, GroupMeters, ProcessMeters, Traffic
from dledger_broker.metrics.of_topics import OfTopics
from dledger_monitoring.series import Sheet
from dledger_proto.errors import Code, Outcome
from tests.unit.broker.fakes import NAMES, AnswerList, FakeForwarder, FakeHost, ManualClock
from tests.unit.state.kit import OTHER_TOPIC, TOPIC, batch


def topic(name: str, topic_id: bytes = TOPIC) -> Topic:
    return Topic(topic_id, name, TopicType.NORMAL, 1, (LayoutPart("g", 1),), 1, 1, 6, 1)


class Trace:
    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, name: str, **fields: object) -> None:
        self.events.append(name)


def test_events_are_counted_and_passed_on() -> None:
    trace, meters = Trace(), GroupMeters()
    counted = CountedTrace(trace, meters)
    counted.event("campaign", term=1)
    counted.event("link_up", peer="n2", address="")
    counted.event("link_up", peer="n2", address="")
    assert meters.events == {"campaign": 1, "link_up": 2}
    assert meters.connects == {"n2": 2}
    assert trace.events == ["campaign", "link_up", "link_up"]


def test_a_leader_counts_once_in_a_term() -> None:
    meters, n1, n2 = GroupMeters(), MemberId("n1"), MemberId("n2")
    for role, term, leader in (
        (Role.CANDIDATE, 1, None),
        (Role.FOLLOWER, 1, n1),
        (Role.FOLLOWER, 1, None),
        (Role.FOLLOWER, 1, n1),
        (Role.FOLLOWER, 2, n1),
        (Role.LEADER, 3, n2),
    ):
        meters.leadership_changed(Leadership(role, Term(term), leader))
    assert meters.leader_changes == 3


def test_topics_beyond_the_bound_are_in_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOPICS_METERED_MAX", 1)
    traffic = Traffic()
    traffic.add(TOPIC, 1, 10)
    traffic.add(OTHER_TOPIC, 2, 20)
    traffic.add(TOPIC, 3, 30)
    assert traffic.by_topic == {TOPIC: [4, 40]}
    assert (traffic.messages, traffic.size) == (6, 60)


def test_calls_are_counted_in_milliseconds() -> None:
    meters = ProcessMeters()
    meters.called("Status", 0.002)
    assert meters.calls["Status"].buckets()[:2] == [("1", 0), ("3", 1)]


class Stage:
    """A router that leads."""

    def __init__(self) -> None:
        self.clock, self.meters, self.host = ManualClock(), GroupMeters(), FakeHost()
        self.router = AppendRouter(self.host, NAMES, FakeForwarder().send, self.clock, self.meters)

    async def settle(self, settled: Settled) -> None:
        items = [
            PendingBatch(memoryview(batch(3)), 1, 200.0, AnswerList()),
            PendingBatch(memoryview(batch(2, topic=OTHER_TOPIC)), 2, 200.0, AnswerList()),
        ]
        self.router.submit(items, forwarded=False)
        await asyncio.sleep(0)
        self.clock.now += 0.5
        self.host.settle(settled)


def test_stored_batches_count_once_and_repeats_do_not() -> None:
    async def run() -> None:
        stage = Stage()
        results = [Appended(0, 3), Appended(7, 2, duplicate=True)]
        stored = Settled(Outcome.STORED, Code.OK, index=LogIndex(1), term=Term(3), results=results)
        await stage.settle(stored)
        assert stage.meters.stored.by_topic == {TOPIC: [3, len(batch(3))]}
        assert stage.meters.append_seconds.total == 0.5
        assert sum(stage.meters.message_sizes.counts) == 3

    asyncio.run(run())


@pytest.mark.parametrize("outcome", [Outcome.NOT_STORED, Outcome.UNKNOWN])
def test_what_is_not_stored_is_no_traffic(outcome: Outcome) -> None:
    async def run() -> None:
        stage = Stage()
        await stage.settle(Settled(outcome, Code.BUSY))
        assert stage.meters.stored.messages == 0
        counted = sum(stage.meters.append_seconds.counts)
        assert counted == (outcome is Outcome.UNKNOWN)

    asyncio.run(run())


def test_people_come_before_consumer_groups_and_the_rest_is_counted() -> None:
    names = ["%RETRY%a", "z", "%DLQ%a", "b"]
    chosen, left_out = cut([topic(name) for name in names], 3)
    assert [each.name for each in chosen] == ["b", "z", "%DLQ%a"]
    assert left_out == 1
    assert [is_system(name) for name in names] == ["true", "false", "true", "false"]


def test_counts_of_deleted_topics_go() -> None:
    """And those of the others stay; the sum keeps both."""
    meters = GroupMeters()
    meters.batch_stored(TOPIC, 3, 300)
    meters.batch_stored(OTHER_TOPIC, 1, 100)
    meters.fetched.add(OTHER_TOPIC, 1, 100)
    queries = SimpleNamespace(topics=lambda: [topic("orders")], consumer_groups=list)
    view = SimpleNamespace(names=NAMES, meters=meters, machine=SimpleNamespace(queries=queries))
    sheet = Sheet({})
    written(OfTopics(cast("GroupView", view), 10).collect(sheet))
    found = {family.name: family.samples for family in sheet.families()}
    (messages,) = found["rocketmq_messages_in"]
    assert (messages.labels["topic"], messages.value) == ("orders", 3)
    assert "rocketmq_messages_out" not in found
    assert meters.stored.by_topic.keys() == {TOPIC}
    assert [each.value for each in found["dledger_messages_in"]] == [4]


def written(steps: Iterator[None]) -> None:
    for _ in steps:
        pass
