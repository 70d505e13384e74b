"""The members' disk fills up: writes are refused, reads go on, and it recovers by itself.

The data lie on one loop-mounted ext4. Somebody else fills it, first below the low-water mark, then
to the last block; or the group itself does, loses its leader then, and gets out by a trim.
"""

import asyncio
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dledger_broker.local.cluster import LocalCluster, Setting
from dledger_client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ConsumerConfig,
    DeadlineExpired,
    MemberStatus,
    Overloaded,
    ProducerConfig,
    SendResult,
    StartAt,
    UnknownOutcome,
)
from dledger_proto.errors import Code
from dledger_proto.network.ports import free_ports
from jepsen_tests.backends.troubles.loop_disk import LoopDisk, why_not
from tests.http_page import ask
from tests.integration.cluster import eventually
from tests.integration.watched import Scraped

MIB = 1 << 20
TOPIC = "full"
SETTINGS: dict[str, Setting] = {
    "storage.segment_size_bytes": 32 * MIB,
    "storage.disk_low_water_bytes": 48 * MIB,
    "storage.disk_reserve_bytes": 8 * MIB,
    "raft.uncommitted_bytes_max": 48 * MIB,
}
DISK_BYTES = 512 * MIB
SMALL_SEGMENTS: dict[str, Setting] = {**SETTINGS, "storage.segment_size_bytes": 8 * MIB}
SMALL_DISK_BYTES = 320 * MIB
BLOCK_BYTES = 4096

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


def _fill(disk: LoopDisk, left_bytes: int) -> None:
    """Leave so much free space; less than a block if 0, but for what the file system keeps."""
    step = 16 * MIB
    with (disk.mount / "ballast").open("ab") as ballast:
        while step >= BLOCK_BYTES and (left := _free(disk) - left_bytes) > 0:
            size = min(step, max(left, BLOCK_BYTES))
            try:
                os.posix_fallocate(ballast.fileno(), ballast.seek(0, os.SEEK_END), size)
            except OSError:
                step //= 2


def _free(disk: LoopDisk) -> int:
    found = os.statvfs(disk.mount)
    return found.f_bfree * found.f_frsize


async def _bodies(bootstrap: str) -> list[bytes]:
    found: list[bytes] = []
    async with AsyncConsumer(bootstrap, ConsumerConfig(start_at=StartAt.FIRST)) as consumer:
        await consumer.assign(TOPIC, StartAt.FIRST)
        left = sum(bounds.maximum for bounds in (await consumer.offsets(TOPIC)).values())
        while left > 0:
            records = await consumer.poll(timeout_ms=5_000)
            assert records, f"{left} records never came"
            found += [bytes(record.body) for record in records]
            left -= len(records)
    return found


async def _refused(producer: AsyncProducer) -> bool:
    """Tell whether a send is refused for want of room; it is then certainly not stored."""
    try:
        await producer.send(TOPIC, b"refused?")
    except Overloaded as error:
        return error.code is Code.DISK_FULL
    return False


async def _is_saved(cluster: LocalCluster) -> bool:
    """Tell whether no member has anything to save. A disk that fills up within a save ends it."""
    for own in cluster.own_settings.values():
        port = int(str(own["metrics.listen"]).rpartition(":")[2])
        scraped = Scraped((await ask(port, "/metrics"))[1])
        places = (scraped.value("dledger_log_index", place=each) for each in ("applied", "saved"))
        if len(set(places)) > 1:
            return False
    return True


async def _story(cluster: LocalCluster, disk: LoopDisk) -> None:
    stored: list[bytes] = []
    config = ProducerConfig(timeout_ms=1_500)
    async with (
        AsyncAdmin(cluster.name_server) as admin,
        AsyncProducer(cluster.name_server, config) as producer,
    ):

        async def led() -> bool:
            return any(group.has_leader for group in await admin.groups())

        await eventually(led, "a leader", 60)
        await admin.create_topic(TOPIC, queues_per_group=1)

        async def send(body: bytes) -> bool:
            try:
                await producer.send(TOPIC, body)
            except Overloaded:
                return False
            stored.append(body)
            return True

        assert await send(b"before")
        for left_bytes in (32 * MIB, 0):
            await eventually(lambda: _is_saved(cluster), "everything is saved")
            _fill(disk, left_bytes)
            await eventually(lambda: _refused(producer), f"refusals with {left_bytes} bytes", 30)
            there = await _bodies(cluster.name_server)
            assert [body for body in there if body != b"refused?"] == stored, "reads go on"
            assert all(cluster.is_running(name) for name in cluster.member_names)
            assert await led()
            (disk.mount / "ballast").unlink()
            name = b"after %d" % left_bytes

            async def works_again(name: bytes = name) -> bool:
                return await send(name)

            await eventually(works_again, "sends that are taken again", 30)
    there = await _bodies(cluster.name_server)
    assert [body for body in there if body != b"refused?"] == stored


@contextmanager
def _cluster_on_one_disk(
    folder: Path, settings: dict[str, Setting], disk_bytes: int
) -> Generator[tuple[LocalCluster, LoopDisk]]:
    cluster = LocalCluster(folder / "cluster", settings=settings)
    with LoopDisk(folder / "image", folder / "disk", disk_bytes) as disk:
        cluster.prepare()
        ports = free_ports(len(cluster.member_names))
        cluster.own_settings = {
            name: {"metrics.listen": f"127.0.0.1:{port}"}
            for name, port in zip(cluster.member_names, ports, strict=True)
        }
        cluster.prepare()
        for name in cluster.member_names:
            (disk.mount / name).mkdir()
            (cluster.folder / name / "data").symlink_to(disk.mount / name)
        try:
            cluster.start_all()
            yield cluster, disk
        finally:
            for name in cluster.names:
                if cluster.is_running(name):
                    cluster.kill(name)


def test_a_full_disk_refuses_writes_serves_reads_and_recovers(tmp_path: Path) -> None:
    """I16, with real members on a real file system."""
    with _cluster_on_one_disk(tmp_path, SETTINGS, DISK_BYTES) as (cluster, disk):
        asyncio.run(_story(cluster, disk))


async def _fill_by_sending(producer: AsyncProducer) -> int:
    """Send until there is no room; return how many messages were acknowledged."""
    stored = 0
    body = os.urandom(MIB)
    for _ in range(SMALL_DISK_BYTES // MIB):
        results = await asyncio.gather(
            *(producer.send(TOPIC, body) for _ in range(8)), return_exceptions=True
        )
        stored += sum(isinstance(result, SendResult) for result in results)
        if any(isinstance(each, Overloaded) and each.code is Code.DISK_FULL for each in results):
            return stored
        for each in results:
            assert isinstance(each, SendResult | UnknownOutcome | DeadlineExpired), each
    raise AssertionError("the disk never became full")


async def _way_out(cluster: LocalCluster) -> None:
    config = ProducerConfig(timeout_ms=1_500)
    async with (
        AsyncAdmin(cluster.name_server) as admin,
        AsyncProducer(cluster.name_server, config) as producer,
        AsyncConsumer(cluster.name_server) as consumer,
    ):

        async def leader() -> str | None:
            for status in (await admin.statuses()).values():
                if isinstance(status, MemberStatus) and status.role == "leader":
                    return status.member
            return None

        old = await eventually(leader, "a leader", 60)
        await admin.create_topic(TOPIC, queues_per_group=1)
        stored = await _fill_by_sending(producer)
        assert stored > 20
        cluster.kill(old)

        async def other_leads() -> bool:
            return await leader() not in (None, old)

        await eventually(other_leads, "another leader", 30)
        (bounds,) = (await consumer.offsets(TOPIC)).values()  # on confirmed state
        end = bounds.maximum
        assert end >= stored, "what was acknowledged; and perhaps what took too long to hear of"
        await eventually(lambda: _refused(producer), "there is no more room than before", 30)
        cluster.start(old)
        assert await admin.trim(TOPIC, 0, end - 1) == end - 1

        async def works_again() -> bool:
            try:
                await producer.send(TOPIC, b"after the trim")
            except Overloaded:
                return False
            return True

        await eventually(works_again, "room after the trim", 30)
        (bounds,) = (await consumer.offsets(TOPIC)).values()
        assert bounds.minimum == end - 1
        assert bounds.maximum > end
        assert all(cluster.is_running(name) for name in cluster.member_names)


def test_a_group_that_filled_its_disk_elects_serves_reads_and_is_freed_by_a_trim(
    tmp_path: Path,
) -> None:
    """Between the low-water mark and half of it there is room for the way out."""
    with _cluster_on_one_disk(tmp_path, SMALL_SEGMENTS, SMALL_DISK_BYTES) as (cluster, _):
        asyncio.run(_way_out(cluster))
