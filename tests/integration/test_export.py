"""`dledger export` against a real group: members die, queues are trimmed, and nothing is twice.

Goal: the command, the cluster as a log, and the protocol fit together. Method: three processes, the
command as a process of its own, everything compared with what was sent.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from dledger_broker.local.cluster import LocalCluster
from dledger_client import Admin
from dledger_client.export import read_export
from dledger_proto.exit_codes import Exit
from tests.integration.test_reading import addresses, cluster_in, fill, leader_of, until
from tests.unreadable import send_unreadable

TIMEOUT_SECONDS = 120


def command(
    local: LocalCluster, *arguments: str, name: str = "export"
) -> subprocess.CompletedProcess[str]:
    """Run `dledger export`; the result is what it printed and how it ended."""
    return subprocess.run(
        [sys.executable, "-m", "dledger_broker.cli", name, *arguments],
        env={**os.environ, "DLEDGER_NAME_SERVERS": addresses(local)},
        capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False,
    )  # fmt: skip


def export(local: LocalCluster, lake: Path, *more: str) -> dict[str, object]:
    """Run an export that must publish; return what it says of it."""
    done = command(local, "--topic", "orders", "--to", str(lake), "--json", *more)
    assert done.returncode == 0, done.stderr
    said: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return said


def check(lake: Path, sent: dict[int, list[bytes]]) -> None:
    """Everything that was sent, in order, once."""
    found: dict[int, list[bytes]] = {}
    for row in read_export(lake).read().to_pylist():
        queue = found.setdefault(row["queue_id"], [])
        assert row["queue_offset"] == len(queue)
        queue.append(row["body"])
    assert found == sent


def test_exports_of_a_group_whose_members_die(tmp_path: Path) -> None:
    """First run, empty run, more messages with a follower and then the leader killed, upkeep."""
    lake = tmp_path / "lake"
    with cluster_in(tmp_path / "cluster") as local:
        where = addresses(local)
        sent = fill(where, "orders", 2_000)
        said = export(local, lake)
        assert (said["version"], said["rows"], said["by"]) == (0, 2_000, "this run")
        check(lake, sent)
        empty = command(local, "--topic", "orders", "--to", str(lake))
        assert empty.returncode == Exit.NOTHING_NEW, empty.stderr

        leader = leader_of(local)
        follower = next(name for name in local.member_names if name != leader)
        local.kill(follower)
        more = fill(where, "orders", 400)
        assert export(local, lake, "--jobs", "1")["rows"] == 400
        sent = {queue: sent[queue] + more[queue] for queue in sent}
        check(lake, sent)
        local.start(follower)
        local.kill(leader)
        until(lambda: leader_of(local) != leader, "another leader")
        more = fill(where, "orders", 400)
        assert export(local, lake, "--jobs", "1")["rows"] == 400
        sent = {queue: sent[queue] + more[queue] for queue in sent}
        check(lake, sent)

        assert command(local, "compact", str(lake), "--jobs", "1").returncode == 0
        check(lake, sent)
        verified = command(local, "verify", str(lake), "--json")
        assert verified.returncode == 0, verified.stderr
        (row,) = json.loads(verified.stdout)
        assert (row["rows"], row["compared_with_log"], row["problems"]) == (2_800, 4, [])


def test_what_is_trimmed_or_made_anew_is_refused(tmp_path: Path) -> None:
    """Each with its own exit code and remedy; accepted loss leaves a gap that is told."""
    lake = tmp_path / "lake"
    with cluster_in(tmp_path / "cluster") as local:
        where = addresses(local)
        fill(where, "orders", 40, queues=1)
        export(local, lake, "--jobs", "1")
        fill(where, "orders", 40, queues=1)
        with Admin(where) as admin:
            admin.trim("orders", 0, 60)
        lost = command(local, "--topic", "orders", "--to", str(lake))
        assert lost.returncode == Exit.DATA_LOSS
        assert "queue 0 offsets 40 to 59 were trimmed" in lost.stderr
        assert "--accept-data-loss" in lost.stderr
        said = export(local, lake, "--accept-data-loss", "--jobs", "1")
        assert (said["rows"], said["lost"]) == (20, 20)
        with Admin(where) as admin:
            admin.delete_topic("orders")
        fill(where, "orders", 4, queues=1)
        other = command(local, "--topic", "orders", "--to", str(lake))
        assert other.returncode == Exit.CONFLICT
        assert "DLEDGER_EXPORT_OTHER_TOPIC" in other.stderr


def test_what_nobody_can_decode_is_refused_or_told(tmp_path: Path) -> None:
    """An open plan goes on with the option; the gap is in all that looks at the export."""
    lake = tmp_path / "lake"
    with cluster_in(tmp_path / "cluster") as local:
        where = addresses(local)
        sent = fill(where, "orders", 40, queues=1)[0]
        first = send_unreadable(where, "orders", 0, 3)
        sent += fill(where, "orders", 10, queues=1)[0]
        for option in ("--jobs=1", "--accept-data-loss"):
            refused = command(local, "--topic", "orders", "--to", str(lake), option)
            assert refused.returncode == Exit.DATA_LOSS
            assert "DLEDGER_EXPORT_UNREADABLE: orders/0 of group " in refused.stderr
            assert f"offsets {first} to {first + 2}, 3 records" in refused.stderr
            assert "--accept-unreadable" in refused.stderr
        said = export(local, lake, "--accept-unreadable")
        assert (said["rows"], said["files"], said["lost"], said["unreadable"]) == (50, 2, 0, 3)
        rows = read_export(lake).read().to_pylist()
        assert [row["body"] for row in rows] == sent
        shown = json.loads(command(local, "status", str(lake), "--json").stdout)
        (gap,) = shown["gaps"]
        assert (gap["queue"], gap["first"], gap["records"]) == (0, first, 3)
        assert gap["reason"] == "unreadable"
        assert "zstd" in gap["detail"]
        verified = command(local, "verify", str(lake))
        assert verified.returncode == 0, verified.stderr
        assert f"queue 0 offsets {first} to {first + 2}, 3 records, unreadable" in verified.stderr

        stopped = command(local, "orders", name="tail")
        assert stopped.returncode == 1
        assert f"offsets {first} to {first + 2}, 3 records, cannot be decoded" in stopped.stderr
        assert "--accept-unreadable" in stopped.stderr
        went_on = command(local, "orders", "--accept-unreadable", name="tail")
        assert went_on.returncode == 0
        assert len(went_on.stdout.splitlines()) == 50
        assert "3 messages cannot be decoded and were left out" in went_on.stderr
