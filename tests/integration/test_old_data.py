"""What earlier code left on disk is read by this code: data folders, exports, histories.

Goal: a change of a format that forgets what lies on disks does not pass. Method: the fixtures that
`tests/fixtures/make_formats.py` wrote at some time are unpacked; three members start on the data
folders, and everything is compared with what clients had read when the fixtures were made.
"""

import asyncio
import json
import lzma
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from dledger_broker.cli import main as dledger
from dledger_broker.local.cluster import LocalCluster
from dledger_client import Admin, Producer, ProducerConfig
from dledger_client.export import read_export
from dledger_proto.batch.codec import ProducerStamp
from dledger_proto.errors import Code
from dledger_proto.rpc.frames import AnswerRow
from jepsen_tests.cli import main as jepsen_tests
from tests.fixtures.make_formats import TOPICS, bounds_of, places_of, rows_of
from tests.integration.cluster import Member, batch_of
from tests.integration.test_reading import addresses, leader_of
from tests.unit.spark.folders import read as read_folder

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("formats_*"))
INSPECTIONS = ("identity", "hard-state", "checkpoint", "segments", "state")


@pytest.fixture(params=FIXTURES, ids=lambda path: path.name)
def written(request: pytest.FixtureRequest) -> Path:
    """The folder of one set of fixtures."""
    found: Path = request.param
    return found


@pytest.fixture
def expected(written: Path) -> dict[str, Any]:
    """What clients read when the fixtures were made."""
    found: dict[str, Any] = json.loads((written / "expected.json").read_text())
    return found


def unpack(archive: Path, to: Path) -> Path:
    with tarfile.open(archive) as packed:
        packed.extractall(to, filter="data")
    return to


def prepared(written: Path, folder: Path) -> LocalCluster:
    """Return a cluster whose members find their old data folders."""
    local = LocalCluster(folder / "cluster", members=3, die_with_owner=True)
    local.prepare()
    data = unpack(written / "group.tar.xz", folder / "unpacked")
    for name in local.member_names:
        (data / name).rename(local.folder / name / "data")
    return local


def test_members_serve_old_data(written: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    """Records, bounds, keys, committed offsets and holds are there; a hold keeps its queue."""
    local = prepared(written, tmp_path)
    try:
        local.start_all()
        leader_of(local)
        where = addresses(local)
        with Admin(where) as admin:
            assert [topic.name for topic in admin.list_topics()] == expected["topics"]
            for topic in TOPICS:
                assert bounds_of(admin, topic) == expected["bounds"][topic]
                assert [list(row) for row in rows_of(where, topic)] == expected["records"][topic]
            for topic, key in (("orders", "order-17"), ("trimmed", "all")):
                assert places_of(admin, topic, key) == expected["keys"][key]
            committed = admin.read_offsets("readers", "orders")
            assert {str(queue): at for queue, at in committed.items()} == expected["committed"]
            holds = [[each.owner, each.topic, each.queue, each.offset] for each in admin.holds()]
            assert holds == expected["holds"]
            (held,) = (each.offset for each in admin.holds("trimmed"))
            assert admin.trim("trimmed", 0, held + 2) == held
        asyncio.run(check_producers(local, expected["counted"]))
        with Producer(where, ProducerConfig(name="till")) as producer:
            minimum, maximum = expected["bounds"]["orders"]["0"]
            assert producer.send("orders", b"later", queue=0).offset == maximum > minimum
    finally:
        local.stop_all()


async def check_producers(local: LocalCluster, counted: dict[str, Any]) -> None:
    """A repeated batch is not stored again, a gap and a fenced producer are refused."""
    address = local.address(leader_of(local))
    async with grpc.aio.insecure_channel(address) as channel:
        member = Member("", address, channel, local.group)

        async def append(producer: dict[str, Any], epoch: int, sequence: int) -> AnswerRow:
            stamp = ProducerStamp(bytes.fromhex(producer["id"]), epoch, sequence)
            body = b"%d" % sequence
            return await member.append_one(
                batch_of(bytes.fromhex(counted["topic_id"]), [body], 0, stamp)
            )

        writer, fenced = counted["writer"], counted["fenced"]
        for sequence, offset in enumerate(writer["offsets"]):
            row = await append(writer, writer["epoch"], sequence)
            assert (row.code, row.base_offset) == (Code.OK, offset)
        next_sequence = len(writer["offsets"])
        row = await append(writer, writer["epoch"], next_sequence + 1)
        assert row.code is Code.SEQUENCE_GAP
        assert (await append(fenced, fenced["epoch"] - 1, 0)).code is Code.STALE_EPOCH
        row = await append(writer, writer["epoch"], next_sequence)
        assert (row.code, row.base_offset) == (Code.OK, len(writer["offsets"]) + 1)


def test_old_folders_are_inspected_and_read(
    written: Path, expected: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No member runs: every `inspect`, `repair --check`, and reading by path."""
    data = unpack(written / "group.tar.xz", tmp_path)
    for name in ("n1", "n2", "n3"):
        for what in INSPECTIONS:
            assert dledger(["inspect", what, str(data / name)]) == 0, capsys.readouterr().err
        assert dledger(["repair", "--check", str(data / name)]) == 0, capsys.readouterr().err
        for topic in TOPICS:
            rows = read_folder(data / name, topic=topic)
            found = sorted((row["queue_id"], row["queue_offset"]) for row in rows)
            assert found == [(row[0], row[1]) for row in expected["records"][topic]]


def test_an_old_export_is_read_and_goes_on(
    written: Path, expected: dict[str, Any], tmp_path: Path
) -> None:
    """Every version by its manifests; then the old members give the next one."""
    lake = unpack(written / "export.tar.xz", tmp_path) / "orders"
    wanted = [(row[0], row[1]) for row in expected["records"]["orders"]]
    assert places_in(lake) == wanted
    assert [read_export(lake, version).rows for version in range(4)] == [60, 100, 100, 120]
    local = prepared(written, tmp_path)
    try:
        local.start_all()
        leader_of(local)
        with Producer(addresses(local)) as producer:
            new = [producer.send("orders", b"new", queue=number % 2) for number in range(4)]
        command(local, "--topic", "orders", "--to", str(lake), "--jobs", "1")
        assert places_in(lake) == sorted(wanted + [(each.queue, each.offset) for each in new])
        command(local, "compact", str(lake), "--jobs", "1")
        command(local, "verify", str(lake))
    finally:
        local.stop_all()


def places_in(lake: Path) -> list[tuple[int, int]]:
    """Return queue and offset of all rows of the newest version."""
    rows = read_export(lake).read().to_pylist()
    return [(row["queue_id"], row["queue_offset"]) for row in rows]


def command(local: LocalCluster, *arguments: str) -> None:
    """Run `dledger export`, which must do what it is told."""
    done = subprocess.run(
        [sys.executable, "-m", "dledger_broker.cli", "export", *arguments],
        env={**os.environ, "DLEDGER_NAME_SERVERS": addresses(local)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_an_old_history_is_judged(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict is the one of its day: valid."""
    history = tmp_path / "history.jsonl"
    history.write_bytes(lzma.decompress((written / "history.jsonl.xz").read_bytes()))
    assert jepsen_tests(["check", str(history)]) == 0, capsys.readouterr().err
