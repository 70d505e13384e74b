"""Priorities (S48): which queues a message may go to, and which record is handed out first."""

import random

import pytest

from dledger_client import AsyncProducer
from dledger_client._core.consumer.actions import OpenFetch
from dledger_client._core.consumer.core import ConsumerCore
from dledger_client._core.consumer.state import Place
from dledger_client._core.members import MemberChoice
from dledger_client._core.routes import RouteTable, topic_route
from dledger_client.errors import MessageIllegal
from dledger_proto.errors import Code
from dledger_proto.v1 import routes_pb2
from tests.unit.client.fake_member import FakeCluster
from tests.unit.client.helpers import run
from tests.unit.client.model_cluster import ModelGroup, topic_id, topic_message
from tests.unit.client.test_consumer_core import make_frame

TOPIC = "priority"


def test_the_priority_of_a_queue_is_its_place_among_those_of_its_group() -> None:
    parts = [("a", 2), ("b", 3), ("a", 1)]
    route = topic_route(topic_message(TOPIC, parts))
    assert [route.priority_of(queue) for queue in range(7)] == [0, 1, 0, 1, 2, 2, 0]
    plain = topic_route(topic_message("t", parts))
    assert {plain.priority_of(queue) for queue in range(6)} == {0}


def test_a_message_goes_to_a_queue_of_its_priority() -> None:
    async def body() -> None:
        topics = {TOPIC: [("a", 3), ("b", 3)], "t": [("a", 1)]}
        async with (
            FakeCluster({"a": 3, "b": 3}, topics) as cluster,
            AsyncProducer(cluster.bootstrap) as producer,
        ):
            queues = [(await producer.send(TOPIC, b"x", priority=2)).queue for _ in range(4)]
            assert sorted(queues) == [2, 2, 5, 5]
            lowest = [(await producer.submit(TOPIC, b"x").wait()).queue for _ in range(4)]
            assert sorted(lowest) == [0, 0, 3, 3]
            (many, _) = await producer.send_many(TOPIC, [b"x", b"y"], priority=1)
            assert many.queue in (1, 4)
            for topic, priority, detail in (
                (TOPIC, 3, "priority: 3, topic priority has priorities 0 to 2"),
                ("t", 1, "priority: 1, topic t is not of type priority"),
                (TOPIC, -1, "priority: -1, must be an integer from 0"),
            ):
                with pytest.raises(MessageIllegal) as raised:
                    await producer.send(topic, b"x", priority=priority)
                assert raised.value.detail == detail
            with pytest.raises(MessageIllegal, match="2 are given, at most one may be"):
                await producer.send(TOPIC, b"x", priority=1, queue=0)

    run(body())


def test_a_send_that_moves_to_another_group_keeps_its_priority() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 1, "b": 1}, {TOPIC: [("a", 2), ("b", 3)]}) as cluster,
            AsyncProducer(cluster.bootstrap) as producer,
        ):
            await producer.send(TOPIC, b"x", priority=1)
            cluster.leader("a").script.extend([Code.DISK_FULL] * 1_000)
            results = [await producer.send(TOPIC, b"x", priority=1) for _ in range(8)]
            assert {result.queue for result in results} == {3}

    run(body())


def test_a_delay_topic_takes_only_messages_with_a_delivery_time() -> None:
    async def body() -> None:
        async with (
            FakeCluster(topics={"delay": [("a", 1)]}) as cluster,
            AsyncProducer(cluster.bootstrap) as producer,
        ):
            with pytest.raises(MessageIllegal, match="topic delay is DELAY: each message needs a"):
                await producer.send("delay", b"x")
            await producer.send("delay", b"x", delay_ms=1)

    run(body())


def core_of(buffer_bytes: int) -> ConsumerCore:
    routes = RouteTable()
    routes.apply(
        routes_pb2.RoutesReply(
            full=True,
            cluster="c",
            groups=[ModelGroup("a", ["a0"]).route(), ModelGroup("b", ["b0"]).route()],
            topics=[topic_message(TOPIC, [("a", 3), ("b", 3)])],
        )
    )
    return ConsumerCore(
        routes, MemberChoice(), random.Random(1), prefer="leader", buffer_bytes=buffer_bytes
    )


def opened_by_place(core: ConsumerCore) -> dict[Place, int]:
    return {
        wanted.place: action.stream
        for action in core.take_actions()
        if isinstance(action, OpenFetch)
        for wanted in action.wanted
    }


def test_records_of_a_higher_priority_are_handed_out_first() -> None:
    """Whatever was buffered first; queues of one priority take turns."""
    core = core_of(1 << 20)
    for queue, group in ((0, "a"), (1, "a"), (2, "a"), (5, "b")):
        core.assign((TOPIC, queue), topic_id(TOPIC), group, 0)
    core.pump(0.0)
    streams = opened_by_place(core)
    assert len(set(streams.values())) == 4, "one for each group and priority"
    for stream in streams.values():
        core.frame(stream, make_frame(0), 0.0)
    taken = core.buffer.take(25)
    assert sorted(run.queue for run in taken[:2]) == [2, 5]
    assert [run.queue for run in taken[2:]] == [1]
    core.frame(streams[TOPIC, 5], make_frame(10), 0.0)
    assert [run.queue for run in core.buffer.take(1_000)] == [5, 1, 0]
    core.unassign((TOPIC, 5))
    core.assign((TOPIC, 2), topic_id(TOPIC), "a", 10)
    core.pump(0.0)
    (again,) = opened_by_place(core).values()
    core.frame(streams[TOPIC, 0], make_frame(10), 0.0)
    core.frame(again, make_frame(10), 0.0)
    assert [run.queue for run in core.buffer.take(1_000)] == [2, 0]


def test_a_full_buffer_of_a_backlog_keeps_no_urgent_record_away() -> None:
    core = core_of(buffer_bytes=600)
    for queue in range(2):
        core.assign((TOPIC, queue), topic_id(TOPIC), "a", 0)
    core.pump(0.0)
    streams = opened_by_place(core)
    low, high = streams[TOPIC, 0], streams[TOPIC, 1]
    for first in (0, 10):
        core.frame(low, make_frame(first), 0.0)
    assert (core.wants_more(low), core.wants_more(high)) == (False, True)
    for first in (0, 10):
        core.frame(high, make_frame(first), 0.0)
    assert (core.wants_more(low), core.wants_more(high)) == (False, False)
    assert [run.queue for run in core.buffer.take(10)] == [1]
    assert (core.wants_more(low), core.wants_more(high)) == (False, True)
    while core.buffer.take(100):
        pass
    assert (core.wants_more(low), core.wants_more(high)) == (True, True)
