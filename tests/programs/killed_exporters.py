"""Exporters that are killed: processes of their own with their workers, on a log in memory.

`python -m tests.programs.killed_exporters FOLDER END` runs one export. With `--kills N --seed S`
the program kills N times: each time it starts one or two exporters and kills them at a random
moment. Then it finishes the export and checks it. With `--engine spark` an exporter is a driver,
its JVM and its tasks' Python.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from dledger_client.export import read_export
from dledger_client.export.engines.local import LocalEngine
from dledger_client.export.files import parquet
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.layout import Piece
from dledger_client.export.manifests import history
from dledger_client.export.planning import MIB, Options
from dledger_client.export.run import Engine, export_once
from dledger_client.export.source import Compacted
from tests.unit.export.fakes import FakeLog, body_of
from tests.waiting import wait_until

LOCAL, SPARK = "local", "spark"
OPTIONS = Options("orders", file_bytes=MIB)
ROW_GROUP_BYTES = 1
"""One for each batch."""
END_SECONDS = 60.0
LIFE_SECONDS_MAX = {LOCAL: 1.5, SPARK: 2.5}
"""Behind the imports, or Spark's start: about what a run takes, with a pool longer."""


class FewRows(FakeLog):
    """Has files of several row groups, so that one is written while the next is read."""

    def read(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch | Compacted]:
        """Yield a range, in whatever process."""
        vars(parquet)["ROW_GROUP_BYTES"] = ROW_GROUP_BYTES
        return super().read(piece, columns)


def log_up_to(end: int) -> FakeLog:
    """Return the log as of one moment; the same for every process."""
    return FewRows({0: end, 1: end // 2, 2: end // 5})


def export(root: Path, end: int, engine: Engine) -> bool:
    """Run once; False when there was nothing new."""
    outcome = export_once(
        ExportStorage(root), log_up_to(end), engine, OPTIONS, lambda: int(time.time() * 1_000)
    )
    return outcome.manifest is not None


def spark_engine() -> Engine:
    """Return the engine of a session that has begun, and has run a task in Python."""
    from dledger_client.export.engines.spark import SparkEngine
    from dledger_client.spark import session

    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = session("killed", master="local[2,3]", conf=quiet)
    spark.sparkContext.parallelize([1, 2], 2).map(abs).collect()
    return SparkEngine(lambda: spark)


def start(root: Path, end: int, jobs: int, engine: str) -> subprocess.Popen[bytes]:
    """Start an exporter as the head of a session, so that all it starts can be killed, too."""
    command = [sys.executable, "-m", "tests.programs.killed_exporters", str(root), str(end)]
    return subprocess.Popen(
        [*command, "--jobs", str(jobs), "--engine", engine], start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def kill_some(root: Path, kills: int, seed: int, engine: str = LOCAL) -> int:
    """Kill exporters at random moments; return the end of the log at last.

    Nobody of theirs may go on: whoever was not killed himself ends with his driver. But who loses
    a task's process of Spark's has it tried again.
    """
    chance = random.Random(seed)
    end = 40
    for _ in range(kills):
        end += chance.randrange(0, 30)
        jobs = chance.choice((1, 1, 2))
        running = [start(root, end, jobs, engine) for _ in range(chance.choice((1, 1, 2)))]
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline(), "an exporter did not start"
            process.stdout.close()
        until = time.monotonic() + chance.uniform(0.0, LIFE_SECONDS_MAX[engine])
        for process in running:
            try:
                process.wait(max(until - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                _kill(process, chance, engine)
        for process in running:
            wait_until(partial(is_over, process.pid), "workers end with their driver", END_SECONDS)
    return end


def _kill(process: subprocess.Popen[bytes], chance: random.Random, engine: str) -> None:
    """Kill all at once, or one: the driver, with whom all end, or (of Spark) any other."""
    others = [pid for pid in members_of(process.pid) if pid != process.pid]
    if chance.random() < 0.5:
        victims = [process.pid, *others]
    elif engine == SPARK and others and chance.random() < 0.6:
        victims = [chance.choice(others)]
    else:
        victims = [process.pid]
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(END_SECONDS)


def members_of(session: int) -> list[int]:
    """Return who runs in a session, in order, not counting the dead that nobody fetched."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            told = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended meanwhile
        if int(told[3]) == session and told[0] not in "ZX":
            found.append(int(path.parent.name))
    return sorted(found)


def is_over(session: int) -> bool:
    """Return whether nobody of a session runs."""
    return not members_of(session)


def check(root: Path, end: int) -> tuple[int, int]:
    """Finish, and compare with the log; return rows and versions."""
    while export(root, end, LocalEngine(1)):
        pass
    rows = read_export(root).read().to_pylist()
    found = sorted((row["queue_id"], row["queue_offset"]) for row in rows)
    ends = log_up_to(end).ends
    assert found == [(queue, at) for queue, stop in ends.items() for at in range(stop)]
    assert all(row["body"] == body_of(row["queue_id"], row["queue_offset"]) for row in rows)
    return len(found), history.last_number(ExportStorage(root)) + 1


def main() -> None:
    """Run as a process to be killed, or kill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("end", nargs="?", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=(LOCAL, SPARK), default=LOCAL)
    arguments = parser.parse_args()
    if not arguments.kills:
        engine = spark_engine() if arguments.engine == SPARK else LocalEngine(arguments.jobs)
        print("begins", flush=True)
        export(arguments.folder, arguments.end, engine)
        return
    with tempfile.TemporaryDirectory() as made:
        root = Path(made) / "lake"
        end = kill_some(root, arguments.kills, arguments.seed, arguments.engine)
        rows, versions = check(root, end)
        told = f"{arguments.kills} kills of {arguments.engine}, seed {arguments.seed}"
        print(f"{told}: {rows} rows, each once, in {versions} versions")


if __name__ == "__main__":
    main()
