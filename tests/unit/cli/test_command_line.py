"""The command line as a whole: help, bad usage, exit codes, what is imported; restarts of `up`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from dledger_broker.cli import main
from dledger_broker.cli.app import COMMANDS, make_app
from dledger_broker.cli.processes.up import (
    HEALTHY_SECONDS,
    RESTART_SECONDS_MAX,
    RESTART_SECONDS_MIN,
    Restarts,
)
from dledger_broker.local.cluster import FolderInUse, LocalCluster, OtherCluster
from dledger_proto.exit_codes import exit_codes_of


def dledger(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command as a process."""
    return subprocess.run(
        [sys.executable, "-m", "dledger_broker.cli", *arguments],
        input=stdin, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f" {name} " in shown for name in COMMANDS)


def commands_of(group: typer.Typer) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command and every group of commands."""
    yield ()
    for command in group.registered_commands:
        yield (str(command.name or getattr(command.callback, "__name__", "")),)
    for each in group.registered_groups:
        assert each.typer_instance is not None
        for words in commands_of(each.typer_instance):
            yield (str(each.name), *words)


@pytest.mark.parametrize("words", commands_of(make_app()), ids=" ".join)
def test_every_help_shows_its_exit_codes_at_80_columns(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    codes = exit_codes_of(" ".join(words))
    _, _, told = shown.partition("Exit codes:")
    text = " ".join(told.split())
    assert all(f"{code.value}: {meaning}" in text for code, meaning in codes.items()), told
    lines = [line.split(":")[0].strip() for line in told.splitlines() if ": " in line]
    assert [str(code.value) for code in codes] == [each for each in lines if each.isdigit()]


HUGE = "9" * 25


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nope"], "error: No such command 'nope'; see --help"),
        (["topic", "create"], "error: Missing argument '"),
        (["status", "--every", "x"], "error: Invalid value for '--every'"),
        (["status", "--nope"], "error: No such option: --nope"),
        (["trim", "t", "-q", "0", "--offset", HUGE], "error: Invalid value for '--offset'"),
        (["topic", "create", "t", "--queues", HUGE], "error: Invalid value for '--queues'"),
        (["topic", "update", "t", "--read-queues", HUGE], "error: Invalid value for '--read-q"),
        (["tail", "t", "--follow", "--from", HUGE], f"error: --from: {HUGE}, must be an offset"),
        (["tail", "t", "--prefer", ""], "error: --prefer: empty, must be leader, follower"),
        (["consume", "t", "-g", "g", "--from", "7"], "error: --from: 7, must be first or last"),
        (["consume", "t", "-g", "g", "--raw", "--json"], "error: --raw and --json exclude"),
        (["bench", "--modes", ","], "error: --modes: empty, must be of batched, lone, read"),
        (["bench", "--modes", "fast"], "error: --modes: fast, must be of batched, lone, read"),
        (["up", "--flush", "maybe"], "error: --flush: maybe, must be sync or async"),
        (["namesrv", "--log-format", "xml"], "error: --log-format: xml, must be console or json"),
        (["topic", "create", "t", "--permission", "x"], "error: --permission: x, must be rw, r"),
        (["topic", "create", "t", "--type", "x"], "error: --type: x, must be one of normal, fifo"),
        (["tail", "t", "--from", "0001-01-01T00:00:00"], "error: --from: 0001-01-01T00:00:00, "),
    ],
)
def test_bad_usage_is_one_line_and_2(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 1
    assert shown[0].startswith(line)


def test_unexpected_arguments_of_a_process_do_not_print_a_traceback() -> None:
    ended = dledger("broker", "--config", "/nowhere.toml")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "error: file = /nowhere.toml: cannot be read: No such file or directory\n"
    )


def test_config_check(tmp_path: Path) -> None:
    file = tmp_path / "member.toml"
    file.write_text(
        'cluster = "c"\nmember = "a"\nlisten = "h:1"\nsecurity = "off"\nfolder = "/d"\n'
        'group = "g"\n[members]\na = "h:1"\n'
    )
    ended = dledger("config", "check", str(file), "--json")
    assert ended.returncode == 0
    rows = {row["key"]: row for row in json.loads(ended.stdout)}
    assert rows["cluster"] == {"key": "cluster", "value": "c", "source": "file member.toml"}
    assert rows["group.folder"] == {"key": "group.folder", "value": "/d/g", "source": "derived"}
    file.write_text(file.read_text() + 'flush = "x"\n')
    ended = dledger("config", "check", str(file))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: group.members.flush")


def test_only_what_a_command_needs_is_imported() -> None:
    code = (
        "import sys; from dledger_broker.cli import main; main(['config', 'keys'])\n"
        "heavy = {'dledger_client', 'dledger_broker.process.member', 'matplotlib'}\n"
        "heavy |= {'lmdb', 'pysyncobj'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_servers_silence_grpc_before_they_import_it() -> None:
    """gRPC reads how much it may log when it is imported: strangers must not fill the log."""
    code = (
        "import sys, dledger_broker.cli.app as app\n"
        "app.make_app(['broker']); app.make_app(['namesrv'])\n"
        "sys.exit('grpc' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert ended.returncode == 0


def test_help_is_not_broken_where_the_source_is() -> None:
    shown = dledger("repair", "--help").stdout
    assert "deletes nothing. The member then starts empty" in " ".join(shown.split())
    words = [line.split() for line in shown.splitlines() if line.startswith(" ")]
    assert not any(len(line) == 2 and line[0] == "empty" for line in words)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{bad", "JSONDecodeError: "),
        ('{"cluster": "x"}', "KeyError: 'group'"),
        ("[]", "TypeError: "),
        (
            '{"cluster": "x", "group": "g", "ports": {"n1": 1}}',
            "ports of n1",
        ),
    ],
)
def test_a_damaged_record_of_a_cluster_is_one_clear_error(
    tmp_path: Path, text: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.json").write_text(text)
    assert main(["up", "--folder", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path}/cluster.json is damaged: {reason}")
    assert (tmp_path / "cluster.json").read_text() == text


def test_arguments_that_are_no_utf8() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "dledger_broker.cli", "send", "t", "x", "--ordering-key", b"\xff",
         "-n", "127.0.0.1:1", "--timeout", "0.2"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode in {2, 3}
    assert len(ended.stderr.splitlines()) == 1


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    for arguments in (["up", "--folder", str(blocked)], ["demo", "--folder", str(blocked / "x")]):
        ended = dledger(*arguments)
        assert ended.returncode in {1, 2}, ended.stderr
        assert ended.stderr.splitlines()[-1].startswith("error: ")
        assert "Traceback" not in ended.stderr


def test_reader_that_goes_away_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "dledger_broker.cli", "config", "keys", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) in {0, 4}
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


# Restarts


def test_crashes_are_followed_by_growing_pauses() -> None:
    restarts = Restarts()
    now = 0.0
    pauses: list[float] = []
    for _ in range(7):
        restarts.started("n1", now)
        pause = restarts.ended("n1", -9, now)
        assert pause is not None
        assert restarts.take_due(now + pause - 0.01) == []
        assert restarts.take_due(now + pause) == ["n1"]
        pauses.append(pause)
        now += pause
    assert (
        pauses == [RESTART_SECONDS_MIN * 2**place for place in range(5)] + [RESTART_SECONDS_MAX] * 2
    )


def test_a_long_healthy_run_forgives_earlier_crashes() -> None:
    restarts = Restarts()
    for _ in range(4):
        restarts.started("n1", 0)
        restarts.ended("n1", 70, 1)
    restarts.started("n1", 10)
    assert restarts.ended("n1", 70, 10 + HEALTHY_SECONDS) == RESTART_SECONDS_MIN


@pytest.mark.parametrize("code", [0, 2, 65, 69, 73, 76])
def test_what_would_end_the_same_way_is_not_started_again(code: int) -> None:
    restarts = Restarts()
    restarts.started("n1", 0)
    assert restarts.ended("n1", code, 1) is None
    assert restarts.take_due(1e9) == []


# The local cluster


def test_folder_has_one_owner(tmp_path: Path) -> None:
    first, second = LocalCluster(tmp_path), LocalCluster(tmp_path)
    first.take_folder()
    with pytest.raises(FolderInUse, match=f"in use by process {os.getpid()}") as caught:
        second.take_folder()
    assert caught.value.owner == os.getpid()
    first.give_folder()
    second.take_folder()
    second.give_folder()


def test_owner_that_was_killed_is_named_so(tmp_path: Path) -> None:
    holder = LocalCluster(tmp_path)
    holder.take_folder()
    os.pwrite(holder.lock_fd, b"999999999", 0)
    with pytest.raises(FolderInUse, match="of an earlier start that are still ending") as caught:
        LocalCluster(tmp_path).take_folder()
    assert caught.value.owner == 0
    holder.give_folder()


def test_a_cluster_from_before_links_had_ports_gets_some(tmp_path: Path) -> None:
    """Once: the next start finds the same ones."""
    ports = {"namesrv": 1, "n1": 2, "n2": 3}
    record = {"cluster": "local", "group": "group-1", "ports": ports}
    (tmp_path / "cluster.json").write_text(json.dumps(record))
    first, again = LocalCluster(tmp_path), LocalCluster(tmp_path)
    first.prepare()
    again.prepare()
    assert again.ports == ports
    assert set(first.link_ports) == {"n1", "n2"}
    assert again.link_ports == first.link_ports


def test_next_start_is_the_same_cluster(tmp_path: Path) -> None:
    first = LocalCluster(tmp_path, members=5)
    first.prepare()
    again = LocalCluster(tmp_path)
    again.prepare()
    assert (again.ports, again.members) == (first.ports, 5)
    assert again.link_ports == first.link_ports
    with pytest.raises(OtherCluster, match="has its name server on port"):
        LocalCluster(tmp_path, base_port=1).prepare()
