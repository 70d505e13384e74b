"""What is told of an export while it runs."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from dledger_broker.cli.exports import progress
from dledger_broker.cli.exports.progress import Reporter
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.layout import Piece
from dledger_client.export.task import Made, Work
from tests.unit.export.fakes import IDENTITY, FakeLog


class Clock:
    """Time that a test lets pass; a module with nothing else in it."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_programs_are_told_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By rows: a plan has their number, and bytes of the log are not those of columns."""
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    reporter = Reporter(as_json=True)

    class Engine:
        def run(self, work: Work, pieces: Sequence[Piece]) -> list[Made]:
            for seconds, files, rows, size in (
                (0.5, 0, 10, 100), (1.5, 0, 0, 0), (4.0, 0, 20, 8_000), (6.0, 1, 60, 24_000),
                (9.0, 1, 130, 36_000),  # an attempt was in vain
            ):  # fmt: skip
                clock.now = seconds
                reporter.advance(files, rows, size)
            return []

    log = FakeLog({0: 100})
    work = Work(ExportStorage(Path("/lake")), IDENTITY, ("body",), log)
    with reporter.running(Engine()):
        reporter.run(work, [Piece(0, 0, 60, size=1 << 30), Piece(1, 20, 60)])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["seconds_left"] for line in lines] == [None, 16, 4, 0]
    assert lines[-1]["rows"] == 100
    assert lines[-2] == {
        "event": "progress", "files": 1, "of": 2, "rows": 60, "of_rows": 100,
        "bytes_per_second": 4_000, "seconds_left": 4,
    }  # fmt: skip
