"""W12: exports of a topic, by the client's own protocol and local engine, beside trims.

Two exporters publish versions of one export into one folder. Each exporter works in sessions: while
a session lasts it holds the log from the end of its last version on, also between two runs.
"""

import asyncio
import itertools
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final

import pyarrow as pa

from dledger_client import ConnectionConfig
from dledger_client.export import read_export
from dledger_client.export.cluster_source import ClusterSource
from dledger_client.export.engines.local import LocalEngine
from dledger_client.export.files.parquet import read_entry
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.manifests.records import Gap
from dledger_client.export.planning import Options
from dledger_client.export.run import Outcome, export_once
from dledger_proto.batch.codec import Record
from jepsen_tests.backends.surface import Setting
from jepsen_tests.run.patience import Patience, Revive
from jepsen_tests.run.recorder import Process
from jepsen_tests.workloads.clients import (
    CALL_TIMEOUT_MS,
    place_of,
)
from jepsen_tests.workloads.stored.doing import trim_at_random
from jepsen_tests.workloads.values import value_of
from jepsen_tests.workloads.workload import LeastOk, Stage, Workload

TOPIC: Final = "chaos-exports"
QUEUES: Final = 3
PLACES: Final = tuple(place_of(TOPIC, queue) for queue in range(QUEUES))
EXPORTERS: Final = 2
TRIMMERS: Final = 2
VERSIONS_MEAN: Final = 5
"""So many runs on average a session takes."""
EXPORT_PAUSE_SECONDS: Final = 0.5
TRIM_KEEPS: Final = 5
BATCH_MAX: Final = 5
FOLDER: Final = "export"


class Exporter:
    """One exporter, in one session after the other. Its methods are called in threads."""

    def __init__(self, bootstrap: str, root: Path, connection: ConnectionConfig) -> None:
        self._bootstrap = bootstrap
        self._connection = connection
        self._root = root
        self._source: ClusterSource | None = None
        self._failed: BaseException | None = None
        """Why the last run of the session failed."""

    def run(self) -> dict[str, Any]:
        """Publish a version; return it, or the newest one when there is nothing new."""
        if self._source is None:
            self._source = ClusterSource(self._bootstrap, self._root, self._connection).__enter__()
        options = Options(TOPIC, accept_data_loss=True)
        try:
            outcome = export_once(
                ExportStorage(self._root), self._source, LocalEngine(jobs=1), options, _now_ms
            )
        except BaseException as error:
            self._failed = error
            raise
        self._failed = None
        return shown_version(self._root, outcome)

    def end_session(self) -> None:
        """End as the command does: the holds stay if the last run failed and left a plan open."""
        source, failed, self._source, self._failed = self._source, self._failed, None, None
        if source is not None:
            source.__exit__(None if failed is None else type(failed))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def shown_version(root: Path, outcome: Outcome) -> dict[str, Any]:
    """Return what a run published, or the newest version, with its rows as the files have them."""
    manifest = outcome.manifest or read_export(root).manifest
    planned = () if outcome.plan is None else outcome.plan.gaps
    lost = () if outcome.plan is None else set(manifest.gaps) - set(planned)
    return {
        "version": manifest.number,
        "adopted": outcome.adopted,
        "start": {place_of(TOPIC, queue): at for queue, at in manifest.start.items()},
        "end": {place_of(TOPIC, queue): at for queue, at in manifest.end.items()},
        "gaps": [_shown_gap(gap) for gap in manifest.gaps],
        "lost": sorted(map(_shown_gap, lost)),
        "rows": [
            run
            for entry in manifest.added
            for run in _runs(read_entry(root / entry.path, entry, manifest.columns))
        ],
    }


def _shown_gap(gap: Gap) -> list[Any]:
    return [place_of(TOPIC, gap.queue), gap.start, gap.end]


def _runs(batches: Iterable[pa.RecordBatch]) -> list[list[Any]]:
    """Return rows of a file as runs, in their order: place, offset of the first, values."""
    runs: list[list[Any]] = []
    for row in (row for batch in batches for row in batch.to_pylist()):
        record = Record(
            row["body"], row["tag"] or "", tuple((row["key"] or "").split()),
            dict(row["properties"] or ()),
        )  # fmt: skip
        place, offset, value = (
            place_of(TOPIC, row["queue_id"]),
            row["queue_offset"],
            value_of(record),
        )
        if runs and runs[-1][0] == place and runs[-1][1] + len(runs[-1][2]) == offset:
            runs[-1][2].append(value)
        else:
            runs.append([place, offset, [value]])
    return runs


class ExportsWorkload(Workload):
    """Versions of an export are complete, follow one another, and lose nothing that was held."""

    name = "exports"
    trims = True
    what = "W12: two exporters publish versions of one export while others send and trim"
    topics: ClassVar[Mapping[str, int]] = {TOPIC: QUEUES}
    settings: ClassVar[Mapping[str, Setting]] = {"storage.segment_size_bytes": 32 << 20}
    least_ok: ClassVar[LeastOk] = {"send": (100, 0.3), "export": (5, 0.2), "trim": (3, 0.05)}

    def __init__(self) -> None:
        self._sessions = itertools.count()

    def workers(self, stage: Stage) -> Sequence[Coroutine[Any, Any, None]]:
        randoms = (Random(stage.random.random()) for _ in itertools.count())
        senders = max(1, stage.concurrency - EXPORTERS - TRIMMERS)
        return [
            *(self._send(stage, next(randoms)) for _ in range(senders)),
            *(self._export(stage, next(randoms)) for _ in range(EXPORTERS)),
            *(trim_at_random(stage, next(randoms), PLACES, TRIM_KEEPS) for _ in range(TRIMMERS)),
        ]

    async def setup(self, stage: Stage) -> None:
        """Send something, so that the first run of an export has something to publish."""
        async with aclosing(stage.worker(stage.random)) as worker:
            for place in PLACES:
                await worker.send(place, BATCH_MAX, 100)

    async def _send(self, stage: Stage, random: Random) -> None:
        async with aclosing(stage.worker(random)) as worker:
            while not stage.over.is_set():
                await worker.send(random.choice(PLACES), random.randint(1, BATCH_MAX), 100)
                await stage.pause(random)

    async def _export(self, stage: Stage, random: Random) -> None:
        process, exporter = Process(stage.recorder), self._exporter(stage)
        session = next(self._sessions)
        while not stage.over.is_set():
            await self._run(process, exporter, session)
            await stage.pause(random, EXPORT_PAUSE_SECONDS)
            if random.random() < 1 / VERSIONS_MEAN:
                await asyncio.to_thread(exporter.end_session)
                session = next(self._sessions)
        await asyncio.to_thread(exporter.end_session)

    def _exporter(self, stage: Stage) -> Exporter:
        root = stage.folder / FOLDER
        root.mkdir(exist_ok=True)
        patient = replace(stage.connection, call_timeout_ms=2 * CALL_TIMEOUT_MS)
        return Exporter(stage.backend.bootstrap, root, patient)

    async def _run(self, process: Process, exporter: Exporter, session: int) -> bool:
        done, _ = await process.do(
            "export", TOPIC, session, partial(asyncio.to_thread, exporter.run),
            lambda shown: shown, reads=True,
        )  # fmt: skip
        return done

    async def finish(self, stage: Stage, revive: Revive) -> None:
        """Finish what is open, and publish the rest."""
        process, exporter = Process(stage.recorder), self._exporter(stage)
        for _ in range(2):  # the first run may finish the plan of another
            await Patience(revive).until(
                partial(self._run, process, exporter, next(self._sessions))
            )
        await asyncio.to_thread(exporter.end_session)
