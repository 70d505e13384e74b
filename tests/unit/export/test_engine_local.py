"""The local engine's bounds, pace and progress, without a process."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_client.export.engines import local
from dledger_client.export.engines.local import JOBS_MAX, LocalEngine, Pace
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.layout import Piece
from dledger_client.export.task import Work
from tests.unit.export.fakes import IDENTITY, FakeLog, QuickDisk


def test_a_large_machine_gets_no_more_jobs_than_may_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --jobs 0, one for each processor, as with a number; with a rate, one is enough."""
    asked: list[int] = []

    def pool(jobs: int, *_: object) -> None:
        asked.append(jobs)
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "ProcessPoolExecutor", pool)
    monkeypatch.setattr(os, "cpu_count", lambda: 4 * JOBS_MAX)
    work = Work(
        ExportStorage(tmp_path, QuickDisk()), IDENTITY, ("queue_offset",), FakeLog({0: 1_000})
    )
    pieces = [Piece(0, at, at + 1) for at in range(2 * JOBS_MAX)]
    with pytest.raises(KeyboardInterrupt):
        LocalEngine().run(work, pieces)
    assert asked == [JOBS_MAX]
    columns = ("queue_offset", "store_timestamp")
    made = LocalEngine(max_rate=1e12).run(replace(work, columns=columns), pieces[:2])
    assert len(made) == 2
    with pytest.raises(KeyboardInterrupt):
        LocalEngine(3, max_rate=1e12).run(work, pieces)
    assert asked == [JOBS_MAX, 3]


def test_what_was_there_is_done_too(tmp_path: Path) -> None:
    """Progress goes by rows: a run that goes on where another died begins with what that made."""
    columns = ("queue_offset", "store_timestamp")
    work = Work(ExportStorage(tmp_path, QuickDisk()), IDENTITY, columns, FakeLog({0: 50}))
    pieces = [Piece(0, 0, 20, "2024-10-04"), Piece(0, 20, 40, "2024-10-04")]
    told: list[tuple[int, int]] = []
    for wanted in (pieces[:1], pieces):
        told.clear()
        LocalEngine(1, 0, lambda files, rows, _bytes: told.append((files, rows))).run(work, wanted)
    assert told[:2] == [(0, 20), (1, 20)]
    assert told[-1] == (2, 40)


def test_a_rate_is_kept() -> None:
    """Whoever is ahead waits, and an idle while is not saved up."""
    now = [0.0]
    pace = Pace(100.0, lambda: now[0])
    assert pace.due(50) == 0.5
    assert pace.due(50) == 1.0
    now[0] = 10.0
    assert pace.due(100) == 1.0
    assert Pace(0).due(1 << 40) == 0.0
