"""The harness against a cluster that was there before: hurt by shell lines, left as it was."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dledger_broker.local.cluster import NAME_SERVER, LocalCluster
from dledger_client import Admin, ClientError
from tests.chaos.test_chaos import ROOT, run
from tests.waiting import wait_until

PAUSED_SECONDS_MAX = 60
PYTHON = shlex.quote(sys.executable)


def lines(folder: Path) -> dict[str, str]:
    """Return commands that hurt members whose process ids lie in files."""
    member = f'cd {shlex.quote(str(folder))}/"$NODE"'
    # A process that nobody waits for stays in the table, as Z.
    ended = 'while ps -o stat= -p "$(cat pid)" | grep -qv Z; do sleep 0.1; done'
    broker = f"{PYTHON} -m dledger_broker.cli broker --config config.toml"
    return {
        "kill": f'{member}; kill -9 "$(cat pid)"; {ended}',
        "stop": f'{member}; kill "$(cat pid)"; {ended}',
        "start": f"{member}; setsid {broker} >>log 2>&1 </dev/null & {member}; echo $! >pid",
        "pause": f'{member}; kill -STOP "$(cat pid)"',
        "resume": f'{member}; kill -CONT "$(cat pid)"',
    }


@contextmanager
def somebodys(folder: Path) -> Iterator[LocalCluster]:
    """Start a cluster that is not the harness's."""
    cluster = LocalCluster(folder)
    cluster.prepare()
    listen = f"127.0.0.1:{cluster.ports[NAME_SERVER]}"
    servers = subprocess.Popen([sys.executable, "-m", "dledger_namesrv", "--listen", listen])
    commands = lines(folder)
    # Of one version, whoever starts them: the harness's commands have its environment.
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        for node in cluster.member_names:
            subprocess.run(
                commands["start"], shell=True, check=True, env={**environment, "NODE": node}
            )
        yield cluster
    finally:
        for node in cluster.member_names:
            subprocess.run(
                commands["kill"], shell=True, check=False,
                env={"NODE": node, "PATH": "/usr/bin:/bin"}, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        servers.kill()
        servers.wait()


@pytest.mark.slow
def test_a_cluster_of_ones_own_is_hurt_by_commands_and_left_as_it_was(tmp_path: Path) -> None:
    with somebodys(tmp_path / "theirs") as cluster:
        bootstrap = f"127.0.0.1:{cluster.ports[NAME_SERVER]}"
        with Admin(bootstrap) as admin:
            wait_until(lambda: _created(admin, "theirs"), "the cluster serves")
            commands = tmp_path / "commands.toml"
            found = lines(tmp_path / "theirs").items()
            commands.write_text("".join(f"{name} = {json.dumps(line)}\n" for name, line in found))
            code, results, said = run(
                tmp_path / "out", "--backend", "own", "--bootstrap", bootstrap,
                "--workload", "fifo", "--nemesis", "kill,pause,transfer,isolate",
                "--time", "25", "--seed", "1", "--commands", str(commands),
            )  # fmt: skip
            assert code == 0, said
            assert {"kill", "pause", "transfer"} <= set(results["faults"])
            assert "cannot do network here: --commands has no cut, heal" in said
            assert [topic.name for topic in admin.list_topics()] == ["theirs"]


@pytest.mark.slow
def test_a_run_that_is_ended_at_once_leaves_nobody_paused(tmp_path: Path) -> None:
    with somebodys(tmp_path / "theirs") as cluster:
        bootstrap = f"127.0.0.1:{cluster.ports[NAME_SERVER]}"
        with Admin(bootstrap) as admin:
            wait_until(lambda: _created(admin, "theirs"), "the cluster serves")
        found = lines(tmp_path / "theirs")
        found["pause"] += "; touch paused"
        commands = tmp_path / "commands.toml"
        commands.write_text(
            "".join(f"{name} = {json.dumps(line)}\n" for name, line in found.items())
        )
        harness = subprocess.Popen(
            [
                sys.executable, "-m", "jepsen_tests", "run", "--backend", "own", "--bootstrap",
                bootstrap, "--nemesis", "pause-majority", "--time", "60", "--seed", "1",
                "--commands", str(commands), "--out", str(tmp_path / "out"),
            ],
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        members = [tmp_path / "theirs" / node for node in cluster.member_names]
        try:
            wait_until(
                lambda: sum((each / "paused").exists() for each in members) == 2,
                "a majority stands still",
                PAUSED_SECONDS_MAX,
            )
            harness.send_signal(signal.SIGINT)
            harness.send_signal(signal.SIGTERM)  # two of one kind may be taken for one
            assert harness.wait(PAUSED_SECONDS_MAX) == 3
        finally:
            harness.kill()
            harness.wait()
        states = [_state((each / "pid").read_text().strip()) for each in members]
        assert all(state in "SRD" for state in states), states


def _state(pid: str) -> str:
    """Return the state of a process as the kernel tells it: T stands still, Z has ended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _created(admin: Admin, topic: str) -> bool:
    try:
        admin.create_topic(topic)
    except ClientError:
        return False
    return True
