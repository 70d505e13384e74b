"""Bad requests of the command line: exit 3, the nearest name, nothing started."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jepsen_tests import cli
from jepsen_tests.cli import app
from jepsen_tests.history import Header, HistoryWriter


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workload", "lok"], "no workload 'lok'; did you mean log?"),
        (["--nemesis", "kill,paus"], "no nemesis 'paus'; did you mean pause?"),
        (["--backend", "proces"], "no backend 'proces'; did you mean process?"),
        (["--mutant", "no-such-bug"], "no mutant 'no-such-bug'"),
        (["--workload", "retention", "--nemesis", "wipe,kill"], "leave out wipe"),
        (["--nemesis", "kill", "--time", "4"], "no time for kill"),
    ],
)
def test_a_bad_request_starts_nothing(tmp_path: Path, arguments: list[str], said: str) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["run", *arguments, "--out", str(out)])
    assert result.exit_code == 3
    assert said in " ".join(result.output.split())
    assert not out.exists()


def test_a_history_that_is_none_is_not_judged(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("{}\n")
    result = CliRunner().invoke(app, ["check", str(path)])
    assert result.exit_code == 3
    assert "line 1" in " ".join(result.output.split())
    assert CliRunner().invoke(app, ["check", str(tmp_path / "none")]).exit_code == 3


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


def test_lists_name_everything() -> None:
    result = CliRunner().invoke(app, ["list"])
    assert result.exit_code == 0
    for name in ("retention", "power-cut-all", "process"):
        assert name in result.output


def test_a_bug_of_the_harness_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_path: Path, _console: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "judge_file", broken)
    monkeypatch.setattr(sys, "argv", ["jepsen_tests", "check", "history.jsonl"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 3
