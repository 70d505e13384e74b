"""A compacted topic in real processes: each key's last message stays, and readers miss nothing."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from dledger_client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ClientError,
    ConsumedRecord,
    ConsumerConfig,
    Message,
    StartAt,
)
from dledger_client.reading import Edge, Origin, Planner, RangeReader, partitions
from dledger_proto.errors import Code
from dledger_proto.limits import MIB
from tests.integration.cluster import Cluster, eventually, running_cluster

KEYS = 50
FILLING = random.Random(1).randbytes(8_000)
TOPIC = "prices"
END = 4_102
LEFT_FROM = 3_932
"""The last of each key below offset 3,982, where the newest block of 100 batches begins."""


def message(number: int) -> Message:
    return Message(b"%d " % number + FILLING, keys=(f"k{number % KEYS}",))


async def fill(producer: AsyncProducer, count: int) -> None:
    """Send so many updates, ten to a batch."""
    for at in range(0, count, 10):
        await producer.send_many(TOPIC, [message(number) for number in range(at, at + 10)])


async def read_all(bootstrap: str, end: int) -> list[ConsumedRecord]:
    """Return what a reader from the beginning gets, up to an offset."""
    records: list[ConsumedRecord] = []
    async with AsyncConsumer(bootstrap, ConsumerConfig()) as consumer:
        await consumer.assign(TOPIC, StartAt.FIRST)
        async with asyncio.timeout(60):
            while not records or records[-1].offset < end - 1:
                records += await consumer.poll(timeout_ms=1_000)
    return records


def numbers(records: Sequence[ConsumedRecord]) -> dict[int, int]:
    """Return which update each offset holds."""
    told = ((record.offset, record.body.split(b" ")[0]) for record in records)
    return {offset: int(number) for offset, number in told if number}


async def first_positions(cluster: Cluster) -> list[int]:
    return [(await member.status()).first_position for member in cluster.running()]


def test_a_compacted_topic_keeps_the_last_of_each_key(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(
            tmp_path, topics__tombstone_ms=0, storage__segment_size_bytes=8 * MIB
        ) as cluster:
            await cluster.leader()
            bootstrap = ",".join(member.address for member in cluster.members)
            async with AsyncAdmin(bootstrap) as admin, AsyncProducer(bootstrap) as producer:
                topic = await admin.create_topic(TOPIC, queues_per_group=1, cleanup="compact")
                assert topic.is_compacted
                with pytest.raises(ClientError) as refused:
                    await producer.send(TOPIC, b"no key")
                assert refused.value.code is Code.MESSAGE_ILLEGAL
                await producer.send_many(TOPIC, [Message(b"0 old", keys=("gone",))])
                await producer.send_many(TOPIC, [Message(b"", keys=("gone",))])
                await fill(producer, END - 2)

                async def left() -> dict[int, int]:
                    return numbers(await read_all(bootstrap, END))

                async def is_compacted() -> bool:
                    return len(await left()) <= END - LEFT_FROM

                await eventually(is_compacted, "old updates go", 120)
                expected = {offset: offset - 2 for offset in range(LEFT_FROM, END)}
                assert await left() == expected
                await agree(cluster, bootstrap, admin, expected)

    asyncio.run(scenario())


async def agree(cluster: Cluster, bootstrap: str, admin: AsyncAdmin, left: dict[int, int]) -> None:
    """All ways to read agree, before and after the leader was killed; the log's head goes."""
    end = max(left) + 1
    with pytest.raises(ClientError) as refused:
        await admin.lookup_offset(TOPIC, 0, 5)
    assert refused.value.code is Code.NOT_FOUND
    found = await admin.lookup_key(TOPIC, "k7")
    assert {each.offset for each in found} == {
        offset for offset, number in left.items() if number % KEYS == 7
    }
    assert await asyncio.to_thread(bulk, bootstrap) == list(left)
    assert await consumed_by_a_group(bootstrap) == list(left)

    async def head_is_free() -> bool:
        return min(await first_positions(cluster)) > 16 * MIB

    await eventually(head_is_free, "segments that hold only what is gone go", 90)
    leader = await cluster.leader()
    cluster.local.kill(leader.name)
    cluster.local.start(leader.name)
    assert numbers(await read_all(bootstrap, end)) == left

    async def are_one() -> bool:
        states = [await member.status() for member in cluster.members]
        return len({(state.applied_index, state.digest) for state in states}) == 1

    await eventually(are_one, "all members hold the same", 60)


def bulk(bootstrap: str) -> list[int]:
    """Return the offsets that a bulk reader gets."""
    with Planner(bootstrap) as planner:
        plan = planner.freeze([TOPIC], Edge(), Edge())
    ((whole,),) = partitions(plan.queues, size_max=1 << 30)
    origin = Origin(tuple(bootstrap.split(",")), tuple(plan.groups.values()))
    with RangeReader(origin, ["queue_offset"]) as reader:
        found = [row["queue_offset"] for batch in reader.read(whole) for row in batch.to_pylist()]
        assert reader.gaps == []
    return found


async def consumed_by_a_group(bootstrap: str) -> list[int]:
    """Return what a consumer group gets; its floor ends at the end of the queue."""
    seen: list[int] = []
    config = ConsumerConfig(group="readers", start_at=StartAt.FIRST)
    async with AsyncConsumer(bootstrap, config) as consumer:
        await consumer.subscribe(TOPIC)
        async with asyncio.timeout(60):
            while not seen or seen[-1] < END - 1:
                seen += [record.offset for record in await consumer.poll(timeout_ms=1_000)]
        await consumer.commit()
    async with AsyncAdmin(bootstrap) as admin:
        progress = (await admin.group_progress("readers", TOPIC))[0]
        assert (progress.floor, progress.done) == (END, ())
    return seen
