"""Exports of a topic that is compacted: a file has fewer rows than its range has offsets."""

from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_client.export import ExportCode, ExportError, read_export, upkeep
from dledger_client.export.engines.local import LocalEngine
from dledger_client.export.files import parquet
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.layout import Piece, name_of
from dledger_client.export.manifests import history
from dledger_client.export.manifests.checkpoint import checkpoint_name
from dledger_client.export.planning import COLUMNS, MIB, Options
from dledger_client.export.run import export_once
from tests.unit.export.fakes import IDENTITY, FakeLog, HereEngine, QuickDisk, body_of

OPTIONS = Options("orders", file_bytes=MIB)
NOW_MS = 1_700_000_000_000
ALL = 60
WITH_AN_EMPTY_FILE = frozenset({1, 2, 5, *range(9, 21), 59})
"""Of 60 records: a file has ten of them, and none of the second is left."""


def now() -> int:
    return NOW_MS


def storage_in(folder: Path) -> ExportStorage:
    return ExportStorage(folder / "lake", QuickDisk())


def run(storage: ExportStorage, log: FakeLog) -> None:
    export_once(storage, log, HereEngine(), OPTIONS, now)


def offsets(storage: ExportStorage) -> list[int]:
    rows = read_export(storage.root).read().to_pylist()
    assert all(row["body"] == body_of(row["queue_id"], row["queue_offset"]) for row in rows)
    return [row["queue_offset"] for row in rows]


def left(gone: frozenset[int], end: int = ALL) -> list[int]:
    return [at for at in range(end) if at not in gone]


def problems(storage: ExportStorage, log: FakeLog | None = None) -> list[ExportCode]:
    return [each.code for each in upkeep.verify(storage, log).problems]


def test_files_hold_what_is_left_and_say_how_much(tmp_path: Path) -> None:
    storage, log = storage_in(tmp_path), FakeLog({0: ALL}, gone={0: WITH_AN_EMPTY_FILE})
    run(storage, log)
    assert offsets(storage) == left(WITH_AN_EMPTY_FILE)
    files = read_export(storage.root).files
    assert [(each.start, each.end) for each in files] == [(at, at + 10) for at in range(0, ALL, 10)]
    assert [each.rows for each in files] == [6, 0, 9, 10, 10, 9]
    bounds = [(each.offset_min, each.offset_max) for each in files]
    assert bounds[:3] == [(0, 8), (10, 9), (21, 29)]
    assert (files[1].time_min_ms, files[1].time_max_ms) == (0, 0)
    found = upkeep.verify(storage, log)
    assert (found.problems, found.gaps) == ((), ())
    assert (found.files, found.compared, found.rows) == (6, 6, ALL - len(WITH_AN_EMPTY_FILE))


def test_others_read_a_file_without_rows(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    run(storage, FakeLog({0: ALL}, gone={0: WITH_AN_EMPTY_FILE}))
    paths = read_export(storage.root).paths
    assert pq.read_table(paths[1]).num_rows == 0
    found = duckdb.execute(
        "select queue_offset from read_parquet($1) order by 1", [paths]
    ).fetchall()
    assert [each[0] for each in found] == left(WITH_AN_EMPTY_FILE)


def test_merges_checkpoints_and_collections_go_on(tmp_path: Path) -> None:
    storage, log = storage_in(tmp_path), FakeLog({0: ALL}, gone={0: WITH_AN_EMPTY_FILE})
    run(storage, log)
    upkeep.compact(storage, LocalEngine(jobs=1), 100 * MIB, now)
    assert offsets(storage) == left(WITH_AN_EMPTY_FILE)
    files = read_export(storage.root).files
    assert [(each.start, each.end, each.rows) for each in files] == [(0, 40, 25), (40, 60, 19)]
    assert storage.read(checkpoint_name(1)) is not None
    assert history.load(storage).rows == ALL - len(WITH_AN_EMPTY_FILE)
    assert problems(storage, log) == []
    later = NOW_MS * 2
    assert len(upkeep.collect(storage, upkeep.GRACE_MS_MIN, later)) == 6
    run(storage, replace(log, ends={0: ALL + 5}))
    assert offsets(storage) == left(WITH_AN_EMPTY_FILE, ALL + 5)
    assert problems(storage, log) == []


def test_files_without_any_row_are_merged(tmp_path: Path) -> None:
    storage, log = storage_in(tmp_path), FakeLog({0: 30}, gone={0: frozenset(range(30))})
    run(storage, log)
    upkeep.compact(storage, LocalEngine(jobs=1), 100 * MIB, now)
    (entry,) = read_export(storage.root).files
    assert (entry.start, entry.end, entry.rows) == (0, 30, 0)
    assert problems(storage, log) == []


@given(
    st.frozensets(st.integers(0, ALL - 1)), st.frozensets(st.integers(0, ALL - 1)), st.booleans()
)
def test_any_offsets_may_be_gone_and_more_of_them_later(
    tmp_path_factory: pytest.TempPathFactory,
    gone: frozenset[int],
    later: frozenset[int],
    is_merged: bool,
) -> None:
    storage = storage_in(tmp_path_factory.mktemp("export"))
    run(storage, FakeLog({0: ALL}, gone={0: gone}))
    if is_merged:
        upkeep.compact(storage, HereEngine(), 100 * MIB, now)
    assert offsets(storage) == left(gone)
    assert problems(storage, FakeLog({0: ALL}, gone={0: gone | later})) == []


def test_a_log_with_other_rows_is_found_though_it_was_compacted(tmp_path: Path) -> None:
    storage, log = storage_in(tmp_path), FakeLog({0: 10}, gone={0: frozenset({3})})
    run(storage, log)
    other = replace(log, gone={0: frozenset({3, 4})}, records_per_day=41)
    assert problems(storage, other) == [ExportCode.WRONG_ROWS]
    assert problems(storage, FakeLog({0: 10})) == [ExportCode.NOT_COMPARED], "a member is behind"


def test_a_merged_file_has_all_rows_of_those_it_replaces(tmp_path: Path) -> None:
    """A whole file lies at its name, and lacks a row that they have."""
    storage, log = storage_in(tmp_path), FakeLog({0: 20})
    run(storage, log)
    first, second = read_export(storage.root).files
    piece = Piece(0, first.start, second.end, first.date)
    fewer = replace(log, gone={0: frozenset({3})})
    with storage.path(name_of("orders", piece)).open("wb") as file:
        parquet.write(file, IDENTITY, piece, COLUMNS, fewer.read(piece, COLUMNS))
    with pytest.raises(ExportError, match="has 19 rows, the files that it merges 20") as caught:
        upkeep.compact(storage, HereEngine(), 100 * MIB, now)
    assert caught.value.code is ExportCode.CONFLICT
    assert history.last_number(storage) == 0
