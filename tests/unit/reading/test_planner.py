"""How plans are asked for: calls that a member answers, and what comes in between.

Goal: no number of queues or times is beyond the bounds of a call, and a trim while a plan is made
changes the plan and not its making. Method: a cluster behind the planner that answers calls from
memory.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from google.protobuf.message import Message

from dledger_client._core.routes import RouteTable
from dledger_client._shell import calls
from dledger_client._shell.wire import Method
from dledger_client.errors import ClientError, OffsetOutOfRange, TopicNotFound, error_of
from dledger_client.reading import Edge, HoldRequest, Planner, planner
from dledger_client.reading.planner import TRIES
from dledger_proto.errors import Code
from dledger_proto.limits import LOOKS_PER_CALL_MAX, QUEUES_PER_CALL_MAX
from dledger_proto.v1 import broker_pb2 as pb
from tests.unit.proto.samples import TOPIC_ID
from tests.unit.reading.fakes import GROUP, TOPIC


class FakeCluster:
    """Stands for a cluster, what is asked of it, and one topic."""

    def __init__(self, queues: int, trims: int) -> None:
        self.queues = queues
        self.trims = trims
        """So many looks meet a trim between a queue's bounds and its samples."""
        self.late = 0
        """So many looks at a group that has not heard of the topic yet."""
        self.is_gone = False
        """The topic was deleted; groups hear of it behind the control group."""
        self.requests: list[pb.PlanReadsRequest] = []
        self.routes = RouteTable()
        self.generator = random.Random(1)
        self.config = SimpleNamespace(call_timeout_ms=1_000)

    def start(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    async def wait_loaded(self, _seconds: float) -> None:
        """Routes are there."""

    async def describe(self, name: str) -> SimpleNamespace:
        if self.is_gone:
            raise error_of(Code.TOPIC_NOT_FOUND, f"topic {name!r} does not exist")
        return SimpleNamespace(
            name=name, id=TOPIC_ID, all_queues=self.queues,
            group_of=lambda _queue: GROUP,
        )  # fmt: skip

    async def list_topics(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=TOPIC.rstrip("s"))]

    async def call(
        self, method: Method[Message, Message], request: Message, *, group: str
    ) -> Message:
        assert group == GROUP
        if isinstance(request, pb.HoldAllRequest):
            held = len(request.queues)
            return pb.HoldAllReply(codes=[0] * held, details=[""] * held)
        assert isinstance(request, pb.PlanReadsRequest)
        assert method is calls.PLAN_READS
        self.requests.append(request)
        reply = pb.PlanReadsReply()
        for wanted in request.queues:
            reply.queues.add(minimum=3, maximum=9, offsets=[5] * len(wanted.times_ms))
        if self.late:
            self.late -= 1
            reply.queues[0].Clear()
            reply.queues[0].code = int(
                Code.QUEUE_NOT_FOUND if self.late % 2 else Code.TOPIC_NOT_FOUND
            )
            reply.queues[0].detail = "not here"
        if self.trims:
            self.trims -= 1
            reply.queues[0].Clear()
            reply.queues[0].code = int(Code.OFFSET_OUT_OF_RANGE)
            reply.queues[0].detail = "offset 3, the earliest is 4"
        return reply


@contextmanager
def planner_of(fake: FakeCluster) -> Iterator[Planner]:
    """Yield a planner over it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "Cluster", lambda *_: fake)
        patch.setattr(planner, "Queries", lambda _: fake)
        with Planner("a:1") as found:
            yield found


@pytest.mark.parametrize("times", [(), (1,), (1, 2, 3)])
def test_calls_are_within_their_bounds(times: Sequence[int]) -> None:
    """Of queues, and of times in all; each queue is asked for once."""
    fake = FakeCluster(QUEUES_PER_CALL_MAX, 0)
    with planner_of(fake) as found:
        states = found.states([TOPIC], times)
    assert [state.queue for state in states] == [*range(QUEUES_PER_CALL_MAX)]
    assert all(state.by_time == dict.fromkeys(times, 5) for state in states)
    for request in fake.requests:
        assert len(request.queues) <= QUEUES_PER_CALL_MAX
        assert sum(len(wanted.times_ms) for wanted in request.queues) <= LOOKS_PER_CALL_MAX


def test_queues_are_asked_for_their_own_times() -> None:
    """Of a time that one queue alone is asked for the others say nothing."""
    fake = FakeCluster(3, 0)
    with planner_of(fake) as found:
        start = Edge(times={TOPIC: {0: 1, 1: 2, 2: 2}})
        plan = found.freeze([TOPIC], start, Edge(time_ms=9))
    assert [dict(each.state.by_time) for each in plan.queues] == [
        {1: 5, 9: 5}, {2: 5, 9: 5}, {2: 5, 9: 5}
    ]  # fmt: skip
    assert [(each.start, each.end) for each in plan.queues] == [(5, 5)] * 3
    asked = [list(wanted.times_ms) for request in fake.requests for wanted in request.queues]
    assert asked == [[1, 9], [2, 9], [2, 9]]


def test_a_trim_between_two_looks_of_a_member_is_looked_at_anew() -> None:
    """As often as a trim between bounds and holds is."""
    hold = HoldRequest("job", 60_000)
    fake = FakeCluster(2, TRIES - 1)
    with planner_of(fake) as found:
        plan = found.freeze([TOPIC], Edge(), Edge(), hold=hold)
    assert [(each.start, each.end) for each in plan.queues] == [(3, 9), (3, 9)]
    with (
        planner_of(FakeCluster(2, TRIES)) as found,
        pytest.raises(OffsetOutOfRange, match="the earliest is 4"),
    ):
        found.freeze([TOPIC], Edge(), Edge(), hold=hold)


def test_a_queue_that_its_group_has_not_heard_of_yet_is_waited_for() -> None:
    """The control group has given it the queue; it hears of that a moment later, or much later."""
    fake = FakeCluster(2, trims=0)
    fake.late = 3
    with planner_of(fake) as opened:
        assert [state.queue for state in opened.states([TOPIC])] == [0, 1]
        assert len(fake.requests) == 4
        fake.late = 1 << 20
        with pytest.raises(ClientError, match=f"{TOPIC}/0: not here"):
            opened.states([TOPIC])


def test_a_topic_that_is_gone_is_not_waited_for() -> None:
    """The control group says so, which is asked each time."""
    fake = FakeCluster(2, trims=0)
    fake.late, fake.config.call_timeout_ms = 1 << 20, 3_600_000

    async def call(*arguments: Any, **more: Any) -> Message:
        fake.is_gone = True
        return await FakeCluster.call(fake, *arguments, **more)

    with (
        planner_of(fake) as opened,
        patch.object(fake, "call", call),
        pytest.raises(TopicNotFound, match="'orders' is not known; did you mean 'order'"),
    ):
        opened.states([TOPIC])
    assert len(fake.requests) == 1
