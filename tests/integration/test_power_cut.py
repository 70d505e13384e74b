"""All three members lose power at the same moment, under load: nothing acknowledged is lost.

The members' data lie on one loop-mounted ext4 that is shut down, so that what was not synced never
reached the image: with flag 1 the file system's journal is written first, with flag 2 it is not.
The same cuts with `flush: async` must lose something, or the test would prove nothing.

POWER_CUTS sets the number of cuts (default 4; `make power-cuts` does 20).
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from dledger_broker.local.cluster import LocalCluster
from dledger_client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncSendFuture,
    BufferFull,
    ConsumerConfig,
    ProducerConfig,
    StartAt,
    TopicNotFound,
)
from jepsen_tests.backends.troubles.loop_disk import DROP_JOURNAL, FLUSH_JOURNAL, LoopDisk, why_not
from tests.integration.cluster import eventually

CUTS = int(os.environ.get("POWER_CUTS", "4"))
ASYNC_CUTS = 3
ASYNC_RUNS = 5
TOPIC = "power"
QUEUES = 4
ACKNOWLEDGED_PER_LIFE = 3_000
BODY = b"x" * 900

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


class _Load:
    """Sends numbered messages until told to stop, and remembers which were acknowledged."""

    def __init__(self, bootstrap: str, life: int) -> None:
        self._bootstrap = bootstrap
        self._life = life
        self.acknowledged: set[bytes] = set()
        self.enough = asyncio.Event()
        self.stop = asyncio.Event()

    async def run(self) -> None:
        """Send as fast as answers come; failures and unknown outcomes are simply not noted."""
        config = ProducerConfig(timeout_ms=20_000, buffer_bytes=16 << 20)
        producer = AsyncProducer(self._bootstrap, config)
        await producer.start()
        number = 0
        while not self.stop.is_set():
            name = b"%d-%d " % (self._life, number)
            try:
                future = producer.submit(TOPIC, name + BODY, queue=number % QUEUES)
            except BufferFull:
                await asyncio.sleep(0)
                continue
            future.add_done_callback(self._noter(name))
            number += 1
            if number % 100 == 0:
                await asyncio.sleep(0)
        # What is still under way may be unknown for ever; close() must not wait for it.
        await producer.close(timeout_ms=1)

    def _noter(self, name: bytes) -> "_Note":
        return _Note(self, name)


class _Note:
    def __init__(self, load: _Load, name: bytes) -> None:
        self._load = load
        self._name = name

    def __call__(self, future: AsyncSendFuture) -> None:
        if future.exception() is None:
            self._load.acknowledged.add(self._name)
            if len(self._load.acknowledged) >= ACKNOWLEDGED_PER_LIFE:
                self._load.enough.set()


async def _serving(cluster: LocalCluster) -> None:
    async def led() -> bool:
        async with AsyncAdmin(cluster.name_server) as admin:
            return any(group.has_leader for group in await admin.groups())

    await eventually(led, "a leader", 60)


async def _names(bootstrap: str, wanted: set[bytes]) -> list[bytes]:
    """Read the whole topic and return the names in the order read."""
    names: list[bytes] = []
    async with AsyncConsumer(bootstrap, ConsumerConfig(start_at=StartAt.FIRST)) as consumer:
        await consumer.assign(TOPIC, StartAt.FIRST)
        left = sum(bounds.maximum for bounds in (await consumer.offsets(TOPIC)).values())
        while left > 0:
            records = await consumer.poll(max_records=5_000, timeout_ms=5_000)
            assert records, f"{left} records never came; {len(wanted)} were acknowledged"
            names.extend(bytes(record.body).split(b" ", 1)[0] + b" " for record in records)
            left -= len(records)
    return names


def _start(cluster: LocalCluster) -> None:
    for name in cluster.names:
        if not cluster.is_running(name):
            cluster.start(name)


async def _one_life(cluster: LocalCluster, disk: LoopDisk, life: int, flag: int) -> set[bytes]:
    """Load the group, cut the power, start it again; return what was acknowledged until then."""
    load = _Load(cluster.name_server, life)
    running = asyncio.create_task(load.run())
    async with asyncio.timeout(120):
        await load.enough.wait()
    acknowledged = set(load.acknowledged)  # what is heard later proves nothing: see `cut_power`
    disk.cut_power(flag)
    load.stop.set()
    await running
    for name in cluster.member_names:
        if cluster.is_running(name):
            cluster.kill(name)
    disk.power_on()
    _start(cluster)
    await _serving(cluster)
    return acknowledged


async def _lives(folder: Path, flush: str, flags: Sequence[int]) -> tuple[set[bytes], list[bytes]]:
    """Return what was acknowledged over all lives, and what is there at the end."""
    cluster = LocalCluster(
        folder, settings={"storage.flush": flush, "storage.segment_size_bytes": 16 << 20}
    )
    acknowledged: set[bytes] = set()
    with LoopDisk(folder.parent / "image", folder.parent / "disk", 2 << 30) as disk:
        cluster.prepare()
        for name in cluster.member_names:
            (disk.mount / name).mkdir()
            (folder / name / "data").symlink_to(disk.mount / name)
        os.sync()
        try:
            _start(cluster)
            await _serving(cluster)
            async with AsyncAdmin(cluster.name_server) as admin:
                await admin.create_topic(TOPIC, queues_per_group=QUEUES)
            for life, flag in enumerate(flags):
                acknowledged |= await _one_life(cluster, disk, life, flag)
            return acknowledged, await _names(cluster.name_server, acknowledged)
        finally:
            for name in cluster.names:
                if cluster.is_running(name):
                    cluster.kill(name)


def _flags(count: int) -> list[int]:
    return [FLUSH_JOURNAL if life % 2 else DROP_JOURNAL for life in range(count)]


async def _synced(folder: Path) -> None:
    acknowledged, found = await _lives(folder / "cluster", "sync", _flags(CUTS))
    assert len(acknowledged) >= CUTS * ACKNOWLEDGED_PER_LIFE
    lost = acknowledged - set(found)
    assert not lost, f"{len(lost)} acknowledged messages lost, {sorted(lost)[:3]}"
    assert len(found) == len(set(found)), "stored twice"


async def _unsynced(folder: Path) -> int:
    try:
        acknowledged, found = await _lives(folder / "cluster", "async", _flags(ASYNC_CUTS))
    except TopicNotFound:
        return 1  # not even the topic survived
    return len(acknowledged - set(found))


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """Flags 1 and 2 in turn; every acknowledged message is there once after every cut."""
    asyncio.run(_synced(tmp_path))


def test_asynchronous_flush_does_lose(tmp_path: Path) -> None:
    """The same cuts with `flush: async`: the test can tell the difference.

    A sync may have come just before each cut of one run; not in all of several.
    """
    for number in range(ASYNC_RUNS):
        folder = tmp_path / str(number)
        folder.mkdir()
        if asyncio.run(_unsynced(folder)):
            return
    raise AssertionError(f"nothing was lost by {ASYNC_RUNS * ASYNC_CUTS} power cuts")
