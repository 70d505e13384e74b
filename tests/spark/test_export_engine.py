"""Spark as the engine of an export: the same version as the local engine's, read back by Spark."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dledger_client.errors import Unavailable
from dledger_client.export import ExportError, read_export
from dledger_client.export.engines.spark import SparkEngine
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.layout import Layout, Piece
from dledger_client.export.planning import MIB, Options
from dledger_client.export.run import export_once
from dledger_client.export.task import Work
from dledger_client.spark import read_export as read_export_spark
from dledger_client.spark import session
from tests.programs.killed_exporters import SPARK, check, kill_some
from tests.unit.export.fakes import IDENTITY, FakeLog, HereEngine, QuickDisk

OPTIONS = Options("orders", file_bytes=MIB)
KILLS = 2


def now() -> int:
    return 5


def never() -> SparkSession:
    raise AssertionError("a run with nothing to do starts no JVM")


def test_tasks_make_the_files_and_spark_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    """Equal manifests by both engines; sums by Spark SQL; no session for an empty run.

    Records are compacted, all of some files.
    """
    log = FakeLog({0: 95, 1: 31}, gone={0: frozenset({3, *range(40, 70)})})
    left = 126 - 31
    storage = ExportStorage(tmp_path / "a")
    seen: list[tuple[int, int, int]] = []
    engine = SparkEngine(lambda: spark, lambda *done: seen.append(done))
    outcome = export_once(storage, log, engine, OPTIONS, now)
    assert outcome.manifest is not None
    assert seen[-1][:2] == (len(outcome.manifest.added), left)
    assert sum(not each.rows for each in outcome.manifest.added) == 3
    assert seen[-1][2] > 0
    other = ExportStorage(tmp_path / "b", QuickDisk())
    assert outcome.manifest == export_once(other, log, HereEngine(), OPTIONS, now).manifest
    frame = read_export_spark(spark, str(tmp_path / "a"))
    found = frame.selectExpr("count(*)", "sum(queue_offset)", "sum(octet_length(body))").first()
    assert found is not None
    rows = read_export(tmp_path / "a").read().to_pylist()
    assert tuple(found) == (
        left,
        sum(row["queue_offset"] for row in rows),
        sum(len(row["body"]) for row in rows),
    )
    assert export_once(storage, log, SparkEngine(never), OPTIONS, now).manifest is None


def test_older_versions_are_read_whatever_the_folder_is_called(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A path is no pattern: beside `lake[1]` lies `lake1`, which it would match."""
    for name, end in (("lake1", 9), ("lake[1] {a,b}*", 40)):
        log, storage = FakeLog({0: end // 2}), ExportStorage(tmp_path / name)
        export_once(storage, log, HereEngine(), OPTIONS, now)
        log.ends = {0: end}
        export_once(storage, log, HereEngine(), OPTIONS, now)
    found = tmp_path / "lake[1] {a,b}*"
    assert [read_export_spark(spark, found, version).count() for version in (0, 1, None)] == [
        20, 40, 40,
    ]  # fmt: skip
    with pytest.raises(ExportError, match="VERSION_UNKNOWN"):
        read_export_spark(spark, found, 2)


def test_a_refusal_in_a_task_is_the_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Its code survives Spark; so does that nobody answers, which is waited for."""
    lost = FakeLog({0: 40}, trimmed_after_freeze={0: 3})
    with pytest.raises(ExportError, match="DATA_LOSS"):
        export_once(ExportStorage(tmp_path / "a"), lost, SparkEngine(lambda: spark), OPTIONS, now)
    away = FakeLog({0: 40}, is_away=True)
    with pytest.raises(Unavailable, match="nobody leads"):
        export_once(ExportStorage(tmp_path / "b"), away, SparkEngine(lambda: spark), OPTIONS, now)


@dataclass(frozen=True, slots=True)
class Deadly:
    """Rows that nobody survives the reading of."""

    def read(self, _piece: Piece, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """End the process."""
        os._exit(9)


def test_a_task_that_dies_is_our_error(spark: SparkSession, tmp_path: Path) -> None:
    """Not Java's: with a stable code and what to do."""
    work = Work(ExportStorage(tmp_path / "a"), IDENTITY, ("queue_offset",), Deadly())
    with pytest.raises(ExportError, match=r"WORKER_DIED.*gave up a task.*run the export again"):
        SparkEngine(lambda: spark).run(work, [Piece(0, 0, 3)])


def test_killed_exporters_leave_every_record_once(tmp_path: Path) -> None:
    """Drivers, their JVMs, processes of tasks; `make export-kills` does it 50 times."""
    end = kill_some(tmp_path / "lake", KILLS, seed=2, engine=SPARK)
    rows, versions = check(tmp_path / "lake", end)
    assert rows == end + end // 2 + end // 5
    assert versions >= 1


def test_types_are_not_guessed_from_names_of_folders(spark: SparkSession, tmp_path: Path) -> None:
    """A topic that looks like a number is its name still; a version without a file has columns."""
    options = replace(OPTIONS, topic="007", layout=Layout.QUEUE)
    export_once(ExportStorage(tmp_path / "a"), FakeLog({0: 5}), HereEngine(), options, now)
    found = read_export_spark(spark, str(tmp_path / "a"))
    assert dict(found.dtypes) == {
        "topic": "string", "queue_id": "int", "queue_offset": "bigint",
        "store_timestamp": "timestamp", "born_timestamp": "timestamp", "key": "string",
        "tag": "string", "body": "binary", "properties": "map<string,string>", "queue": "int",
    }  # fmt: skip
    assert {row.topic for row in found.select("topic").collect()} == {"007"}
    lost = FakeLog({0: 5}, trimmed_after_freeze={0: 5})
    accepting = replace(OPTIONS, accept_data_loss=True)
    export_once(ExportStorage(tmp_path / "b"), lost, HereEngine(), accepting, now)
    none = read_export_spark(spark, str(tmp_path / "b"))
    assert (none.count(), dict(none.dtypes)["dt"]) == (0, "date")


def test_a_session_that_runs_already_keeps_its_settings(spark: SparkSession) -> None:
    """A time zone that somebody chose is his; what is asked for by name is set."""
    zone = "spark.sql.session.timeZone"
    assert spark.conf.get(zone) == "UTC"
    try:
        spark.conf.set(zone, "Europe/Berlin")
        assert session("other").conf.get(zone) == "Europe/Berlin"
        assert session("other", conf={zone: "Asia/Tokyo"}).conf.get(zone) == "Asia/Tokyo"
    finally:
        spark.conf.set(zone, "UTC")
