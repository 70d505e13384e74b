"""One producer of a real group sends one-way and normally: both stand in one stream."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from dledger_client import AsyncProducer, AsyncSendFuture, ClientError, ProducerConfig
from dledger_proto.errors import Code
from tests.integration.cluster import AppendClient, Cluster, batch_of, running_cluster

SENDS = 1_500
QUEUES = 64
"""Many queues: many small frames are on their way at a time."""
WINDOW = 50
FRAMES = 60


async def send_all(cluster: Cluster, config: ProducerConfig) -> list[AsyncSendFuture]:
    async with AsyncProducer(cluster.local.name_server, config) as producer:
        futures: list[AsyncSendFuture] = []
        for number in range(SENDS):
            futures.append(producer.submit("t", b"%d" % number))
            if number % 3 == 0:
                producer.send_one_way("t", b"one-way %d" % number)
            await asyncio.sleep(0)
            if number >= WINDOW:
                with contextlib.suppress(ClientError):
                    await futures[number - WINDOW].wait()
        await producer.flush()
    return futures


def expect_no_bugs(cluster: Cluster) -> None:
    for name in cluster.local.member_names:
        assert "bug in dledger" not in cluster.local.log_text(name)


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_producer_may_mix_one_way_and_normal_sends(tmp_path: Path, *, idempotent: bool) -> None:
    """Without idempotence nothing is repeated: a stream that breaks shows as unknown outcomes."""

    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            await cluster.leader()
            await cluster.create_topic("t", QUEUES)
            futures = await send_all(cluster, ProducerConfig(idempotent=idempotent))
            errors = [error for future in futures if (error := future.exception()) is not None]
            assert not errors, f"{len(errors)} of {SENDS} failed, the first: {errors[0]}"
            expect_no_bugs(cluster)
            await cluster.assert_identical()

    asyncio.run(scenario())


def test_a_stream_answers_each_normal_frame_once_with_its_own_number(tmp_path: Path) -> None:
    """Through the leader, and through a follower, which forwards all of them."""

    async def mix(cluster: Cluster, client: AppendClient, topic_id: bytes) -> None:
        numbers: list[int] = []
        for place in range(FRAMES):
            one_way = place % 3 == 1
            last = await client.send(batch_of(topic_id, [b"%d" % place]), one_way=one_way)
            if not one_way:
                numbers.append(last)
        await client.close()
        assert [row.number for row in client.answers] == numbers
        assert {row.code for row in client.answers} == {Code.OK}
        expect_no_bugs(cluster)

    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            topic = await cluster.create_topic("t")
            for member in (leader, (await cluster.followers())[0]):
                await mix(cluster, AppendClient(member), topic.id)

    asyncio.run(scenario())
