"""The threads of a simulated process: jobs at drawn moments, beside the loop's turns.

Owns: how long a write round and a save take, where in that time they reach the disk, and how far a
round has got when the process or the machine ends. A job of another kind runs at once.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final, Protocol, TypeVar, cast

from dledger.log.writing.write_round import Round
from dledger.state.machine import StateFlush
from tests.sim.disk.disk import PowerCut
from tests.sim.disk.drive import SimDrive
from tests.sim.disk.state_file import StateDisk
from tests.sim.process.loop import ProcessLoop

T = TypeVar("T")
Done = Callable[[Any, BaseException | None], None]

HANG_POLL: Final = 0.05
"""How often a job looks whether its disk still hangs, virtual seconds."""
HANGS: Final = object()
SAVE_MIN: Final = 0.001
SAVE_MAX: Final = 0.02
REACHED_SHARE: Final = 0.8
"""Of the rounds that are under way when their process ends: so many have begun."""


class Machine(Protocol):
    """What a worker needs of the machine that it writes on."""

    random: Random
    disk: SimDrive
    in_next_round: Callable[[], None] | None
    """A fault that waits for a write to be on its way to the disk."""
    in_next_save: Callable[[], None] | None
    """A fault that waits for a save of the state to be on its way to the disk."""
    state: StateDisk

    def job_failed(self, job: Callable[[], Any], error: BaseException) -> None:
        """Hear that a round or a save failed, after the process has heard it."""
        ...


class SimWorker:
    """See `dledger.raft.driver.worker.Worker`."""

    def __init__(self, machine: Machine, loop: ProcessLoop) -> None:
        self._machine = machine
        self._loop = loop
        self._jobs: deque[tuple[Callable[[], Any], Done]] = deque()
        self._job: Callable[[], Any] | None = None
        """What is under way; it has not reached the disk."""

    def submit(
        self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """See `Worker.submit`."""
        self._jobs.append((job, cast("Done", done)))
        if self._job is None:
            self._next()

    def stop(self) -> None:
        """See `Worker.stop`. Whoever stops a worker has waited for its jobs."""

    def _next(self) -> None:
        job, done = self._jobs.popleft()
        self._job = job
        machine, random = self._machine, self._machine.random
        if _round_of(job) is not None:
            length = machine.disk.round_time()
            reached = random.random() * length
            if machine.in_next_round is not None:
                self._loop.scheduler.after(random.random() * reached, machine.in_next_round)
                machine.in_next_round = None
        elif _flush_of(job) is not None:
            length = random.uniform(SAVE_MIN, SAVE_MAX)
            reached = random.random() * length
            if machine.in_next_save is not None:
                self._loop.scheduler.after(random.random() * length, machine.in_next_save)
                machine.in_next_save = None
        else:
            length = reached = 0.0
        self._loop.in_thread(reached, self._run, self._ended(job, done), rest=length - reached)

    def _run(self) -> Any:
        """Do the job, unless the disk hangs: then look again."""
        job = self._job
        assert job is not None
        if self._machine.disk.hanging:
            return HANGS
        self._job = None
        return job()

    def _ended(self, job: Callable[[], Any], done: Done) -> Done:
        def ended(result: object, error: BaseException | None) -> None:
            if result is HANGS:
                self._loop.in_thread(HANG_POLL, self._run, ended)
                return
            done(result, error)
            if error is not None:
                self._machine.job_failed(job, error)
            if self._jobs and self._job is None:
                self._next()

        return ended

    def cut_short(self) -> None:
        """End with the process: what had begun has made a drawn part of its calls, or rows."""
        job, self._job = self._job, None
        machine, random = self._machine, self._machine.random
        if job is None or random.random() >= REACHED_SHARE:
            return
        if (write := _round_of(job)) is not None:
            machine.disk.stop_after(random.choice((0, 1, 1, 2, 3, random.randrange(12))))
        elif (flush := _flush_of(job)) is not None:
            rows = len(flush.flush.overlay.values)
            machine.state.cut_at_row(random.randrange(rows + rows // 2 + 1))
        with suppress(PowerCut, OSError):
            if write is not None or flush is not None:
                job()


def _flush_of(job: Callable[[], Any] | None) -> StateFlush | None:
    owner = getattr(job, "__self__", None)
    return owner if isinstance(owner, StateFlush) else None


def _round_of(job: Callable[[], Any] | None) -> Round | None:
    owner = getattr(job, "__self__", None)
    return owner if isinstance(owner, Round) else None
