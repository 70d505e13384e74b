"""Spark: our source, online and off, beside tuples and Parquet; exports beside the DataFrame path.

One session with one slot, so that a job's time is a task's: a task costs Spark 35-50 ms whatever it
does.
"""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared
from bench.setup.cluster import running
from bench.setup.native import Window, pour, register, rich_records
from dledger_broker.local.cluster import LocalCluster
from dledger_client.export.cluster_source import ClusterSource
from dledger_client.export.engines.spark import SparkEngine
from dledger_client.export.files.parquet import ZSTD_LEVEL
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.layout import Piece
from dledger_client.export.planning import FILE_BYTES_MAX, Options
from dledger_client.export.run import export_once
from dledger_client.export.source import Compacted
from dledger_client.export.task import Made, Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "orders"
PER_BATCH: Final = 250
STOPPED: Final = "stopped"
DIFFERENT: Final = 50_000
"""So many different records are sent in turn."""
BODY_SIZE: Final = 100
RECORDS_PER_SECOND: Final = 300_000
"""So many are stored for each second that a measurement is to take."""
COLUMNS: Final = (
    "topic", "queue_id", "queue_offset", "store_timestamp", "born_timestamp", "key", "tag", "body",
    "properties", "tag_hash",
)  # fmt: skip
ROOT: Final = Path(__file__).parents[2]


async def measure(effort: Effort) -> list[Figure]:
    """Measure in turn: reads, online and off, by tuples, of Parquet; exports three ways."""
    rounds = Rounds()
    async with running(effort.folder) as here:
        topic = await here.create_topic(TOPIC)
        wanted = int(RECORDS_PER_SECOND * effort.seconds)
        records = [each._replace(body=os.urandom(BODY_SIZE)) for each in rich_records(DIFFERENT)]
        batches = await register(here, await here.leader(), topic, 0, records, PER_BATCH)
        poured = await pour(here, batches, Window(32), lambda _: batches.sequence < wanted)
        await here.caught_up()
        follower = await here.follower()
        await asyncio.to_thread(_copy_stopped, here.cluster, follower, effort.folder / STOPPED)
        await here.caught_up()
        await asyncio.to_thread(_in_spark, here.cluster.name_server, poured.records, effort, rounds)
    tuples, tables, frames, bare = (
        "tuples", "spark.read.parquet", "DataFrame path", "bare read and write",
    )  # fmt: skip
    return [
        compared("spark_arrow", rounds["arrow"], "records/s", tuples, rounds["tuples"], ">=", 4.0,
                 note=f"{len(COLUMNS)} columns, two times and a map among them"),
        compared("spark_offline", rounds["offline"], "records/s", tables, rounds["parquet"],
                 ">=", 0.5, note="the same rows, as Spark wrote them"),
        compared("spark_online", rounds["arrow"], "records/s", "offline", rounds["offline"],
                 ">=", 0.6, note="from a follower, beside a copy of its folder"),
        compared("spark_export", rounds["export"], "records/s", frames, rounds["frame"], ">=", 2.5,
                 note="the same columns and codec, one task"),
        compared("spark_export_floor", rounds["export"], "records/s", bare, rounds["bare"],
                 ">=", 0.75, note="without Spark, plan, checksums and syncs"),
    ]  # fmt: skip


def _copy_stopped(cluster: LocalCluster, member: str, folder: Path) -> None:
    """Stop a member in order, copy its data, and start it again."""
    cluster.stop(member)
    shutil.copytree(cluster.folder / member / "data", folder)
    cluster.start(member)


def _in_spark(name_server: str, stored: int, effort: Effort, rounds: Rounds) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.getenv("PYTHONPATH"))))
    from bench.bulk.spark_sources import TupleSource
    from dledger_client.spark import session

    spark = session(
        "dledger-bench",
        master="local[1]",
        conf={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.log.level": "ERROR",
        },
    )
    try:
        spark.dataSource.register(TupleSource)
        bench = _Jobs(spark, name_server, stored, effort.folder)
        bench.write_frame(effort.folder / "same")
        for number in range(-1, effort.runs):
            for name, job in bench.in_turn(number):
                start = time.perf_counter()
                job()
                if number >= 0:  # the first round compiles, and starts workers
                    rounds.add(name, stored / (time.perf_counter() - start))
    finally:
        spark.stop()


class _Jobs:
    """The jobs that are timed. Each reads all records of the topic."""

    def __init__(self, spark: "SparkSession", name_server: str, stored: int, folder: Path) -> None:
        self._spark = spark
        self._name_server = name_server
        self._stored = stored
        self._folder = folder

    def in_turn(self, number: int) -> list[tuple[str, Callable[[], None]]]:
        new = Path(tempfile.mkdtemp(prefix=f"round-{number}-", dir=self._folder))
        return [
            ("arrow", lambda: self._drain(self._frame("dledger"))),
            ("offline", lambda: self._drain(self._frame("dledger", path=self._folder / STOPPED))),
            ("tuples", lambda: self._drain(self._frame("dledger_tuples"))),
            ("parquet", lambda: self._drain(self._spark.read.parquet(str(self._folder / "same")))),
            ("export", lambda: self._export(new / "export", SparkEngine(lambda: self._spark))),
            ("frame", lambda: self.write_frame(new / "frame")),
            ("bare", lambda: self._export(new / "bare", _Bare(new))),
        ]

    def _frame(self, form: str, path: Path | None = None) -> "DataFrame":
        where = {"endpoints": self._name_server} if path is None else {"path": str(path)}
        options = {"topic": TOPIC, "columns": ",".join(COLUMNS), "maxBytesPerPartition": "4g"}
        return self._spark.read.format(form).options(**where, **options).load()

    @staticmethod
    def _drain(frame: "DataFrame") -> None:
        frame.write.format("noop").mode("overwrite").save()

    def write_frame(self, folder: Path) -> None:
        """Write all as Spark does; check that it is all."""
        self._frame("dledger").write.option("compression", "zstd").parquet(str(folder))
        rows = sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))
        assert rows == self._stored, f"{rows} of {self._stored} rows"

    def _export(self, folder: Path, engine: "SparkEngine | _Bare") -> None:
        options = Options(TOPIC, file_bytes=FILE_BYTES_MAX)
        rows = 0
        with ClusterSource(self._name_server, folder) as source:
            try:
                outcome = export_once(
                    ExportStorage(folder),
                    source,
                    engine,
                    options,
                    lambda: time.time_ns() // 1_000_000,
                )
            except _Written as written:
                (rows,) = written.args
            else:
                rows = sum(each.rows for each in outcome.manifest.added) if outcome.manifest else 0
        assert rows == self._stored, f"{rows} of {self._stored} rows"


class _Written(Exception):
    """Ends an export after the bare writer wrote so many rows: nothing is published."""


class _Bare:
    """Reads the pieces and writes them, with the same codec, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, work: Work, pieces: Sequence[Piece]) -> list[Made]:
        """Write a file for each piece; raises _Written."""
        rows = 0
        for number, piece in enumerate(pieces):
            found = work.rows.read(piece, work.columns)
            table = pa.Table.from_batches(
                [each for each in found if not isinstance(each, Compacted)]
            )
            rows += table.num_rows
            with pq.ParquetWriter(
                self._folder / f"{number}.parquet", table.schema,
                compression="zstd", compression_level=ZSTD_LEVEL,
            ) as writer:  # fmt: skip
                writer.write_table(table)
        raise _Written(rows)
