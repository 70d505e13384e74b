"""A member whose state was damaged while it was stopped: it says so and ends, or serves the same.

Goal: what the command's user sees of damage, with a real process. Method: bits of the data file are
flipped between orderly lives of a member that is alone, in pages that are in use and in free ones.
"""

import asyncio
from pathlib import Path
from random import Random

from dledger.store.lmdb_rows import PageFile
from dledger_proto.exit_codes import Exit
from tests.integration.cluster import Cluster, batch_of, eventually, running_cluster

TOPIC = "kept"
BODIES = [b"body %d" % number for number in range(20)]
FLIPS = 5
PAGE = 4096


async def end_or_leader(cluster: Cluster, name: str) -> int | None:
    """Start the member; return its exit code, or None once it leads."""
    cluster.local.start(name)

    async def decided() -> bool:
        if not cluster.local.is_running(name):
            return True
        return (await cluster.by_name[name].status()).leader == name

    await eventually(decided, f"{name} leads or ends")
    process = cluster.local.processes[name]
    return process.poll()


def data_file(folder: Path) -> Path:
    """Return the only one."""
    (data,) = folder.rglob("data.mdb")
    return data


def places(data: Path) -> list[int]:
    """Bytes to flip: the root's flags and a row, which are in use, and any others."""
    with PageFile(str(data)) as file:
        root = file.newest.rows.root
        size = file.size
    random = Random(5)
    return [root * PAGE + 10, root * PAGE + PAGE - 20, *(random.randrange(size) for _ in range(3))]


def test_flipped_bits_end_the_member_with_65_or_change_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_cluster(tmp_path, members=1) as cluster:
            member = await cluster.leader()
            topic = await cluster.create_topic(TOPIC)
            for body in BODIES:
                await member.append_one(batch_of(topic.id, [body], 0))
            assert cluster.local.stop(member.name) == 0
            data = data_file(tmp_path)
            ends: list[int | None] = []
            for number in range(FLIPS):
                sound = data.read_bytes()
                place = places(data)[number]
                data.write_bytes(sound[:place] + bytes((sound[place] ^ 4,)) + sound[place + 1 :])
                code = await end_or_leader(cluster, member.name)
                ends.append(code)
                if code is None:
                    assert await member.read_all(TOPIC, 0, len(BODIES)) == BODIES, place
                    assert cluster.local.stop(member.name) == 0
                    continue
                assert code == Exit.DAMAGED, place
                last = cluster.local.log_text(member.name).splitlines()[-1]
                assert "member cannot start" in last
                assert f"state store {data.parent}: " in last
                assert "`dledger repair` explains the damage and sets the data folder aside" in last
                data.write_bytes(sound)
            assert ends[:2] == [Exit.DAMAGED] * 2, "what is in use"
            assert await end_or_leader(cluster, member.name) is None
            assert await member.read_all(TOPIC, 0, len(BODIES)) == BODIES

    asyncio.run(run())
