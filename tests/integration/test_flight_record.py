"""The flight record of a real member: on demand, after its storage failed, after an orderly end.

Method: the process may write no file longer than a limit, which the log reaches. It is a failing
write like any other to the member, and the record, which is shorter, can still be written.
"""

import asyncio
import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from dledger_broker.cli import main as dledger
from dledger_broker.flight.dumping import PREVIOUS_FILE, RECORD_FILE
from dledger_proto.exit_codes import Exit
from tests.integration.cluster import Cluster, Member, batch_of, eventually, running_cluster

FILE_BYTES_MAX = 3 << 20


def record_of(path: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return what `dledger inspect events --json` prints."""
    assert dledger(["inspect", "events", str(path), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


async def append_until_it_ends(cluster: Cluster, member: Member, topic_id: bytes) -> None:
    """Append until the process is gone."""

    async def ended() -> bool:
        if not cluster.local.is_running(member.name):
            return True
        await member.append_one(batch_of(topic_id, [os.urandom(200_000)]), timeout_ms=500)
        return False

    await eventually(ended, "the member ends")


def test_a_member_whose_storage_failed_leaves_a_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        async with running_cluster(tmp_path, members=1) as cluster:
            local, member = cluster.local, await cluster.leader()
            topic = await cluster.create_topic("t")
            await member.append_one(batch_of(topic.id, [b"one"]))
            folder = local.folder / member.name / "data"

            os.kill(local.pid(member.name), signal.SIGUSR2)

            async def is_written() -> bool:
                return (folder / RECORD_FILE).exists()

            await eventually(is_written, "a record on demand")
            assert (folder / RECORD_FILE).stat().st_mode & 0o077 == 0
            asked = record_of(folder, capsys)
            assert {"role", "formed", "commit", "serving"} <= {each["event"] for each in asked}
            assert (await member.status()).leader == member.name

            limits = (FILE_BYTES_MAX, FILE_BYTES_MAX)
            resource.prlimit(local.pid(member.name), resource.RLIMIT_FSIZE, limits)
            await append_until_it_ends(cluster, member, topic.id)
            assert local.processes[member.name].poll() == Exit.STORAGE
            events = record_of(folder, capsys)
            last = events[-8:]
            assert [each["event"] for each in last].count("stopping after a failure") == 1
            assert any("File too large" in str(each.get("reason")) for each in last)
            times = [each["monotonic"] for each in events]
            assert times == sorted(times)
            assert (folder / PREVIOUS_FILE).exists()

            assert dledger(["inspect", "events", str(folder)]) == 0
            assert "exit code 74" in capsys.readouterr().out.splitlines()[0]

            local.start(member.name)
            await cluster.leader()
            assert local.stop(member.name) == Exit.OK
            assert record_of(folder, capsys)[-1]["event"] == "ended"

    asyncio.run(run())


def test_a_damaged_record_is_shown_as_far_as_it_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        async with running_cluster(tmp_path, members=1) as cluster:
            member = await cluster.leader()
            assert cluster.local.stop(member.name) == Exit.OK

    asyncio.run(run())
    (file,) = tmp_path.rglob(RECORD_FILE)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert dledger(["inspect", "events", str(file)]) == Exit.FAILED
    shown = capsys.readouterr()
    assert "formed" in shown.out
    assert "ends too early" in shown.err
    assert dledger(["inspect", "events", str(tmp_path)]) == Exit.BAD_INPUT
    assert "there is no flight record" in capsys.readouterr().err
