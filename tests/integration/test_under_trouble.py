"""Real clients and real members: overload, leaders that change, a name server that is away."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import grpc.aio

from dledger_broker.local.cluster import NAME_SERVER
from dledger_client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ConsumedRecord,
    ConsumerConfig,
    ProducerConfig,
    StartAt,
)
from dledger_proto.errors import Code
from dledger_proto.rpc import raw
from dledger_proto.rpc.frames import AnswerRow
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import routes_pb2
from tests.integration.cluster import (
    DEADLINE_SECONDS,
    AppendClient,
    Cluster,
    batch_of,
    eventually,
    running_cluster,
)

TOPIC = "orders"
STREAMS = 160
"""So many wait for one place that some of them wait for longer than a frame may."""
FRAMES = 5
PRODUCERS = 6
RECORDS = 150


async def routes(cluster: Cluster) -> routes_pb2.RoutesReply:
    """What the name server says."""

    async with grpc.aio.insecure_channel(cluster.local.name_server) as channel:
        answer = await raw.raw_unary(channel, "/dledger.v1.Routes/Get")(b"", timeout=2)
    return routes_pb2.RoutesReply.FromString(answer)


def test_admission_refuses_sends_while_administration_answers(tmp_path: Path) -> None:
    """More appends at once than the bound lets in: BUSY, never unknown, and nobody else suffers."""

    async def flood(cluster: Cluster, topic_id: bytes) -> list[AnswerRow]:
        leader = await cluster.leader()
        client = AppendClient(leader)
        for number in range(FRAMES):
            await client.send(batch_of(topic_id, [b"f%d" % number]))
        rows = await client.wait(FRAMES)
        client.cancel()
        return rows

    async def produce(cluster: Cluster, number: int) -> None:
        config = ProducerConfig(batch_records=1, timeout_ms=60_000)
        async with AsyncProducer(cluster.local.name_server, config) as producer:
            futures = [
                producer.submit(TOPIC, b"p%d-%d" % (number, place), queue=1)
                for place in range(RECORDS)
            ]
            await producer.flush()
            assert not [future.exception() for future in futures if future.exception()]

    async def administer(cluster: Cluster, done: asyncio.Event) -> int:
        rounds = 0
        while not done.is_set() or not rounds:
            for member in cluster.members:
                await member.status()
            request = pb.CreateTopicRequest(name=f"t{rounds}", write_queues_per_group=1)
            await cluster.members[rounds % 3].admin.CreateTopic(request, timeout=5)
            rounds += 1
        return rounds

    async def run() -> None:
        async with running_cluster(tmp_path, admission__append_batches_max=1) as cluster:
            await cluster.leader()
            topic = await cluster.create_topic(TOPIC, queues=2)
            done = asyncio.Event()
            admin = asyncio.create_task(administer(cluster, done))
            producers = asyncio.gather(*(produce(cluster, n) for n in range(PRODUCERS)))
            answers = await asyncio.gather(*(flood(cluster, topic.id) for _ in range(STREAMS)))
            await producers
            done.set()
            assert await admin > 0
            codes = Counter(row.code for rows in answers for row in rows)
            assert codes.keys() == {Code.OK, Code.BUSY}, codes
            leader = await cluster.leader()
            bodies = await leader.read_all(TOPIC, 0, codes[Code.OK])
            assert len(bodies) == codes[Code.OK], "what was refused is not stored"
            stored = await leader.read_all(TOPIC, 1, PRODUCERS * RECORDS)
            assert Counter(stored) == Counter(
                b"p%d-%d" % (number, place)
                for number in range(PRODUCERS)
                for place in range(RECORDS)
            ), "every producer waited its turn, and each record is there once"

    asyncio.run(run())


def test_a_consumer_reads_on_at_the_right_offset_across_leader_changes(
    tmp_path: Path, secure: bool
) -> None:
    """Handed over, killed, handed over: no repeat, no gap, in order, up to the last record."""
    changes = 4
    total = 400

    async def read(consumer: AsyncConsumer, seen: list[ConsumedRecord], count: int) -> None:
        async with asyncio.timeout(3 * DEADLINE_SECONDS):
            while len(seen) < count:
                seen += await consumer.poll(1_000, 500)

    async def run() -> None:
        async with running_cluster(tmp_path, secure=secure) as cluster:
            await cluster.leader()
            address, there = cluster.local.name_server, cluster.connection
            sending = ProducerConfig(timeout_ms=60_000, connection=there)
            await cluster.create_topic(TOPIC, queues=1)
            by_leader = ConsumerConfig(start_at=StartAt.FIRST, connection=there)
            by_follower = replace(by_leader, prefer="follower")
            async with (
                AsyncProducer(address, sending) as producer,
                AsyncConsumer(address, by_leader) as consumer,
                AsyncConsumer(address, by_follower) as reader,
                AsyncAdmin(address, there) as admin,
            ):
                seen: list[ConsumedRecord] = []
                followed: list[ConsumedRecord] = []
                await consumer.assign(TOPIC)
                await reader.assign(TOPIC)
                for change in range(changes):
                    for place in range(total // changes):
                        producer.submit(TOPIC, b"%d" % (change * total // changes + place))
                        if place == total // changes // 2:
                            leader = await cluster.leader()
                            if change % 2:
                                cluster.local.kill(leader.name)
                                await cluster.leader(other_than=leader.name)
                                cluster.local.start(leader.name)
                            else:
                                heir, term = await admin.transfer_leadership(cluster.local.group)
                                assert heir != leader.name
                                assert term > 1
                    await producer.flush()
                    await read(consumer, seen, (change + 1) * total // changes)
                await read(reader, followed, total)
            for records in (seen, followed):
                assert [record.offset for record in records] == list(range(total))
                assert [record.body for record in records] == [b"%d" % n for n in range(total)]

    asyncio.run(run())


def test_a_name_server_that_comes_back_learns_what_it_missed(tmp_path: Path) -> None:
    """Meanwhile members serve, a leader falls and a topic is made; clients that know them go on."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            await cluster.create_topic(TOPIC, queues=1)
            config = ProducerConfig(timeout_ms=60_000)
            async with AsyncProducer(cluster.local.name_server, config) as producer:
                await producer.send(TOPIC, b"before")
                cluster.local.kill(NAME_SERVER)
                cluster.local.kill(leader.name)
                successor = await cluster.leader(other_than=leader.name)
                await cluster.create_topic("meanwhile", queues=1)
                result = await producer.send(TOPIC, b"without a name server")
                assert result.offset == 1
                cluster.local.start(NAME_SERVER)
                cluster.local.start(leader.name)

                async def learned() -> bool:
                    reply = await routes(cluster)
                    names = {each.name for each in reply.topics}
                    return bool(
                        reply.groups
                        and reply.groups[0].leader == (await cluster.leader()).name
                        and len(reply.groups[0].members) == 3
                        and names == {TOPIC, "meanwhile"}
                    )

                await eventually(learned, f"leader, members, topics (was {successor.name})")
                assert (await producer.send("meanwhile", b"x")).offset == 0

    asyncio.run(run())
