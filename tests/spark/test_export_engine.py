"""Spark as the engine of an export: the same version as the local engine's, read back by Spark."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dledger_client.export import ExportError, read_export
from dledger_client.export.engine_spark import SparkEngine
from dledger_client.export.engine_spark import read_export as read_export_spark
from dledger_client.export.planning import MIB, Options
from dledger_client.export.run import export_once
from dledger_client.export.storage import Storage
from tests.unit.export.fakes import FakeLog, HereEngine, QuickDisk

OPTIONS = Options("orders", file_bytes=MIB)


def now() -> int:
    return 5


def never() -> SparkSession:
    raise AssertionError("a run with nothing to do starts no JVM")


def test_tasks_make_the_files_and_spark_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    """Equal manifests by both engines; sums by Spark SQL; no session for an empty run."""
    log = FakeLog({0: 95, 1: 31})
    storage = Storage(tmp_path / "a")
    outcome = export_once(storage, log, SparkEngine(lambda: spark), OPTIONS, now)
    other = Storage(tmp_path / "b", QuickDisk())
    assert outcome.manifest == export_once(other, log, HereEngine(), OPTIONS, now).manifest
    frame = read_export_spark(spark, str(tmp_path / "a"))
    found = frame.selectExpr("count(*)", "sum(queue_offset)", "sum(octet_length(body))").first()
    assert found is not None
    rows = read_export(tmp_path / "a").read().to_pylist()
    assert tuple(found) == (
        126,
        sum(row["queue_offset"] for row in rows),
        sum(len(row["body"]) for row in rows),
    )
    assert export_once(storage, log, SparkEngine(never), OPTIONS, now).manifest is None


def test_a_refusal_in_a_task_is_the_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Its code survives Spark."""
    lost = FakeLog({0: 40}, trimmed_after_freeze={0: 3})
    with pytest.raises(ExportError, match="DATA_LOSS"):
        export_once(Storage(tmp_path / "a"), lost, SparkEngine(lambda: spark), OPTIONS, now)
