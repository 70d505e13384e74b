"""Delayed messages in real processes: once, never early, also when the leader dies meanwhile."""

import asyncio
import time
from pathlib import Path

import pytest

from dledger_client import AsyncAdmin, AsyncConsumer, AsyncProducer, StartAt
from dledger_client.errors import ClientError
from dledger_proto.errors import Code
from tests.integration.cluster import Cluster, eventually, running_cluster

TOPIC = "later"


def bootstrap_of(cluster: Cluster) -> str:
    return ",".join(member.address for member in cluster.members)


def test_a_delayed_message_comes_once_although_its_leader_dies(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            await cluster.create_topic(TOPIC, 1)
            bootstrap = bootstrap_of(cluster)
            async with AsyncProducer(bootstrap) as producer, AsyncConsumer(bootstrap) as consumer:
                sent_ms = time.time_ns() // 1_000_000
                delayed = await producer.send(TOPIC, b"delayed", delay_ms=1_000)
                assert delayed.offset == -1
                await producer.send(TOPIC, b"plain")
                cluster.local.kill(leader.name)
                await consumer.assign(TOPIC, StartAt.FIRST)
                seen: list[tuple[bytes, int]] = []

                async def both_seen() -> bool:
                    records = await consumer.poll(timeout_ms=200)
                    seen.extend((bytes(each.body), each.store_time_ms) for each in records)
                    return len(seen) >= 2

                await eventually(both_seen, "both messages")
                assert [body for body, _ in seen] == [b"plain", b"delayed"]
                assert seen[1][1] >= sent_ms + 1_000, "never early"
                cluster.local.start(leader.name)
                assert not await consumer.poll(timeout_ms=500), "once"
                await cluster.assert_identical()
            async with AsyncAdmin(bootstrap) as admin:
                (found,) = await admin.lookup_message(delayed.message_id)
                assert (found.offset, found.record.body) == (1, b"delayed")

    asyncio.run(scenario())


def test_a_recalled_message_never_comes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            await cluster.leader()
            await cluster.create_topic(TOPIC, 1)
            bootstrap = bootstrap_of(cluster)
            async with AsyncProducer(bootstrap) as producer, AsyncAdmin(bootstrap) as admin:
                recalled = await producer.send(TOPIC, b"no", delay_level=2)
                kept = await producer.send(TOPIC, b"yes", delay_ms=1_500)
                waiting = await admin.timers(TOPIC)
                assert [timer.message_id for timer in waiting] == [
                    kept.message_id, recalled.message_id,
                ]  # fmt: skip
                assert await admin.recall(recalled.message_id) == waiting[1].due_ms
                with pytest.raises(ClientError) as caught:
                    await admin.recall(recalled.message_id)
                assert caught.value.code is Code.NOT_FOUND

                async def delivered() -> bool:
                    return not await admin.timers(TOPIC)

                await eventually(delivered, "no timer waits")
                bounds = await admin.queue_offsets(TOPIC)
                assert [each.maximum for each in bounds.values()] == [1]

    asyncio.run(scenario())
