"""Calls about many queues: bounds of one moment, samples within them, refusals one by one."""

import asyncio
from collections.abc import Sequence

import pytest

from dledger.state.queries import Queries
from dledger.state.values import QueueSpan
from dledger_broker.read.plan_reads import plan_reads, sample_offsets
from dledger_broker.usecases.messaging import Messaging, Queue
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import LOOKS_PER_CALL_MAX, QUEUES_PER_CALL_MAX
from dledger_proto.v1 import broker_pb2 as pb
from tests.unit.broker.fakes import TOPIC, FakeMachine
from tests.unit.broker.test_messaging import Host, messaging


class FakeQueries(Queries):
    """Queue n has batches of 10 records and 100 * (n + 1) bytes, from offset 5 to `ends[n]`."""

    def __init__(self, ends: Sequence[int]) -> None:
        self.ends = list(ends)
        self.looks = 0

    def queue_bounds(self, topic_id: bytes, queue: int) -> tuple[int, int]:
        if queue >= len(self.ends):
            raise DledgerError(Code.QUEUE_NOT_FOUND, f"queue {queue}")
        return 5, self.ends[queue]

    def offset_by_time(self, topic_id: bytes, queue: int, time_ms: int) -> int:
        return time_ms

    def row_at(self, topic_id: bytes, queue: int, offset: int) -> QueueSpan:
        self.looks += 1
        self.ends = [end + 10 for end in self.ends]  # somebody goes on writing
        return QueueSpan(offset // 10 * 10, 0, 0, 10, 100 * (queue + 1), 1)


class Core(Messaging):
    """Resolves everything but some topics."""

    def __init__(self, queries: Queries) -> None:
        super().__init__(messaging(Host(), b"", 0).view)
        self.view.machine = FakeMachine(queries, 77)

    async def resolve(self, topic: str, topic_id: bytes, queue: int) -> Queue:
        if topic == "gone":
            raise DledgerError(Code.TOPIC_NOT_FOUND, "gone")
        if topic == "away":
            raise DledgerError(Code.NO_LEADER, "nobody leads")
        return Queue(TOPIC, queue)


def planned(
    queries: FakeQueries, queues: Sequence[int], samples: int = 4, times: Sequence[int] = ()
) -> pb.PlanReadsReply:
    request = pb.PlanReadsRequest(samples=samples)
    for queue in queues:
        request.queues.add(queue=pb.QueueRef(topic="t", queue=queue), times_ms=times)
    return asyncio.run(plan_reads(Core(queries), request))


def test_bounds_and_samples_are_of_one_moment() -> None:
    """Whatever is written meanwhile: bounds are those before, offsets and samples lie within."""
    reply = planned(FakeQueries([25, 105]), [0, 1], times=[7, 500])
    assert reply.applied_index == 77
    assert [(row.minimum, row.maximum) for row in reply.queues] == [(5, 25), (5, 105)]
    assert [list(row.offsets) for row in reply.queues] == [[7, 25], [7, 105]]
    assert [sample.offset for sample in reply.queues[0].samples] == [0, 10, 20]
    assert [sample.size for sample in reply.queues[1].samples] == [200] * 4


def test_a_queue_that_is_not_here_is_refused_alone() -> None:
    """A topic that is gone, or a queue, leaves the others answered."""
    request = pb.PlanReadsRequest(samples=1)
    for topic, queue in (("t", 0), ("gone", 0), ("t", 9)):
        request.queues.add(queue=pb.QueueRef(topic=topic, queue=queue))
    reply = asyncio.run(plan_reads(Core(FakeQueries([6])), request))
    codes = [row.code for row in reply.queues]
    assert codes == [Code.OK, Code.TOPIC_NOT_FOUND, Code.QUEUE_NOT_FOUND]
    request.queues.add(queue=pb.QueueRef(topic="away"))
    with pytest.raises(DledgerError, match="NO_LEADER"):
        asyncio.run(plan_reads(Core(FakeQueries([6])), request))


def test_the_work_of_a_call_is_bounded() -> None:
    """Many queues get fewer samples each; too many times are refused."""
    queries = FakeQueries([1_000_000] * QUEUES_PER_CALL_MAX)
    reply = planned(queries, range(QUEUES_PER_CALL_MAX), samples=1_000, times=[1])
    assert queries.looks <= LOOKS_PER_CALL_MAX
    assert all(len(row.samples) == 1 for row in reply.queues)
    with pytest.raises(DledgerError, match="INVALID_ARGUMENT"):
        planned(FakeQueries([9]), [0, 1], times=list(range(LOOKS_PER_CALL_MAX)))


def test_samples_are_spread() -> None:
    """Evenly, each offset at most once, none outside."""
    assert sample_offsets(5, 5, 4) == []
    assert sample_offsets(5, 7, 4) == [5, 6]
    assert sample_offsets(0, 100, 4) == [12, 37, 62, 87]
    assert sample_offsets(0, 100, 0) == []
