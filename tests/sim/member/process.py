"""The process of a simulated member: the product's own, from its configuration to its exit code.

Owns: the loop it runs on, the machine that it is given, how far it has come, and what its end
means. Its death discards all of it: whatever still refers to it has no effect.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from random import Random
from typing import TYPE_CHECKING, Final, cast

from dledger.log.commit_log import CommitLog
from dledger.raft.driver.host import GroupHost
from dledger.raft.group import RaftGroup
from dledger.state.machine import StateMachine
from dledger_broker.process.group_runtime import GroupRuntime
from dledger_broker.process.member import serve
from dledger_broker.process.platform import Platform
from tests.sim.member.convinced import Convinced
from tests.sim.member.watching import watch
from tests.sim.process.loop import new_loop
from tests.sim.process.threads import SimWorker

if TYPE_CHECKING:
    from tests.sim.member.member import SimMember

START_TURNS_MAX: Final = 1_000


class NoPool(Executor):
    """The threads that read: `ProcessLoop.run_in_executor` runs their jobs itself."""


class ProcessClock:
    """The machine's clocks, as a process sees them that computes for longer than an instant."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._clock = process.member.clock

    def monotonic(self) -> float:
        """See `dledger.clock.Clock.monotonic`."""
        return self._clock.monotonic() + self._process.loop.busy

    def wall_ms(self) -> int:
        """See `dledger.clock.Clock.wall_ms`."""
        return self._clock.wall_ms()


class Process:
    """A running member."""

    member: "SimMember"
    runtime: GroupRuntime

    def __init__(self, member: "SimMember", boot: int) -> None:
        world = member.world
        self.member = member
        self.name = member.name
        self.boot = boot
        self.view = member.view
        self.random = Random(f"{world.plan.seed}/{member.name}/{boot}")
        self.loop = new_loop(
            world.scheduler, self.random, member.name, member.clock.monotonic, self._uncaught
        )
        self.loop.on_log = self._log_line
        self.loop.on_group_opened = self._group_opened
        self.loop.on_group_failed = self._group_failed
        self.loop.wall_ms = member.clock.wall_ms
        self.workers: list[SimWorker] = []
        self._serves = False
        self.failure: BaseException | None = None
        """What ended the process, as its group told it."""
        self._main: asyncio.Task[int] | None = None

    @property
    def ended(self) -> bool:
        """Tell whether the process is no more."""
        return self.loop.is_ended

    # Its parts.

    @property
    def host(self) -> GroupHost:
        """Return the driver of its group."""
        return self.runtime.view.host

    @property
    def group(self) -> RaftGroup:
        """Return its group."""
        return self.runtime.view.host.group

    @property
    def machine(self) -> StateMachine:
        """Return its state."""
        return self.runtime.view.machine

    @property
    def log(self) -> CommitLog:
        """Return its log."""
        return self.runtime.view.log

    # Start and end.

    def open(self) -> None:
        """Run until it serves; raise what keeps it from that."""
        member = self.member
        platform = Platform(
            clock=ProcessClock(self),
            random=self.random,
            file_system=member.fs,
            open_store=member.open_store,
            start_worker=self._start_worker,
            pool=NoPool(),
        )
        work = serve(member.config, platform, self._serving)
        self.loop.run_now(lambda: setattr(self, "_main", self.loop.create_task(work)))
        main = cast("asyncio.Task[int]", self._main)
        for _ in range(START_TURNS_MAX):
            if self._serves or main.done():
                break
            self.loop.run_ready()
        if main.done():
            error = main.exception()
            assert error is not None, f"{self.name} ended while it started"
            raise error
        assert self._serves, f"{self.name} does not start"
        main.add_done_callback(self._main_ended)

    def _serving(self) -> None:
        self._serves = True

    def _start_worker(self, name: str) -> SimWorker:
        worker = SimWorker(self.member, self.loop)
        self.workers.append(worker)
        return worker

    def _group_opened(self, runtime: GroupRuntime) -> None:
        """Look at a group that recovery has opened and nobody started."""
        self.runtime = runtime
        if self.member.world.plan.waits_for_callers:
            self.group._wiring.proposals._gathering._trial = Convinced()
        watch(self)
        self.member.opened(self)

    def _group_failed(self, error: BaseException) -> None:
        """Hear why a group cannot go on, before the process ends."""
        self.failure = self.failure or error

    def _main_ended(self, main: "asyncio.Task[int]") -> None:
        if not self.ended:
            error = main.exception()
            try:
                if error is not None:
                    raise error
                self.member.exited(self, main.result())
            except Exception as found:  # the loop has ended: it would tell nobody
                self.member.world.found_error(found, f"{self.name}: the process")

    def end(self) -> None:
        """End at once."""
        self.loop.end()
        for worker in self.workers:
            worker.cut_short()

    # What it does.

    def run(self, callback: Callable[..., object], *arguments: object) -> None:
        """Run an input of its group on its loop, then whatever comes of it."""

        def work() -> None:
            callback(*arguments)
            self.host._due()

        self.loop.run_now(work)

    def _uncaught(self, error: BaseException, where: str) -> None:
        self.member.world.found_error(error, f"{self.name}: {where}")

    def _log_line(self, level: str, event: str, fields: dict[str, object]) -> None:
        self.member.group.product_event(self.name, event, fields)
