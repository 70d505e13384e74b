"""The local engine: a plan's files made by a pool of processes. Owns: processes, rate, progress.

Processes are spawned, not forked: the caller may have threads and open connections. A worker ends
itself when its parent dies, so that no worker writes on for nobody.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from typing import Any, Final

from dledger_client.export.errors import ExportCode, ExportError
from dledger_client.export.layout import Piece
from dledger_client.export.task import Made, Work, make_one

LOOK_SECONDS: Final = 0.25
"""Seconds between two looks at what the workers have done."""
JOBS_MAX: Final = 64

Progress = Callable[[int, int, int], None]
"""Gets what is done so far: files, rows, bytes."""

_shared: Any = None
"""In a worker: rows and bytes of every task, each its own two slots."""


class LocalEngine:
    """Makes files in `jobs` processes; in this one when there is one job or one file."""

    def __init__(
        self,
        jobs: int = 0,
        max_rate: float = 0.0,
        progress: Progress = lambda _files, _rows, _bytes: None,
    ) -> None:
        """`jobs` 0: one for each processor, or one where a rate is to be kept.

        `max_rate`: bytes a second of all together; 0: any. Each more process costs a second of a
        processor for its imports, and one alone writes some 100 MB a second.
        """
        if not 0 <= jobs <= JOBS_MAX:
            raise ExportError(ExportCode.BAD_OPTION, f"--jobs: {jobs}", f"must be 0 to {JOBS_MAX}")
        if max_rate < 0:
            raise ExportError(ExportCode.BAD_OPTION, f"--max-rate: {max_rate}", "must be 0 or more")
        self._jobs = jobs or (1 if max_rate else min(os.cpu_count() or 1, JOBS_MAX))
        self._max_rate = max_rate
        self._progress = progress

    def run(self, work: Work, pieces: Sequence[Piece]) -> list[Made]:
        """Return what became of each piece. ExportError of the first that fails."""
        jobs = min(self._jobs, len(pieces))
        if jobs <= 1:
            return self._run_here(work, pieces)
        context = multiprocessing.get_context("spawn")
        counts = context.RawArray("q", 2 * len(pieces))
        before = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(jobs, context, _begin, (counts,))
        try:
            futures = [
                pool.submit(_make, work, piece, number, self._max_rate / jobs)
                for number, piece in enumerate(pieces)
            ]
            return self._wait(futures, counts)
        except BaseException as error:
            # Ends the workers now; their temporary files are collected later.
            for process in set(multiprocessing.active_children()) - before:
                process.terminate()
            if isinstance(error, BrokenProcessPool):
                raise ExportError(
                    ExportCode.WORKER_DIED,
                    "a process of the export was killed, or ran out of memory",
                    "run the export again: finished files are kept; fewer --jobs need less memory",
                ) from error
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _run_here(self, work: Work, pieces: Sequence[Piece]) -> list[Made]:
        rows = size = 0
        pace = Pace(self._max_rate)
        made: list[Made] = []

        def watch(more_rows: int, more_bytes: int) -> None:
            nonlocal rows, size
            rows, size = rows + more_rows, size + more_bytes
            self._progress(len(made), rows, size)
            pace.take(more_bytes)

        for piece in pieces:
            made.append(make_one(work, piece, watch))
            self._progress(len(made), rows, size)
        return made

    def _wait(self, futures: Sequence[Future[Made]], counts: Any) -> list[Made]:
        wake = threading.Event()
        for future in futures:
            future.add_done_callback(lambda _future: wake.set())
        while True:
            done = [future for future in futures if future.done()]
            for future in done:
                future.result()
            self._progress(len(done), sum(counts[0::2]), sum(counts[1::2]))
            if len(done) == len(futures):
                return [future.result() for future in futures]
            wake.wait(LOOK_SECONDS)
            wake.clear()


class Pace:
    """Keeps a rate: whoever is ahead of it waits."""

    def __init__(self, rate: float, now: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._now = now
        self._free_at = 0.0

    def due(self, size: int) -> float:
        """Return how long to wait for what was just taken, seconds."""
        if not self._rate:
            return 0.0
        now = self._now()
        self._free_at = max(self._free_at, now) + size / self._rate
        return self._free_at - now

    def take(self, size: int) -> None:
        """Wait as long as `due` says."""
        seconds = self.due(size)
        if seconds > 0:
            threading.Event().wait(seconds)


def _begin(counts: Any) -> None:
    """Set up a worker: only the parent reacts to Ctrl-C, and no worker outlives the parent."""
    global _shared  # noqa: PLW0603  a process of its own
    _shared = counts
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def _make(work: Work, piece: Piece, number: int, max_rate: float) -> Made:
    pace = Pace(max_rate)

    def watch(rows: int, size: int) -> None:
        _shared[2 * number] += rows
        _shared[2 * number + 1] += size
        pace.take(size)

    return make_one(work, piece, watch)
