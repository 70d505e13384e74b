"""What a client does while and after it closes, beside others that share its connections."""

import asyncio

from dledger_client import AsyncAdmin, AsyncConsumer
from tests.unit.client.fake_member import FakeCluster
from tests.unit.client.helpers import run
from tests.unit.client.test_sharing import FAST, READING


def test_a_closed_consumer_reads_nothing_whatever_the_others_are_told() -> None:
    """A new leader that was told while it closed made it open a stream that nobody ended."""

    async def body(turns: int) -> None:
        async with FakeCluster({"a": 2}) as cluster, AsyncAdmin(cluster.bootstrap, FAST) as stays:
            await stays.groups()
            consumer = await AsyncConsumer(cluster.bootstrap, READING).start()
            await consumer.assign({("t", 0): None})
            await cluster.store("t", 0, [b"1"])
            await consumer.poll(1, 1_000)
            cluster.elect("a1", push=False)
            closing = asyncio.ensure_future(consumer.close())
            for _ in range(turns):
                await asyncio.sleep(0)
            consumer._engine.cluster.apply(cluster.routes())
            await closing
            fetches = [
                task
                for task in asyncio.all_tasks()
                if task.get_name().startswith("dledger fetch") and not task.cancelling()
            ]
            assert not fetches, turns

    for turns in range(1, 4):
        run(body(turns))
