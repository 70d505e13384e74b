"""`dledger export` without a cluster: bad input, what a folder holds, how each command ends."""

import json
from pathlib import Path

import pytest

from dledger_broker.cli import main
from dledger_client.export.planning import MIB, Options
from dledger_client.export.run import export_once
from dledger_client.export.storage import Storage
from tests.unit.export.fakes import FakeLog, HereEngine, QuickDisk


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """An export of two queues."""
    storage = Storage(tmp_path / "lake", QuickDisk())
    options = Options("orders", file_bytes=MIB)
    export_once(storage, FakeLog({0: 25, 1: 9}), HereEngine(), options, lambda: 5_000)
    return storage.root


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        ([], 2, "--topic and --to are needed"),
        (["--topic", "a"], 2, "--topic and --to are needed"),
        (["--engine", "sparc"], 2, "--engine: sparc, must be local or spark"),
        (["--min-bytes", "4q"], 2, "--min-bytes: 4q, must be a number of bytes like 500, 64k"),
        (["--max-delay", "soon"], 2, "--max-delay: soon, must be a time like 500ms"),
        (["--max-delay", "5s"], 2, "BAD_OPTION: --max-delay: 5000; must be used with --min-bytes"),
        (["--file-bytes", "1k"], 2, "BAD_OPTION: --file-bytes: 1024; must be 1048576 to"),
        (["--since", "now"], 2, "--since: now, must be a time like"),
        (["--engine", "spark", "--max-rate", "1m"], 2, "only the local engine keeps a rate"),
        (["-n", "127.0.0.1:1"], 3, "NOT_PROPOSED"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], code: int, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Value, limit and remedy; nothing is written."""
    monkeypatch.setenv("COLUMNS", "200")
    given = ["--topic", "orders", "--to", str(tmp_path / "lake")] if len(arguments) > 1 else []
    if arguments == ["--topic", "a"]:
        given = []
    assert main(["export", *given, *arguments]) == code
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
    assert not (tmp_path / "lake").exists()


def test_status_says_what_a_folder_holds(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For people and for programs, and that a folder holds nothing."""
    assert main(["export", "status", str(lake), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["version"], said["rows"], said["files"]) == (0, 34, 4)
    assert said["position"] == {"0": 25, "1": 9}
    assert said["open_plan"] is None
    assert main(["export", "status", str(lake)]) == 0
    assert "orders" in capsys.readouterr().out
    assert main(["export", "status", str(lake.parent / "none")]) == 1
    assert "DLEDGER_EXPORT_NOT_AN_EXPORT" in capsys.readouterr().err


def test_upkeep_ends_with_its_codes(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Verified, compacted once, collected; damage is named and ends with 1."""
    assert main(["export", "verify", str(lake), "--no-log"]) == 0
    assert main(["export", "compact", str(lake), "--jobs", "1", "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (said["kind"], said["rows"]) == ("compact", 25)
    assert main(["export", "compact", str(lake), "--jobs", "1"]) == 7
    assert main(["export", "gc", str(lake), "--grace", "1s"]) == 2
    assert main(["export", "gc", str(lake), "--dry-run"]) == 0
    for path in lake.rglob("*.parquet"):
        path.write_bytes(b"PAR1")
    assert main(["export", "verify", str(lake), "--no-log"]) == 1
    assert "2 problems, the first: DLEDGER_EXPORT_DAMAGED" in capsys.readouterr().err
