"""`dledger export` without a cluster: bad input, what a folder holds, how each command ends."""

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dledger_broker.cli import main
from dledger_broker.cli.exports import export as command
from dledger_broker.cli.exports.runs import repeat
from dledger_broker.cli.output import note
from dledger_client.errors import TopicNotFound, error_of
from dledger_client.export import cluster_source
from dledger_client.export.files.storage import TEMPORARY, ExportStorage
from dledger_client.export.manifests.records import (
    Identity,
    Manifest,
    dump,
    manifest_name,
    plan_name,
    summed,
)
from dledger_client.export.planning import MIB, Options
from dledger_client.export.run import Outcome, export_once, plan_only
from dledger_proto.errors import Code
from tests.unit.export.fakes import FakeLog, HereEngine, QuickDisk
from tests.unit.proto.samples import TOPIC_ID
from tests.unit.reading.fakes import TOPIC, FakePlanner, FakeQueue


@pytest.fixture(autouse=True)
def priorities(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Commands run in this process, which keeps its own; return what they asked for."""
    asked: list[int] = []
    monkeypatch.setattr("os.setpriority", lambda _which, _who, nice: asked.append(nice))
    return asked


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """An export of two queues."""
    storage = ExportStorage(tmp_path / "lake", QuickDisk())
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
        (
            ["--max-delay", "5s"],
            2,
            "--max-delay: 5000; must be given together with --min-bytes",
        ),
        (["--file-bytes", "1k"], 2, "BAD_OPTION: --file-bytes: 1024; must be 1048576 to"),
        (["--since", "now"], 2, "--since: now, must be a time like"),
        (["--engine", "spark", "--max-rate", "1m"], 2, "only the local engine can limit its rate"),
        (["--engine", "spark", "--jobs", "2"], 2, "--jobs 2: Spark's master decides how many"),
        (["--master", "spark://m:7077"], 2, "--master spark://m:7077: only of --engine spark"),
        (["--watch", "--dry-run"], 2, "--watch and --dry-run"),
        (["--watch", "--every", "0s"], 2, "--every 0s; must be 100ms or more"),
        (["--to", "s3://lake/orders"], 2, "s3://lake/orders is not a folder: exports cannot"),
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


def test_nothing_new_lets_go_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run every few minutes would else keep everything for ever; a dry run keeps nothing."""
    identity = Identity("c1", TOPIC, TOPIC_ID.hex())
    storage = ExportStorage(tmp_path / "lake", QuickDisk())
    options = Options(TOPIC, file_bytes=MIB)
    export_once(storage, FakeLog({0: 2}, identity=identity), HereEngine(), options, lambda: 5_000)
    planner = FakePlanner({0: FakeQueue([1_000, 2_000])})
    monkeypatch.setattr(cluster_source, "Planner", lambda *_: planner)
    command = ["export", "--topic", TOPIC, "--to", str(storage.root), "--jobs", "1"]
    assert main(command) == 7
    assert "nothing new" in capsys.readouterr().err
    planner.queues = {0: FakeQueue([1_000, 2_000, 3_000])}
    assert main([*command, "--dry-run"]) == 0
    assert planner.holds == {(TOPIC, 0): []}


def of_a_log(monkeypatch: pytest.MonkeyPatch, log: FakeLog) -> None:
    """Have commands export a log in memory."""

    @contextmanager
    def source(*_: object, **_more: object) -> Iterator[FakeLog]:
        yield log

    monkeypatch.setattr(command, "open_source", source)


def test_whose_plan_it_was_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options of this run that it was not made by would be passed over in silence."""
    storage, log = ExportStorage(tmp_path / "lake", QuickDisk()), FakeLog({0: 5})
    plan = plan_only(storage, log, Options("orders", file_bytes=MIB), 5_000).plan
    assert plan is not None
    storage.put_if_absent(plan_name(0), dump(plan))
    of_a_log(monkeypatch, FakeLog({0: 9}))
    arguments = ["export", "--topic", "orders", "--to", str(storage.root), "--jobs", "1"]
    assert main([*arguments, "--until", "2024-10-05"]) == 0
    told = "version 0 was planned by another run, by that one's --since, --until and --file-bytes"
    assert told in " ".join(capsys.readouterr().err.split())
    assert main(arguments) == 0
    assert "planned" not in capsys.readouterr().err


def test_who_keeps_a_rate_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, priorities: list[int]
) -> None:
    """A member on the same machine goes first."""
    of_a_log(monkeypatch, FakeLog({0: 5}))
    arguments = ["export", "--topic", "orders", "--to", str(tmp_path / "lake"), "--jobs", "1"]
    assert main([*arguments, "--max-rate", "100m"]) == 0
    assert priorities == [command.NICENESS]
    assert main(arguments) == 7
    assert main([*arguments, "--max-rate", "1m", "--engine", "spark"]) == 2
    assert priorities == [command.NICENESS]


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.ENOSPC, "make room"), (errno.EIO, "look at the disk")]
)
def test_a_disk_that_fails_is_one_line_with_a_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    number: int, remedy: str,
) -> None:  # fmt: skip
    """Also where no task met it, as when the plan is published."""

    def refuse(*_: object) -> bool:
        raise OSError(number, "It says so")

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(ExportStorage, "put_if_absent", refuse)
    of_a_log(monkeypatch, FakeLog({0: 9}))
    assert main(["export", "--topic", "orders", "--to", str(tmp_path / "lake")]) == 1
    said = capsys.readouterr().err
    assert f"DLEDGER_EXPORT_FOLDER_FAILED: the folder: It says so; {remedy}" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("error", [BrokenPipeError(), TimeoutError(), ConnectionRefusedError()])
def test_what_no_folder_says_is_not_told_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    error: OSError,
) -> None:  # fmt: skip
    """Some are errors of the same kind to Python."""

    def refuse(*_: object) -> bool:
        raise error

    monkeypatch.setattr(ExportStorage, "put_if_absent", refuse)
    of_a_log(monkeypatch, FakeLog({0: 9}))
    assert main(["export", "--topic", "orders", "--to", str(tmp_path / "lake")]) == 1
    assert "FOLDER" not in capsys.readouterr().err


def test_watching_looks_as_often_as_it_was_told() -> None:
    """Also while there is always something new, or every version would be of a few records."""
    manifest = some_manifest()
    seconds = [0.0]
    waits: list[float] = []
    told: list[Outcome] = []
    ends: Iterator[Outcome | Exception] = iter([
        Outcome(manifest), Outcome(None), Outcome(manifest, adopted=True), Outcome(manifest),
        error_of(Code.NO_LEADER, "nobody leads"),
        error_of(Code.UNKNOWN_OUTCOME, "held?", repeatable=True),
        error_of(Code.TOPIC_NOT_FOUND, "the end"),
    ])  # fmt: skip

    def run() -> Outcome:
        seconds[0] += 4.0
        found = next(ends)
        if isinstance(found, Exception):
            raise found
        return found

    with pytest.raises(TopicNotFound, match="the end"):
        repeat(run, 10.0, told.append, waits.append, lambda: seconds[0])
    assert waits == [6.0, 6.0, 6.0, 10.0, 10.0]
    assert len(told) == 3


def some_manifest() -> Manifest:
    """Return some manifest."""
    with tempfile.TemporaryDirectory() as made:
        storage = ExportStorage(Path(made) / "lake", QuickDisk())
        options = Options(TOPIC, file_bytes=MIB)
        outcome = export_once(storage, FakeLog({0: 2}), HereEngine(), options, lambda: 5_000)
        assert outcome.manifest is not None
        return outcome.manifest


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


def test_what_a_folder_says_moves_no_cursor(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its names are whoever's who may write there; programs read what it says."""
    path = lake / manifest_name(0)
    said = json.loads(path.read_bytes())
    del said["crc"]
    name = "c\x1b[2J\x9b31m\u202e\nerror: fake\ud800"
    said["identity"]["cluster"] = name
    path.write_bytes(summed(said))
    (lake / TEMPORARY / "1-\x1b[2J").write_bytes(b"")
    os.utime(lake / TEMPORARY / "1-\x1b[2J", (0, 0))
    assert main(["export", "status", str(lake)]) == 0
    assert main(["export", "gc", str(lake), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "error: fake" in out
    assert all(line.isprintable() for line in out.splitlines())
    assert not any(line.startswith("error: fake") for line in out.splitlines())
    assert main(["export", "status", str(lake), "--json"]) == 0
    out = capsys.readouterr().out
    assert out.rstrip("\n").isprintable()
    assert json.loads(out)["cluster"] == name
    note("1\x1b[2J\n\u3000")
    assert capsys.readouterr().err == "1\\x1b[2J\\n\u3000\n"


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
