"""`dledger scrub` over real processes: bits flip under running members, and peers mend them.

Goal: all that is flipped is found and mended, and no reader ever gets a wrong byte. Method: bits of
every file of the log of two members flip, in different entries, while somebody reads everything.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dledger_broker.cli import main
from dledger_client import AsyncAdmin, AsyncProducer, ProducerConfig
from dledger_proto.batch.codec import BatchView
from dledger_proto.entry import ENTRY_HEADER_SIZE, SEGMENT_HEADER_SIZE, parse_entry_header
from dledger_proto.errors import Code
from dledger_proto.limits import MIB
from dledger_proto.network.tls_files import FOLDER_VARIABLE
from dledger_proto.v1 import broker_pb2 as pb
from tests.integration.cluster import Cluster, Member, running_cluster

RECORDS = 240
FLIPS = 40
BODY = 100_000


def body(number: int) -> bytes:
    return Random(number).randbytes(BODY)


def log_folder(cluster: Cluster, member: Member) -> Path:
    (folder,) = (cluster.local.folder / member.name / "data").rglob("log")
    return folder


def entries_of(path: Path) -> list[tuple[int, int, int]]:
    """Return (index, offset, size) of the entries of a segment."""
    data, found, at = path.read_bytes(), [], SEGMENT_HEADER_SIZE
    while at + 72 < len(data) and any(data[at : at + 4]):
        header = parse_entry_header(data, at)
        found.append((header.index, at, header.size))
        at += header.size
    return found


def flip(path: Path, offset: int, mask: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes((byte ^ mask,)))


def flip_entries(folder: Path, wanted: int, random: Random) -> int:
    """Flip a bit in entries of every third index, all of them other ones for each remainder."""
    count = 0
    for path in sorted(folder.glob("*.log")):
        for index, offset, size in entries_of(path):
            if index % 3 == wanted and count < FLIPS:
                flip(path, offset + random.randrange(size), 1 << random.randrange(8))
                count += 1
    return count


def flip_others(folder: Path, random: Random) -> int:
    """Flip a bit in the header of a segment, in each index, and in the small files."""
    segment = sorted(folder.glob("*.log"))[1]
    flip(segment, random.randrange(SEGMENT_HEADER_SIZE), 1 << random.randrange(8))
    small = [folder.parent / name for name in ("identity", "hard_state", "checkpoint")]
    others = [*sorted(folder.glob("*.idx")), *small]
    for path in others:
        flip(path, random.randrange(path.stat().st_size), 1 << random.randrange(8))
    return 1 + len(others)


async def read_once(member: Member) -> tuple[int, int]:
    """Read the queue at a member to its end; return how many records came, and refusals."""
    request = pb.FetchRequest(once=True, wait_ms=0)
    request.assignments.add(queue=pb.QueueRef(topic="t", queue=0), offset=0)
    offset = refused = 0
    while offset < RECORDS:
        request.assignments[0].offset = offset
        async for frame in member.fetch(request):
            if frame.code:
                assert Code(frame.code) is Code.STORAGE_FAILED, frame.detail
                refused += 1
                await asyncio.sleep(0)
            for row, batch in zip(frame.rows, frame.batches, strict=True):
                view = BatchView(batch)
                for place in range(row.first_record, row.first_record + row.record_count):
                    number = row.base_offset + place - row.first_record
                    assert bytes(view.body(place)) == body(number), f"record {number} is wrong"
                    offset = number + 1
    return offset, refused


def test_flipped_bits_of_running_members_are_mended(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    secure: bool,
) -> None:
    async def scenario() -> None:
        async with running_cluster(
            tmp_path,
            secure=secure,
            storage__segment_size_bytes=9 * MIB,
            storage__tail_cache_bytes=9 * MIB,
        ) as cluster:
            leader = await cluster.leader()
            follower = next(iter(await cluster.followers()))
            bootstrap = ",".join(member.address for member in cluster.members)
            there = cluster.connection
            monkeypatch.setenv(FOLDER_VARIABLE, there.tls_folder)
            sending = ProducerConfig(connection=there)
            async with (
                AsyncAdmin(bootstrap, there) as admin,
                AsyncProducer(bootstrap, sending) as producer,
            ):
                await admin.create_topic("t", queues_per_group=1)
                for first in range(0, RECORDS, 4):
                    await producer.send_many("t", [body(n) for n in range(first, first + 4)])
                await cluster.settled()
                random = Random(1)
                flipped = {
                    member.name: flip_entries(log_folder(cluster, member), wanted, random)
                    + flip_others(log_folder(cluster, member), random)
                    for wanted, member in ((0, leader), (1, follower))
                }
                reads = [asyncio.create_task(read_once(member)) for member in cluster.members]
                code, rows = await scrub(cluster, capsys)
                answers = await asyncio.gather(*reads)
                assert [read for read, _ in answers] == [RECORDS] * 3
                assert code == 0, rows
                assert [row["left"] for row in rows] == [0, 0, 0]
                for member in (leader, follower):
                    told = (await member.status()).scrub
                    # A write may have replaced the checkpoint before anybody looked at it.
                    assert flipped[member.name] - 1 <= told.found_ever <= flipped[member.name]
                    assert told.mended_ever == told.found_ever
                await cluster.assert_identical()
                code, rows = await scrub(cluster, capsys)
                assert code == 0
                assert [row["found"] for row in rows] == [0, 0, 0]
                assert (await cluster.leader()).name == leader.name, "nobody ended"
                for member in cluster.members:
                    assert await read_once(member) == (RECORDS, 0)
                await producer.send("t", b"and on it goes")

    asyncio.run(scenario())


async def scrub(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[Any]]:
    at = "--name-servers", cluster.members[0].address
    code = await asyncio.to_thread(main, ["scrub", *at, "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out.splitlines()[-1]) if said.out else [said.err]


@dataclass
class Flips:
    """Bits that flip anywhere in the files of all members, a round at a time."""

    cluster: Cluster
    random: Random
    count: int = 0
    of_checkpoints: int = 0
    by_class: Counter[str] = field(default_factory=Counter[str])

    def flip(self, wanted: int) -> None:
        """Flip so many bits, each in another entry or file, and no entry on two members.

        Entries beside each other are one damage when their headers are damaged: none are hit.
        """
        places = [place for member in self.cluster.members for place in self._places(member)]
        hit: set[object] = set()
        while wanted:
            kind, path, start, size, what = self.random.choice(places)
            near = {what - 1, what, what + 1} if isinstance(what, int) else {what}
            if not near & hit:
                hit.add(what)
                flip(path, start + self.random.randrange(size), 1 << self.random.randrange(8))
                self.by_class[kind] += 1
                self.count += 1
                self.of_checkpoints += path.name == "checkpoint"
                wanted -= 1

    def _places(self, member: Member) -> Iterator[tuple[str, Path, int, int, object]]:
        """Yield class, file, begin, size, and what is damaged by a flip there."""
        folder = log_folder(self.cluster, member)
        segments = sorted(folder.glob("*.log"))
        entries = [(path, *entry) for path in segments for entry in entries_of(path)]
        for path, index, offset, size in self.random.sample(entries, 40):
            yield "entry", path, offset, size, index
            yield "entry header", path, offset, ENTRY_HEADER_SIZE, index
        for path in segments:
            yield "segment header", path, 0, SEGMENT_HEADER_SIZE, path
        for path in folder.glob("*.idx"):
            yield "index", path, 0, path.stat().st_size, path
        for name in ("identity", "hard_state", "checkpoint"):
            path = folder.parent / name
            yield name, path, 0, path.stat().st_size, path


async def flip_and_scrub(folder: Path, capsys: pytest.CaptureFixture[str], rounds: int) -> Flips:
    """Flip bits under a group that is read, and let it mend them, again and again."""
    async with running_cluster(
        folder, storage__segment_size_bytes=9 * MIB, storage__tail_cache_bytes=9 * MIB
    ) as cluster:
        leader = await cluster.leader()
        bootstrap = ",".join(member.address for member in cluster.members)
        flips = Flips(cluster, Random(7))
        async with AsyncAdmin(bootstrap) as admin, AsyncProducer(bootstrap) as producer:
            await admin.create_topic("t", queues_per_group=1)
            for first in range(RECORDS):
                await producer.send("t", body(first))
            await cluster.settled()
            for _ in range(rounds):
                flips.flip(FLIPS)
                reads = [asyncio.create_task(read_once(member)) for member in cluster.members]
                code, rows = await scrub(cluster, capsys)
                assert [read for read, _ in await asyncio.gather(*reads)] == [RECORDS] * 3
                assert code == 0, rows
            await cluster.assert_identical()
            told = [(await member.status()).scrub for member in cluster.members]
            found = sum(each.found_ever for each in told)
            # A write may have replaced a checkpoint before anybody looked at it.
            assert flips.count - flips.of_checkpoints <= found <= flips.count
            assert sum(each.mended_ever for each in told) == found
            assert [each.left for each in told] == [0, 0, 0]
            assert (await cluster.leader()).name == leader.name, "nobody ended"
            print(flips.count, found, dict(flips.by_class))
    return flips


def test_random_flips_over_all_files_of_a_group_are_found_and_mended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flips = asyncio.run(flip_and_scrub(tmp_path, capsys, rounds=3))
    assert flips.count == 3 * FLIPS


def test_the_same_damage_on_all_members_is_said_and_never_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends with 1 until one member has the entry whole again."""

    async def scenario() -> None:
        async with running_cluster(
            tmp_path, storage__segment_size_bytes=9 * MIB, storage__tail_cache_bytes=9 * MIB
        ) as cluster:
            await cluster.leader()
            bootstrap = ",".join(member.address for member in cluster.members)
            async with AsyncAdmin(bootstrap) as admin, AsyncProducer(bootstrap) as producer:
                await admin.create_topic("t", queues_per_group=1)
                for number in range(RECORDS):
                    await producer.send("t", body(number))
                await cluster.settled()
                hit: list[tuple[Path, int]] = []
                for member in cluster.members:
                    path = min(log_folder(cluster, member).glob("*.log"))
                    index, offset, size = next(each for each in entries_of(path) if each[2] > BODY)
                    hit.append((path, offset + size - 1_000))
                    flip(*hit[-1], 1)
                code, rows = await scrub(cluster, capsys)
                assert code == 1
                assert [(row["found"], row["mended"], row["left"]) for row in rows] == [
                    (1, 0, 1)
                ] * 3
                assert all(f"entry {index}," in row["reason"] for row in rows)
                for member in cluster.members:
                    assert f"entry {index}," in (await member.status()).reason
                    refused = 0
                    async for frame in member.fetch(first_record()):
                        assert Code(frame.code) is Code.STORAGE_FAILED
                        assert not frame.batches
                        refused += 1
                    assert refused == 1
                await producer.send("t", body(RECORDS))  # the group goes on
                flip(*hit[0], 1)
                code, rows = await scrub(cluster, capsys)
                assert code == 0, rows
                for member in cluster.members:
                    read, refused = await read_once(member)
                    assert (read >= RECORDS, refused) == (True, 0)
                    assert not (await member.status()).reason

    asyncio.run(scenario())


def first_record() -> pb.FetchRequest:
    request = pb.FetchRequest(once=True, wait_ms=0)
    request.assignments.add(queue=pb.QueueRef(topic="t", queue=0), offset=0)
    return request
