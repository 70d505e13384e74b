"""A snapshot of a running group, and a new cluster made of it: real processes and commands."""

import asyncio
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from dledger_broker.cli import main
from dledger_client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ConsumedRecord,
    ConsumerConfig,
    StartAt,
)
from dledger_offline.reading import GroupFolder
from dledger_proto.limits import MIB
from tests.integration.cluster import Cluster, eventually, running_cluster

SIZE = 20_000
STORED = 600


def body(number: int) -> bytes:
    return b"%08d" % number + random.Random(number).randbytes(SIZE)


class Commands:
    """Runs commands; keeps what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def run(self, *arguments: str) -> tuple[int, Any, str]:
        """Return the exit code, the rows, and what was said about an error."""
        self._capsys.readouterr()
        code = await asyncio.to_thread(main, [*arguments, "--json"])
        out, err = self._capsys.readouterr()
        return code, json.loads(out) if out else None, err


async def send_on(producer: AsyncProducer, numbers: list[int], stop: asyncio.Event) -> None:
    """Send numbered records one after the other; note each that was stored."""
    while not stop.is_set():
        await producer.send_many("t", [body(len(numbers))])
        numbers.append(len(numbers))


async def read_all(bootstrap: str, count: int) -> list[bytes]:
    records: list[ConsumedRecord] = []
    async with AsyncConsumer(bootstrap, ConsumerConfig()) as consumer:
        await consumer.assign("t", StartAt.FIRST)
        async with asyncio.timeout(60):
            while len(records) < count:
                records += await consumer.poll(timeout_ms=1_000)
    return [record.body for record in records]


def bootstrap_of(cluster: Cluster) -> str:
    return ",".join(member.address for member in cluster.members)


async def settled(cluster: Cluster) -> tuple[int, bytes]:
    """Return index and digest once all members agree on them."""

    async def agree() -> bool:
        states = [await member.status() for member in cluster.members]
        return len({(state.applied_index, state.digest) for state in states}) == 1

    await eventually(agree, "all members hold the same", 60)
    status = await cluster.members[0].status()
    return status.applied_index, status.digest


async def check_commands(
    commands: Commands, row: dict[str, Any], name_server: tuple[str, str]
) -> None:
    """Look at a snapshot, and ask for what is refused."""
    code, _, said = await commands.run("snapshot", "create", "a/b", *name_server)
    assert (code, "name 'a/b'" in said) == (2, True), said
    where = ("--member", row["member"], *name_server)
    code, _, said = await commands.run("snapshot", "create", "daily", *where)
    assert (code, "there is a snapshot of this name" in said) == (2, True), said
    code, _, said = await commands.run("snapshot", "create", "x", "--member", "n9", *name_server)
    assert (code, "--member: n9" in said) == (2, True), said
    code, listed, _ = await commands.run("snapshot", "list", *name_server)
    assert (code, listed) == (0, [row])
    code, _, said = await commands.run("snapshot", "delete", "weekly", "--yes", *name_server)
    assert (code, "no member keeps" in said) == (1, True), said


async def check_new_cluster(folder: Path, numbers: int) -> None:
    """Start what was restored: it has all of one moment, and goes on."""
    async with running_cluster(folder, cluster_name="restored") as cluster:
        await cluster.leader()
        bootstrap = bootstrap_of(cluster)
        async with AsyncAdmin(bootstrap) as admin, AsyncProducer(bootstrap) as producer:
            bounds = (await admin.queue_offsets("t"))[0]
            kept = bounds.maximum
            assert bounds.minimum == 0
            assert STORED <= kept <= numbers
            assert await read_all(bootstrap, kept) == [body(at) for at in range(kept)]
            await producer.send_many("t", [b"newer"])
            assert (await read_all(bootstrap, kept + 1))[-1] == b"newer"
            leader = await cluster.leader()
            cluster.local.kill(leader.name)
            cluster.local.start(leader.name)
            await producer.send_many("t", [b"newest"])
            await settled(cluster)
            wiped = next(each for each in cluster.members if each.name != leader.name)
            cluster.local.kill(wiped.name)
            shutil.rmtree(folder / wiped.name / "data")
            cluster.local.start(wiped.name)
            await settled(cluster)


def test_a_new_cluster_goes_on_from_a_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = Commands(capsys)
    new = tmp_path / "new"

    async def make() -> tuple[dict[str, Any], list[int]]:
        async with running_cluster(
            tmp_path / "old", storage__segment_size_bytes=8 * MIB
        ) as cluster:
            leader = await cluster.leader()
            bootstrap = bootstrap_of(cluster)
            name_server = ("--name-servers", cluster.local.name_server)
            async with AsyncAdmin(bootstrap) as admin, AsyncProducer(bootstrap) as producer:
                await admin.create_topic("t", queues_per_group=1)
                numbers: list[int] = []
                stop = asyncio.Event()
                sending = asyncio.create_task(send_on(producer, numbers, stop))

                async def is_filled() -> bool:
                    return len(numbers) >= STORED

                await eventually(is_filled, "some segments are full", 60)
                code, rows, said = await commands.run("snapshot", "create", "daily", *name_server)
                assert code == 0, said
                stop.set()
                await sending
                (row,) = rows
                assert row["member"] != leader.name
                await check_commands(commands, row, name_server)
                maker = cluster.by_name[row["member"]]
                await admin.trim("t", 0, len(numbers))
                await forgotten(cluster)
                assert (await maker.status()).applied_index > row["last_index"]
                return row, numbers

    row, numbers = asyncio.run(make())
    snapshot = row["path"]
    check_offline(Path(snapshot), row)
    code, _, said = main_of(commands, "restore", snapshot, str(new), "--cluster", "local")
    assert (code, "is the cluster of the snapshot" in said) == (2, True), said
    assert not new.exists()
    code, rows, said = main_of(commands, "restore", snapshot, str(new), "--cluster", "restored")
    assert (code, [each["member"] for each in rows]) == (0, ["n1", "n2", "n3"]), said
    code, _, said = main_of(commands, "restore", snapshot, str(new), "--cluster", "restored")
    assert (code, "exists" in said) == (2, True), said

    asyncio.run(check_new_cluster(new, len(numbers)))


async def forgotten(cluster: Cluster) -> None:
    """Wait until the members have let go segments that the snapshot holds."""

    async def is_trimmed() -> bool:
        return all([(await member.status()).first_index > 1 for member in cluster.members])

    await eventually(is_trimmed, "the old cluster lets its oldest segments go", 60)


def main_of(commands: Commands, *arguments: str) -> tuple[int, Any, str]:
    return asyncio.run(commands.run(*arguments))


def check_offline(path: Path, row: dict[str, Any]) -> None:
    """What reads the folder of a stopped member reads a snapshot."""
    with GroupFolder(path) as folder:
        assert folder.state.applied.index == row["last_index"]
        topics = folder.state.topics.since(-1, with_deleted=False)
        (topic,) = [each for each in topics if each.name == "t"]
        queue = folder.state.queues.find((topic.topic_id, 0))
        assert (queue.minimum, queue.maximum >= STORED) == (0, True)
