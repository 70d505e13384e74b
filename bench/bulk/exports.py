"""Exports without a JVM: planning many queues, an empty run, memory of a task, producers meanwhile.

The commands are those that users run, as processes of their own.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared, percentile, stated
from bench.setup.cluster import NotReady, Running, running
from bench.setup.native import Window, plain_records, pour_bytes, pour_for
from dledger_client import AsyncProducer
from dledger_client.reading import Edge, HoldRequest, Planner
from dledger_proto.exit_codes import Exit

QUEUES: Final = 1_000
PER_BATCH: Final = 64
PACE: Final = 0.3
"""The share of the producers' peak rate at which they send."""
EXPORT_RATE: Final = "20m"
COMPUTING: Final = "import os; os.nice(19)\nwhile True: pass"
LARGE: Final = 4_000_000
"""Bytes of a body, near the limit."""
EXPORT_MEMORY: Final = """
import resource, sys
from dledger_client.export.cluster_source import ClusterSource
from dledger_client.export.errors import ExportError
from dledger_client.export.run import export_once
from dledger_client.export.planning import FILE_BYTES_MAX, Options
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.task import make_one
from pathlib import Path
class Here:
    def run(self, work, pieces):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        made = [make_one(work, piece, lambda rows, size: None) for piece in pieces]
        print(len(pieces), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
        return made
with ClusterSource(sys.argv[1], Path(sys.argv[2])) as source:
    options = Options(sys.argv[3], file_bytes=FILE_BYTES_MAX)
    storage = ExportStorage(Path(sys.argv[2]))
    export_once(storage, source, Here(), options, lambda: 1_700_000_000_000)
"""
"""One task in a process of its own: pieces made, and MiB at its peak above what it began with."""
READ_MEMORY: Final = """
import resource, sys
from dledger_client.spark.batch import LogReader, read_partition
from dledger_client.spark.options import parse
options = {"endpoints": sys.argv[1], "topic": sys.argv[3], "maxbytesperpartition": "64g"}
partitions = LogReader(parse(options)).partitions()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for partition in partitions:
    for batch in read_partition(partition, ("queue_offset", "key", "body", "properties")):
        del batch
print(len(partitions), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
"""The same for one task of Spark's source, without Spark."""


async def measure(effort: Effort) -> list[Figure]:
    """Measure one after the other, on one cluster."""
    rounds = Rounds()
    async with running(effort.folder) as here:
        await here.create_topic("wide", QUEUES)
        topic = await here.create_topic("exported")
        async with AsyncProducer(here.cluster.name_server) as producer:
            for queue in range(QUEUES):
                producer.submit("wide", b"x", queue=queue)
            await producer.flush()
        await pour_bytes(here, topic, int(effort.seconds * (100 << 20)))
        folder = Path(tempfile.mkdtemp(prefix="export-", dir=effort.folder))
        first = await _export(here, "exported", folder)
        if first != 0:
            raise NotReady(f"the first export ended with {first}")
        for _ in range(effort.runs):
            rounds.add("plan", await asyncio.to_thread(_plan_seconds, here))
            start = time.perf_counter()
            code = await _export(here, "exported", folder)
            rounds.add("empty", time.perf_counter() - start)
            if code != Exit.NOTHING_NEW:
                raise NotReady(f"an export of nothing ended with {code}")
        await here.create_topic("large")
        async with AsyncProducer(here.cluster.name_server) as producer:
            for _ in range(int(effort.seconds * (100 << 20)) // LARGE):
                await producer.send("large", os.urandom(LARGE), queue=0)
        for name, program in (("export", EXPORT_MEMORY), ("read", READ_MEMORY)):
            for stored in ("exported", "large"):
                taken = await _task_memory(here, effort.folder, program, stored)
                rounds.add(f"memory {name}", taken)
        await _paced(here, topic, effort, rounds)
    return [
        stated("plan_1000_queues", rounds["plan"], "s", "<=", 0.3,
               note="bounds behind a quorum's word, 64 samples at most of each queue, and holds"),
        stated("export_nothing_new", rounds["empty"], "s", "<=", 1.0,
               note="the command, from its start to its exit code"),
        *(
            stated(f"{name}_task_memory", [max(rounds[f"memory {name}"])], "MiB", "<=", 512,
                   note="above what the process began with, the larger of all there is in one "
                   f"task, bodies of 1 KiB, and of {LARGE:,} bytes")
            for name in ("export", "read")
        ),
        compared("produced_while_exporting", rounds["rate"], "records/s", "idle",
                 rounds["idle rate"], ">=", 0.95,
                 note=f"paced at {PACE:g} of the peak, the export at {EXPORT_RATE}B/s"),
        compared("p99_while_exporting", rounds["p99"], "ms", "idle", rounds["idle p99"], "<=", 2.0,
                 note=f"of batches of {PER_BATCH}"),
        compared("p99_while_an_export_starts", rounds["starting p99"], "ms", "idle",
                 rounds["idle p99"], "<=", 2.0,
                 note=f"its first {effort.seconds:g} s, from the first import on"),
        compared("p99_beside_a_loop", rounds["computing p99"], "ms", "idle", rounds["idle p99"],
                 note="what any process does that computes at the least priority"),
    ]  # fmt: skip


async def _export(here: Running, topic: str, folder: Path) -> int:
    async with _process(*_export_command(here, topic, folder)) as process:
        await process.communicate()
        return process.returncode or 0


def _export_command(here: Running, topic: str, folder: Path, *more: str) -> list[str]:
    return [
        str(Path(sys.executable).with_name("dledger")), "export", "--topic", topic,
        "--to", str(folder), "--name-servers", here.cluster.name_server, *more,
    ]  # fmt: skip


@asynccontextmanager
async def _process(*command: str) -> AsyncGenerator[Process]:
    """Start a process; kill it in the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _plan_seconds(here: Running) -> float:
    """Return what a plan over many queues takes, the connection open already."""
    with Planner(here.cluster.name_server) as planner:
        planner.states(["wide"])
        start = time.perf_counter()
        edges = Edge(), Edge()
        plan = planner.freeze(["wide"], *edges, hold=HoldRequest("bench", 60_000))
        taken = time.perf_counter() - start
        planner.release(plan)
    assert len(plan.queues) == QUEUES, f"{len(plan.queues)} queues"
    return taken


async def _task_memory(here: Running, folder: Path, code: str, topic: str) -> float:
    """Return the MiB that one task takes."""
    work = tempfile.mkdtemp(prefix="memory-", dir=folder)
    command = (sys.executable, "-c", code, here.cluster.name_server, work, topic)
    async with _process(*command) as process:
        printed, _ = await process.communicate()
    pieces, taken = printed.decode().split()
    assert pieces == "1", f"{pieces} pieces"
    return float(taken)


async def _paced(here: Running, topic: bytes, effort: Effort, rounds: Rounds) -> None:
    """Produce at a pace, in turn alone and while an export starts, and reads from followers."""
    records = plain_records(PER_BATCH)
    peak = await pour_for(here, topic, records, Window(64), effort.seconds)
    window = Window(64, batches_per_second=PACE * peak.rate / PER_BATCH)

    async def measure(prefix: str) -> None:
        poured = await pour_for(here, topic, records, window, effort.seconds)
        rounds.add(f"{prefix}rate", poured.rate)
        rounds.add(f"{prefix}p99", percentile(poured.batch_seconds, 0.99) * 1000)

    for number in range(effort.runs):
        await measure("idle ")
        async with _process(sys.executable, "-c", COMPUTING):
            await measure("computing ")
        folder = effort.folder / f"while-{number}-{os.getpid()}"
        command = _export_command(here, "exported", folder, "--max-rate", EXPORT_RATE, "--json")
        async with _process(*command) as export:
            await measure("starting ")
            await _first_rows(export)
            await measure("")
            if export.returncode is not None:
                raise NotReady("the export ended while it was measured: too little to export")


async def _first_rows(export: Process) -> None:
    """Return when an export that prints JSON has begun to read."""
    assert export.stdout is not None
    while line := await export.stdout.readline():
        if json.loads(line)["rows"]:
            return
    raise NotReady("the export ended before it was measured: too little to export")
