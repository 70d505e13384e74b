"""Retention in real processes: old messages go by themselves, and readers go on behind them."""

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
from dledger_proto.limits import RETENTION_FOREVER
from tests.integration.cluster import eventually, running_cluster

RECORD = random.Random(1).randbytes(10_000)
BOUND = 100 * len(RECORD)


def test_expired_messages_go_and_others_stay(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            await cluster.leader()
            bootstrap = ",".join(member.address for member in cluster.members)
            async with AsyncAdmin(bootstrap) as admin, AsyncProducer(bootstrap) as producer:
                await admin.create_topic("short", queues_per_group=1, retention_ms=1_000)
                await admin.create_topic("small", queues_per_group=1, retention_bytes=BOUND)
                topic = await admin.create_topic("kept", queues_per_group=1)
                assert topic.retention_ms == 0
                await admin.update_topic("kept", retention_ms=RETENTION_FOREVER)
                assert (await admin.describe_topic("kept")).retention_ms == RETENTION_FOREVER
                for name in ("short", "small", "kept"):
                    for _ in range(4):
                        await producer.send_many(name, [RECORD] * 100)

                async def minimum(name: str) -> int:
                    return (await admin.queue_offsets(name))[0].minimum

                async def is_empty() -> bool:
                    return await minimum("short") == 400

                await eventually(is_empty, "all of a second ago is gone", 60)
                small = await minimum("small")
                assert 200 < small <= 300, "the bound, and a chunk of it at most"
                assert await minimum("kept") == 0
                await producer.send_many("short", [b"newer"])
                await read_on(bootstrap)

    asyncio.run(scenario())


async def read_on(bootstrap: str) -> None:
    """Who reads from the beginning gets what is left."""
    async with AsyncConsumer(bootstrap, ConsumerConfig()) as consumer:
        await consumer.assign("short", StartAt.FIRST)
        records: list[ConsumedRecord] = []
        async with asyncio.timeout(30):
            while not records:
                records += await consumer.poll(timeout_ms=1_000)
        assert [(record.offset, record.body) for record in records] == [(400, b"newer")]
