"""The local engine's bounds, without a process."""

import os
from pathlib import Path

import pytest

from dledger_client.export import engine_local
from dledger_client.export.engine_local import JOBS_MAX, LocalEngine
from dledger_client.export.layout import Piece
from dledger_client.export.storage import Storage
from dledger_client.export.task import Work
from tests.unit.export.fakes import IDENTITY, FakeLog, QuickDisk


def test_a_large_machine_gets_no_more_jobs_than_may_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --jobs 0, one for each processor, as with a number."""
    asked: list[int] = []

    def pool(jobs: int, *_: object) -> None:
        asked.append(jobs)
        raise KeyboardInterrupt

    monkeypatch.setattr(engine_local, "ProcessPoolExecutor", pool)
    monkeypatch.setattr(os, "cpu_count", lambda: 4 * JOBS_MAX)
    work = Work(Storage(tmp_path, QuickDisk()), IDENTITY, ("queue_offset",), FakeLog({0: 1_000}))
    pieces = [Piece(0, at, at + 1) for at in range(2 * JOBS_MAX)]
    with pytest.raises(KeyboardInterrupt):
        LocalEngine().run(work, pieces)
    assert asked == [JOBS_MAX]
