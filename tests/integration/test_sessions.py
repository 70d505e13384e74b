"""Sessions of consumers over real processes and real gRPC (D20): grants, silence, hints, bounds."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from dledger_client import AsyncAdmin, ConsumerGroupNotFound
from dledger_proto.errors import Code
from dledger_proto.rpc import raw
from dledger_proto.rpc.status import from_rpc_error
from dledger_proto.v1 import delivery_pb2 as pb
from dledger_proto.v1 import delivery_pb2_grpc as rpc
from tests.integration.cluster import Cluster, Member, eventually, running_cluster

SESSION = "/dledger.v1.Delivery/Session"


class Consumer:
    """A consumer that gives back at once what it is asked for."""

    def __init__(self, member: Member, name: str, **join: Any) -> None:
        self.name = name
        self.call: Any = raw.raw_stream(member.channel, SESSION)(metadata=member.metadata)
        self.held: dict[tuple[str, int], int] = {}
        self.nudges = 0
        self.ended = Code.OK
        self.error = Code.OK
        self.hint = ""
        join = {"consumer_group": "g", "subscriptions": [pb.Subscription(topic="t")], **join}
        self._join = pb.Join(member_id=name, client="test", **join)
        self._task = asyncio.create_task(self._run())

    async def say(self, **what: Any) -> None:
        await self.call.write(pb.SessionRequest(**what).SerializeToString())

    async def _run(self) -> None:
        try:
            await self.say(join=self._join)
            while isinstance(data := await self.call.read(), bytes):
                reply = pb.SessionReply.FromString(data)
                match reply.WhichOneof("what"):
                    case "assignment":
                        await self._take(reply.assignment)
                    case "nudge":
                        self.nudges += 1
                    case "ended":
                        self.ended = Code(reply.ended.code)
                    case _:
                        continue
        except grpc.aio.AioRpcError as error:
            found = from_rpc_error(error)
            self.error, self.hint = found.code, found.hint

    async def _take(self, assignment: pb.Assignment) -> None:
        revoked = [queue for queue in assignment.queues if queue.revoked]
        self.held = {
            (queue.topic, queue.queue): queue.epoch
            for queue in assignment.queues
            if not queue.revoked
        }
        if revoked:
            await self.say(give_back=pb.GiveBack(queues=revoked))

    async def close(self) -> None:
        self.call.cancel()
        self._task.cancel()
        await asyncio.wait([self._task])


def delivery(member: Member) -> Any:
    return rpc.DeliveryStub(member.channel)


@asynccontextmanager
async def group_of_consumers(
    folder: Path, queues: int = 4, *, secure: bool = False
) -> AsyncIterator[tuple[Cluster, Member]]:
    """Yield a cluster with the topic `t` and the consumer group `g`, and its leader."""
    async with running_cluster(folder, secure=secure) as cluster:
        leader = await cluster.leader()
        await cluster.create_topic("t", queues)
        request = pb.CreateConsumerGroupRequest(name="g", id=b"g" * 16)
        stub = delivery(leader)
        reply = await stub.CreateConsumerGroup(request, metadata=leader.metadata, timeout=10)
        request.known_index = reply.known_index
        if not reply.group.name:
            await stub.CreateConsumerGroup(request, metadata=leader.metadata, timeout=10)
        yield cluster, leader


async def shared(consumers: list[Consumer], queues: int) -> None:
    async def settled() -> bool:
        counts = [len(consumer.held) for consumer in consumers]
        together = {key for consumer in consumers for key in consumer.held}
        return sum(counts) == len(together) == queues and max(counts) - min(counts) <= 1

    await eventually(settled, "every queue has one holder")


def test_queues_are_shared_given_back_and_served_after_a_death(
    tmp_path: Path, secure: bool
) -> None:
    async def run() -> None:
        async with group_of_consumers(tmp_path, secure=secure) as (cluster, leader):
            first = Consumer(leader, "c1")
            await shared([first], 5)
            second = Consumer(leader, "c2")
            await shared([first, second], 5)
            found = await delivery(leader).DescribeConsumerGroup(
                pb.DescribeConsumerGroupRequest(name="g"), metadata=leader.metadata, timeout=10
            )
            assert [(each.id, each.connected) for each in found.members] == [
                ("c1", True), ("c2", True),
            ]  # fmt: skip
            assert {(each.topic, each.queue): each.epoch for each in found.queues} == {
                **first.held, **second.held,
            }  # fmt: skip
            assert found.strategy == "sticky"
            assert not found.problems
            assert not found.unassigned
            async with AsyncAdmin([leader.address], cluster.connection) as admin:
                told = await admin.describe_consumer_group("g")
                assert [each.member_id for each in told.consumers] == ["c1", "c2"]
                assert {place: grant.holder for place, grant in told.queues.items()} == {
                    **dict.fromkeys(first.held, "c1"), **dict.fromkeys(second.held, "c2"),
                }  # fmt: skip
                assert (told.name, told.coordinator, told.topics) == ("g", leader.group, ("t",))
                with pytest.raises(ConsumerGroupNotFound):
                    await admin.describe_consumer_group("nobody")
            nudged = await delivery(leader).NudgeConsumers(
                pb.NudgeConsumersRequest(name="g"), metadata=leader.metadata, timeout=10
            )
            assert nudged.told == 2
            await first.close()
            await shared([second], 5)
            assert second.nudges == 1
            await second.say(leave=pb.Leave())

            async def ended() -> bool:
                return second.ended is Code.SESSION_ENDED

            await eventually(ended, "the consumer has left")
            await second.close()

    asyncio.run(run())


def test_a_consumer_whose_instance_name_another_one_takes_ends_for_good(tmp_path: Path) -> None:
    async def run() -> None:
        async with group_of_consumers(tmp_path) as (_, leader):
            first = Consumer(leader, "c1", instance="one")
            await shared([first], 5)
            second = Consumer(leader, "c2", instance="one")
            await shared([second], 5)

            async def ended() -> bool:
                return first.ended is Code.FENCED

            await eventually(ended, "the first one hears that its name is taken")
            await first.close()
            await second.close()

    asyncio.run(run())


def test_refusals_break_the_stream_with_a_status(tmp_path: Path) -> None:
    async def run() -> None:
        async with group_of_consumers(tmp_path) as (cluster, leader):
            follower = (await cluster.followers())[0]

            async def refused(member: Member, **join: Any) -> Consumer:
                consumer = Consumer(member, "c9", **join)

                async def over() -> bool:
                    return consumer.error is not Code.OK

                await eventually(over, "the join is refused")
                return consumer

            elsewhere = await refused(follower)
            assert (elsewhere.error, elsewhere.hint) == (Code.NOT_LEADER, leader.address)
            pattern = [pb.Subscription(topic="x.*", pattern=True)]
            assert (await refused(leader, subscriptions=pattern)).error is Code.TOPIC_NOT_FOUND
            wrong = [pb.Subscription(topic="(a", pattern=True)]
            assert (await refused(leader, subscriptions=wrong)).error is Code.INVALID_ARGUMENT
            ordered = await refused(leader, order=pb.CONSUME_ORDER_QUEUE)
            assert ordered.error is Code.ORDER_CONFLICT
            first = Consumer(leader, "c1")
            await shared([first], 5)
            every = [pb.Subscription(topic="t.*", pattern=True)]
            other = await refused(leader, subscriptions=every)
            assert other.error is Code.SUBSCRIPTION_CONFLICT
            await first.close()

    asyncio.run(run())


def test_a_pattern_takes_up_topics_and_queues_that_come_later(tmp_path: Path) -> None:
    async def run() -> None:
        async with group_of_consumers(tmp_path) as (cluster, leader):
            every = [pb.Subscription(topic="t.*", pattern=True)]
            consumer = Consumer(leader, "c1", subscriptions=every)
            await shared([consumer], 5)
            await cluster.create_topic("t2", 3)
            await shared([consumer], 8)
            await consumer.close()

    asyncio.run(run())


@pytest.mark.parametrize("topics", [9])
def test_ten_consumers_share_nine_hundred_queues(
    tmp_path: Path, topics: int, record_property: Any
) -> None:
    """How long a join takes is recorded, and not asserted: a test machine does other work."""

    async def run() -> None:
        async with group_of_consumers(tmp_path, 100) as (cluster, leader):
            for number in range(1, topics):
                await cluster.create_topic(f"t{number}", 100)
            every = [pb.Subscription(topic="t.*", pattern=True)]
            consumers: list[Consumer] = []
            seconds: list[float] = []
            for number in range(10):
                began = time.monotonic()
                consumers.append(Consumer(leader, f"c{number}", subscriptions=every))
                await shared(consumers, 100 * topics + 1)
                seconds.append(time.monotonic() - began)
            record_property("join_seconds", sorted(seconds)[len(seconds) // 2])
            print("median seconds of a join:", sorted(seconds)[len(seconds) // 2], seconds)
            for consumer in consumers:
                await consumer.close()

    asyncio.run(run())
