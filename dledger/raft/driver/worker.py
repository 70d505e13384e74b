"""A thread of a member: jobs in, results back on the loop.

Owns nothing but the thread. A group has two: one executes write rounds, one saves the state.
The simulation has another `Worker`, which runs the jobs at moments that its seed draws.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeVar

WORKER_JOIN_SECONDS: Final = 5.0

T = TypeVar("T")


class Worker(Protocol):
    """Runs jobs in order, off the loop, and hands the results to the loop."""

    def submit(
        self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None], /
    ) -> None:
        """Run `job` off the loop, then `done(result, error)` on the loop."""
        ...

    def stop(self) -> None:
        """End behind the jobs that wait; waits at most WORKER_JOIN_SECONDS."""
        ...


StartWorker = Callable[[str], Worker]
"""Starts a worker of this name, which serves the running loop."""


class ThreadWorker:
    """One thread.

    A daemon: a disk that hangs must not keep a process that wants to end.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[
            tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]] | None
        ] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(
        self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """See `Worker.submit`."""
        self._jobs.put((job, done))

    def stop(self) -> None:
        """See `Worker.stop`."""
        self._jobs.put(None)
        self._thread.join(WORKER_JOIN_SECONDS)

    def _work(self) -> None:
        while (task := self._jobs.get()) is not None:
            job, done = task
            result: Any = None
            failure: BaseException | None = None
            try:
                result = job()
            except BaseException as error:  # noqa: BLE001 - handed on, whatever it is
                failure = error
            try:
                self._loop.call_soon_threadsafe(done, result, failure)
            except RuntimeError:
                return  # the loop is closed: the process ends
            del task, job, done, result, failure  # or they stay in memory until the next job
