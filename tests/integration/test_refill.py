"""A member whose disk is lost after the head was trimmed comes back by itself: real processes."""

import asyncio
import random
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from dledger_client import AsyncAdmin, AsyncProducer, ProducerConfig
from dledger_proto.limits import MIB
from tests.integration.cluster import Cluster, Member, eventually, running_cluster

RECORD = random.Random(1).randbytes(100_000)
KILLS = 6


@dataclass
class Trimmed:
    """A cluster whose members have trimmed the first entries; one of them lost its disk."""

    cluster: Cluster
    producer: AsyncProducer
    leader: Member
    wiped: Member

    async def is_whole(self) -> bool:
        here, there = await self.wiped.status(), await self.leader.status()
        return here.role == "follower" and (here.applied_index, here.digest) == (
            there.applied_index,
            there.digest,
        )

    async def gathered(self) -> int:
        """Return up to which entry the refill has come; 0 when it does not say."""
        found = re.search(r"entries up to (\d+) of", (await self.wiped.status()).reason)
        return int(found[1]) if found else 0


@asynccontextmanager
async def trimmed(
    folder: Path, bytes_per_second: int, *, secure: bool = False
) -> AsyncIterator[Trimmed]:
    async with running_cluster(
        folder,
        secure=secure,
        storage__segment_size_bytes=8 * MIB,
        refill__bytes_per_second=bytes_per_second,
    ) as cluster:
        leader = await cluster.leader()
        bootstrap = ",".join(member.address for member in cluster.members)
        there = cluster.connection
        sending = ProducerConfig(connection=there)
        async with (
            AsyncAdmin(bootstrap, there) as admin,
            AsyncProducer(bootstrap, sending) as producer,
        ):
            await admin.create_topic("t", queues_per_group=1)
            for _ in range(10):
                await producer.send_many("t", [RECORD] * 40)
            await admin.trim("t", 0, 200)

            async def are_trimmed() -> bool:
                states = [await member.status() for member in cluster.running()]
                return all(state.first_index > 1 for state in states)

            await eventually(are_trimmed, "every head is trimmed", 60)
            wiped = next(member for member in cluster.members if member is not leader)
            cluster.local.kill(wiped.name)
            shutil.rmtree(cluster.local.folder / wiped.name / "data")
            await producer.send_many("t", [RECORD] * 20)
            cluster.local.start(wiped.name)
            yield Trimmed(cluster, producer, leader, wiped)


def test_a_wiped_member_comes_back_after_a_trim(tmp_path: Path, secure: bool) -> None:
    async def scenario() -> None:
        async with trimmed(tmp_path, 100 * MIB, secure=secure) as it:
            await eventually(it.is_whole, "the wiped member is whole again", 60)
            status = await it.wiped.status()
            assert status.first_index > 1
            await it.producer.send_many("t", [RECORD] * 5)
            await eventually(it.is_whole, "and follows", 60)

    asyncio.run(scenario())


def test_a_refill_goes_on_after_kills_of_receiver_and_giver(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with trimmed(tmp_path, 8 * MIB) as it:
            local = it.cluster.local
            follower = next(
                member for member in it.cluster.members if member not in (it.leader, it.wiped)
            )
            reached = 0
            for number in range(KILLS):

                async def goes_on() -> bool:
                    return await it.gathered() > 0 or await it.is_whole()

                await eventually(goes_on, "the refill goes on", 60)
                if await it.is_whole():
                    break
                now = await it.gathered()
                assert now == 0 or now >= reached - 3, "what was synced is not fetched again"
                reached = max(reached, now)
                victim = follower if number % 3 == 2 else it.wiped
                local.kill(victim.name)
                local.start(victim.name)
            await eventually(it.is_whole, "the wiped member is whole again", 60)
            assert reached > 0

    asyncio.run(scenario())
