"""Priorities in real processes: what is urgent overtakes a backlog, read by both consumers."""

import asyncio
import random
from pathlib import Path

from dledger_client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncPushConsumer,
    ConsumedRecord,
    ConsumerConfig,
    PushConfig,
    StartAt,
    TopicKind,
)
from tests.integration.cluster import Cluster, running_cluster

TOPIC = "jobs"
BACKLOG = 10_000
URGENT = 5
AFTER_MAX = 6_000
"""Records of the backlog that may come before the last urgent one: what is on its way already."""


def bootstrap_of(cluster: Cluster) -> str:
    return ",".join(member.address for member in cluster.members)


def test_urgent_records_overtake_a_backlog(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            await cluster.leader()
            bootstrap = bootstrap_of(cluster)
            async with AsyncAdmin(bootstrap) as admin:
                await admin.create_topic(TOPIC, queues_per_group=3, kind=TopicKind.PRIORITY)
            async with AsyncProducer(bootstrap) as producer:
                body = random.Random(1).randbytes(1_000)
                for _ in range(BACKLOG // 100):
                    await producer.send_many(TOPIC, [body] * 100)
                await polled(bootstrap, producer)
                await pushed(bootstrap, producer)

    asyncio.run(scenario())


async def urgent(producer: AsyncProducer, name: bytes) -> None:
    for priority in (1, 2):
        await producer.send_many(TOPIC, [name] * URGENT, priority=priority)


def check(seen: list[bytes], name: bytes) -> None:
    """The urgent records come soon after they were sent, although a backlog waits."""
    places = [place for place, body in enumerate(seen) if body == name]
    assert len(places) == 2 * URGENT
    print(places)
    assert places[-1] <= AFTER_MAX, places


async def polled(bootstrap: str, producer: AsyncProducer) -> None:
    config = ConsumerConfig(buffer_bytes=1_048_576)
    async with AsyncConsumer(bootstrap, config) as consumer:
        await consumer.assign(TOPIC, StartAt.FIRST)
        assert await consumer.poll(max_records=1, timeout_ms=10_000)
        await urgent(producer, b"polled")
        seen: list[bytes] = []
        async with asyncio.timeout(60):
            while len(seen) < BACKLOG:
                records = await consumer.poll(max_records=100, timeout_ms=1_000)
                seen.extend(bytes(record.body) for record in records)
        check(seen, b"polled")


async def pushed(bootstrap: str, producer: AsyncProducer) -> None:
    seen: list[bytes] = []
    began, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def listener(record: ConsumedRecord) -> None:
        seen.append(bytes(record.body))
        if len(seen) == 1:
            began.set()
            await go_on.wait()
        if len(seen) == BACKLOG:
            done.set()

    config = PushConfig(
        consumer=ConsumerConfig(start_at=StartAt.FIRST, buffer_bytes=1_048_576), concurrency=1
    )
    async with AsyncPushConsumer(bootstrap, "workers", TOPIC, listener, config):
        await asyncio.wait_for(began.wait(), 60)
        await urgent(producer, b"pushed")
        go_on.set()
        await asyncio.wait_for(done.wait(), 60)
    check(seen, b"pushed")
