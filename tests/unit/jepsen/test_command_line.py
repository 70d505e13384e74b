"""Bad requests of the command line: exit 3, the nearest name, nothing started."""

import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jepsen_tests import cli
from jepsen_tests.backends.own import read_commands
from jepsen_tests.backends.process import ProcessBackend
from jepsen_tests.backends.surface import WantedCluster, places_of
from jepsen_tests.backends.troubles import cgroup, loop_disk
from jepsen_tests.cli import app
from jepsen_tests.errors import BadRequest
from jepsen_tests.exit_codes import EXIT_FAILED, EXIT_VALID, MEANINGS
from jepsen_tests.history.events import Header, Kind
from jepsen_tests.history.history_file import HistoryWriter
from jepsen_tests.nemeses.fault import CANNOT
from jepsen_tests.run.recorder import Recorder
from jepsen_tests.suite.coverage import missed
from jepsen_tests.suite.suites import SMOKE, SuiteEntry


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workload", "lok"], "no workload 'lok'; did you mean log?"),
        (["--nemesis", "kill,paus"], "no nemesis 'paus'; did you mean pause?"),
        (["--backend", "proces"], "no backend 'proces'; did you mean process?"),
        (["--mutant", "no-such-bug"], "no mutant 'no-such-bug'"),
        (["--workload", "retention", "--nemesis", "wipe,kill"], "leave out wipe"),
        (["--nemesis", "kill", "--time", "4"], "no time for kill"),
        (["--time", "0"], "'--time'"),
        (["--time", "-5"], "'--time'"),
        (["--time", "nan"], "--time"),
        (["--time", "1e9"], "'--time'"),
        (["--time", "soon"], "'--time'"),
        (["--nodes", "0"], "'--nodes'"),
        (["--nodes", "4"], "--nodes 4: "),
        (["--nodes", "1000000"], "'--nodes'"),
        (["--seed", "-1"], "'--seed'"),
        (["--seed", str(1 << 63)], "'--seed'"),
        (["--concurrency", "0"], "'--concurrency'"),
        (["--sed", "1"], "--sed"),
        (
            ["--backend", "compose", "--mutant", "dedup-off"],
            "cannot put known bugs into its members",
        ),
        (
            ["--backend", "compose", "--secure"],
            "--secure: backend compose cannot start its members with TLS; take one of process",
        ),
        (["--backend", "compose", "--nodes", "5"], "--nodes 5: deploy/compose.yaml has 3 members"),
        (
            ["--backend", "compose", "--nemesis", "clock,bit-flips"],
            "backend compose cannot do clock (clocks: the members are ordinary containers",
        ),
        (["--backend", "own", "--bootstrap", "h:1"], "kill (processes: --commands has no kill"),
        (["--bootstrap", "h:1"], "--bootstrap h:1: only backend own takes it"),
        (["--backend", "own"], "backend own needs --bootstrap"),
        (
            ["--backend", "own", "--bootstrap", "nonsense", "--nemesis", "transfer"],
            "--bootstrap nonsense: ",
        ),
        (
            ["--backend", "own", "--bootstrap", "h:1", "--nodes", "5"],
            "--nodes 5: backend own takes the members",
        ),
        (
            ["--backend", "own", "--bootstrap", "127.0.0.1:1", "--nemesis", "transfer"],
            "no routes came from 127.0.0.1:1",
        ),
        (["--backend", "own", "--bootstrap", "h:1", "--commands", "none"], "--commands none: "),
    ],
)
def test_a_bad_request_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    out = tmp_path / "out"
    assert cli.main(["run", *arguments, "--out", str(out)]) == 3
    assert said in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["smok"], "no suite 'smok'; did you mean smoke?"),
        (["smoke", "--rounds", "0"], "'--rounds'"),
        (["smoke", "--rounds", "1000000"], "'--rounds'"),
        (["smoke", "--jobs", "0"], "'--jobs'"),
        (["smoke", "--jobs", "-2"], "'--jobs'"),
        (["smoke", "--jobs", "5000"], "'--jobs'"),
        (["smoke", "--seed", "-1"], "'--seed'"),
        ([], "Missing argument"),
    ],
)
def test_a_bad_suite_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    out = tmp_path / "out"
    assert cli.main(["suite", *arguments, "--out", str(out)]) == 3
    assert said in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kil = 'x'", "did you mean kill?"),
        ("kill = 1", "kill = 1 must be a shell line"),
        ("kill = ' '", "kill = ' ' must be a shell line"),
        ("kill", "commands.toml: "),
    ],
)
def test_commands_of_an_own_cluster_are_checked(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "commands.toml"
    path.write_text(text)
    with pytest.raises(BadRequest, match=re.escape(said)):
        read_commands(path)


def test_a_fault_that_was_left_out_is_no_pass_unless_it_cannot_be_done_here() -> None:
    entry = SuiteEntry("log", ("kill", "pause", "loss", "clock"), 10)
    results = {
        "faults": {"kill": 2},
        "skipped": {"loss": f"{CANNOT}process has no loss of links", "clock": "nobody leads"},
    }
    assert missed(entry, results) == {"pause": "no time", "clock": "nobody leads"}


def test_many_runs_are_summed_up(tmp_path: Path) -> None:
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        head = Header(
            workload="log", nemeses=("kill",), backend="process", nodes=("n1",), seed=seed,
            seconds=1.0, began="", product="", notes={},
        )  # fmt: skip
        with HistoryWriter(folder / "history.jsonl", head) as writer:
            recorder = Recorder(writer)
            recorder.phase("faults")
            recorder.nemesis("kill", "", Kind.INVOKE)
            recorder.nemesis("kill", "n1", Kind.OK)
            recorder.invoke(0, "send", "t/0", ["0-1"])
            recorder.end(0, Kind.OK, "send", v=[0, 1])
            recorder.nemesis("heal", "", Kind.OK)
            writer.close(recorder.now())
        CliRunner().invoke(app, ["check", str(folder / "history.jsonl")])
    result = CliRunner().invoke(app, ["results", str(tmp_path)])
    assert result.exit_code == 0
    said = result.output
    assert "| log | process, 1 | 2 | 0.0 | 1 | 0.00 | 1 | 100.0% | 0.0% | 0.0% |" in said
    assert "2 runs, 0.00 hours: 2 faults, 0.00 fault-hours, 2 operations (ok 100.0%," in said
    assert "- duplicates (C5): 0" in said
    assert "| kill | 2 | 0.00 | 0.00 | 0 |  |  |" in said
    assert cli.main(["results", str(tmp_path / "none")]) == 3


def test_a_history_that_is_none_is_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("{}\n")
    assert cli.main(["check", str(path)]) == 3
    assert "line 1" in " ".join(capsys.readouterr().err.split())
    assert cli.main(["check", str(tmp_path / "none")]) == 3


def test_too_little_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    header = Header(
        workload="log", nemeses=(), backend="process", nodes=("n1",), seed=1, seconds=1.0,
        began="", product="", notes={"least_ok": {"send": [1, 0.5]}},
    )  # fmt: skip
    with HistoryWriter(path, header) as writer:
        writer.close(0)
    result = CliRunner().invoke(app, ["check", str(path)])
    assert result.exit_code == 2
    assert (tmp_path / "report.html").read_text().count("unknown")


def test_a_folder_that_looks_like_markup_is_named_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "a[" / "b]" / "[red]:x:"
    folder.mkdir(parents=True)
    header = Header(
        workload="log", nemeses=(), backend="process", nodes=("n1",), seed=1, seconds=1.0,
        began="", product="",
    )  # fmt: skip
    with HistoryWriter(folder / "history.jsonl", header) as writer:
        writer.close(0)
    result = CliRunner().invoke(app, ["check", str(folder / "history.jsonl")])
    assert result.exit_code == 2
    assert str(folder / "report.html") in result.output.replace("\n", "")


def test_lists_name_everything() -> None:
    result = CliRunner().invoke(app, ["list"])
    assert result.exit_code == 0
    for name in ("retention", "power-cut-all", "process"):
        assert name in result.output


def test_a_bug_of_the_harness_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_path: Path, _console: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "judge_file", broken)
    assert cli.main(["check", "history.jsonl"]) == 3


def test_a_machine_without_root_does_every_run_of_the_smoke_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only this machine lacks is skipped and told, also where a run is for that alone."""
    for module in (loop_disk, cgroup):
        monkeypatch.setattr(module, "why_not", lambda: "no root")
    backend = ProcessBackend(WantedCluster(tmp_path))
    assert set(backend.missing) == {"disks", "cgroups"}
    for entry in SMOKE:
        cli.check_possible(entry.faults, backend)


def test_members_of_two_broker_groups_know_their_own_group_and_who_decides(tmp_path: Path) -> None:
    backend = ProcessBackend(WantedCluster(tmp_path, broker_groups=2))
    assert backend.nodes == ("n1", "n2", "n3", "n4", "n5", "n6")
    assert [(part.group, part.nodes) for part in backend.parts] == [
        ("group-1", ("n1", "n2", "n3")), ("group-2", ("n4", "n5", "n6")),
    ]  # fmt: skip
    assert all(part.processes is backend.processes for part in backend.parts)
    assert places_of(backend, {"t": 2}) == {
        "group-1": [("t", 0), ("t", 1)], "group-2": [("t", 2), ("t", 3)],
    }  # fmt: skip
    config = tomllib.loads(backend._config("n5"))
    assert config["control_group"] == "group-1"
    assert config["group"]["name"] == "group-2"
    assert list(config["group"]["members"]) == ["n4", "n5", "n6"]
    assert backend.folders is not None
    assert backend.folders.folder("n5").name == "group-2"


def test_a_workload_of_two_groups_is_refused_where_there_is_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["run", "--workload", "groups", "--backend", "compose"]) == EXIT_FAILED
    assert "needs 2 broker groups: only backend process" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "suite", "mutants", "check", "results"])
def test_every_help_shows_the_exit_codes(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main([command, "--help"]) == EXIT_VALID
    shown = " ".join(capsys.readouterr().out.split())
    assert all(f"{code} {meaning}" in shown for code, meaning in MEANINGS.items())
