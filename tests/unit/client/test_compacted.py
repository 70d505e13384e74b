"""Consumers of a compacted topic: the floor of their group moves over what is gone.

Goal: every record that is left comes once, and what is gone keeps no consumer and no commit back.
Method: members that answer with rows without a batch, as after a compaction.
"""

import asyncio
import json
from pathlib import Path

import pytest

from dledger_client import AsyncConsumer, AsyncPushConsumer, ConsumedRecord, ConsumeOrder
from tests.unit.client.fake_member import FakeCluster
from tests.unit.client.helpers import eventually, run
from tests.unit.client.model_cluster import topic_id
from tests.unit.client.test_push_promises import broadcast
from tests.unit.client.test_push_shell import push_config
from tests.unit.client.test_subscribe_shell import consumer_config, fake, fill, read

PLACE = ("t", 0)


def compact(cluster: FakeCluster, first: int, end: int) -> None:
    """Delete the batches at some offsets: one row without a batch stands for them."""
    key = (topic_id("t"), 0)
    left = [each for each in cluster.batches[key] if not first <= each[0] < end]
    cluster.batches[key] = sorted([*left, (first, end - first, b"")])


async def fill_with_gaps(cluster: FakeCluster, records: int) -> list[int]:
    """Store so many records one by one, and compact every second; return what is left."""
    for at in range(records):
        await fill(cluster, 0, at, at + 1)
    for at in range(0, records - 1, 2):
        compact(cluster, at, at + 1)
    return [*range(1, records, 2)]


@pytest.mark.parametrize("order", ConsumeOrder)
def test_a_push_consumer_commits_over_what_is_gone(order: ConsumeOrder) -> None:
    """Also when there are more gaps than done ranges are kept."""

    async def body() -> None:
        async with fake(queues=1, order=0 if order is ConsumeOrder.CONCURRENT else 1) as (
            cluster,
            group,
        ):
            left = await fill_with_gaps(cluster, 1_200)
            seen: list[int] = []

            async def listener(record: ConsumedRecord) -> None:
                await asyncio.sleep(0)
                seen.append(record.offset)

            config = push_config(order=order)
            async with AsyncPushConsumer(cluster.bootstrap, "g", "t", listener, config):
                await eventually(lambda: group.floor("t", 0) == 1_200, "the floor is at the end")
            assert sorted(seen) == left

    run(body())


def test_a_consumer_that_polls_commits_over_what_is_gone() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            left = await fill_with_gaps(cluster, 20)
            compact(cluster, 4, 9)
            left = [at for at in left if not 4 <= at < 9]
            async with AsyncConsumer(cluster.bootstrap, consumer_config()) as consumer:
                await consumer.subscribe("t")
                records = await read(consumer, len(left))
                assert [record.offset for record in records] == left
                assert consumer.position("t", 0) == 20
                await consumer.poll(1, 0)
                await eventually(lambda: group.floor("t", 0) == 20, "the floor is at the end")

    run(body())


def test_a_commit_before_a_gap_may_be_repeated_behind_it() -> None:
    """Who keeps count of what is done by himself commits the same offset again."""

    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            for at in range(10):
                await fill(cluster, 0, at, at + 1)
            compact(cluster, 5, 8)
            async with AsyncConsumer(cluster.bootstrap, consumer_config(commit_ms=0)) as consumer:
                await consumer.subscribe("t")
                assert len(await read(consumer, 5)) == 5
                await consumer.commit({PLACE: 5})
                (record,) = await read(consumer, 1)
                assert record.offset == 8
                await consumer.commit({PLACE: 5})
                assert group.floor("t", 0) == 5
                await consumer.commit({PLACE: 9})
                assert group.floor("t", 0) == 9

    run(body())


def test_a_broadcast_stores_an_offset_behind_what_is_gone(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, _):
            left = await fill_with_gaps(cluster, 10)
            seen: list[int] = []

            async def listener(record: ConsumedRecord) -> None:
                seen.append(record.offset)

            file = tmp_path / "offsets.json"
            config = broadcast(str(file))
            async with AsyncPushConsumer(cluster.bootstrap, "g", "t", listener, config):
                await eventually(lambda: len(seen) == len(left), "all that is left")
            assert seen == left
            assert json.loads(file.read_text())["offsets"] == {f"{topic_id('t').hex()}/0": 10}

    run(body())
