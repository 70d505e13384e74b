"""One old message, and one that waits, keep no segment: real processes, with a leader killed."""

import asyncio
import random
from pathlib import Path

from dledger_client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ConsumedRecord,
    ConsumerConfig,
    StartAt,
)
from dledger_proto.limits import MIB
from tests.integration.cluster import Cluster, eventually, running_cluster

RECORD = random.Random(1).randbytes(100_000)


async def first_positions(cluster: Cluster) -> list[int]:
    return [(await member.status()).first_position for member in cluster.running()]


async def read_all(bootstrap: str, topic: str, count: int) -> list[tuple[int, bytes]]:
    """Return offset and body of a topic's records."""
    records: list[ConsumedRecord] = []
    async with AsyncConsumer(bootstrap, ConsumerConfig()) as consumer:
        await consumer.assign(topic, StartAt.FIRST)
        async with asyncio.timeout(60):
            while len(records) < count:
                records += await consumer.poll(timeout_ms=1_000)
    return [(record.offset, record.body) for record in records]


def test_old_messages_keep_no_segment_and_are_read_as_before(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path, storage__segment_size_bytes=8 * MIB) as cluster:
            await cluster.leader()
            bootstrap = ",".join(member.address for member in cluster.members)
            async with AsyncAdmin(bootstrap) as admin, AsyncProducer(bootstrap) as producer:
                await admin.create_topic("old", queues_per_group=1)
                await admin.create_topic("much", queues_per_group=1)
                for at in range(5):
                    await producer.send_many("old", [b"old %d" % at])
                later = await producer.send("old", b"later", delay_ms=20_000)
                assert later.offset < 0
                for _ in range(12):
                    await producer.send_many("much", [RECORD] * 40)
                await admin.trim("much", 0, 480)

                async def are_trimmed() -> bool:
                    return min(await first_positions(cluster)) > 24 * MIB

                await eventually(are_trimmed, "every member lets its oldest segments go", 60)
                old = [(at, b"old %d" % at) for at in range(5)]
                assert await read_all(bootstrap, "old", 5) == old
                leader = await cluster.leader()
                cluster.local.kill(leader.name)
                cluster.local.start(leader.name)
                assert await read_all(bootstrap, "old", 6) == [*old, (5, b"later")]

                async def are_one() -> bool:
                    states = [await member.status() for member in cluster.members]
                    return len({(state.applied_index, state.digest) for state in states}) == 1

                await eventually(are_one, "all members hold the same", 60)

    asyncio.run(scenario())
