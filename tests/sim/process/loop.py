"""The event loop of one simulated process, on the virtual clock of its world.

Owns: turns, timers, jobs of thread pools, pauses and the sudden end. The code that runs on the loop
is the product's; it cannot tell this loop from a real one. A turn runs what is ready and takes some
virtual microseconds, as on one core. A job of a pool runs whole, at a drawn moment after it was
handed over, beside the turns: so the seed decides how threads and loop interleave.

A killed process runs nothing any more. Its tasks are kept until the world ends: otherwise the
garbage collector would end them, and run their `finally` blocks, at moments that no seed decides.
"""

import asyncio
import contextvars
import signal
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from random import Random
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple, cast

from tests.sim.world.clock import Scheduler, Timer

P = TypeVar("P", bound=asyncio.BaseProtocol)
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TURN_MIN: Final = 5e-6
TURN_SPAN: Final = 35e-6
"""What a turn costs, in virtual seconds: this, and a drawn part of the span."""
JOB_MIN: Final = 20e-6
JOB_MAX: Final = 2e-3
"""When a pool's thread runs a job that it was given."""
TASKS_PRUNED_FROM: Final = 256


class ProcessNetwork(Protocol):
    """What a network wants to know of a process, and gives it."""

    def process_paused(self, host: str) -> None:
        """Learn that the process on a host stands still."""
        ...

    def process_resumed(self, host: str) -> None:
        """Learn that it runs again."""
        ...

    async def dial(
        self, loop: "ProcessLoop", factory: Callable[[], P], host: str, port: int
    ) -> tuple[asyncio.Transport, P]:
        """Connect to a port without gRPC."""
        ...

    def serve(
        self, loop: "ProcessLoop", factory: Callable[[], asyncio.BaseProtocol], port: int
    ) -> object:
        """Take connections without gRPC; OSError when the port is taken."""
        ...


class SimTimerHandle(asyncio.TimerHandle):
    """A timer of a `ProcessLoop`."""

    __slots__ = ("timer",)
    timer: Timer

    def cancel(self) -> None:
        """Never fire."""
        self.timer.cancel()
        super().cancel()


class ProcessLoop(asyncio.AbstractEventLoop):
    """The loop of one process. `host` names the machine that the process runs on."""

    def __init__(
        self,
        scheduler: Scheduler,
        random: Random,
        host: str,
        monotonic: Callable[[], float],
        on_error: Callable[[BaseException, str], None],
    ) -> None:
        """`on_error(error, where)`: hears of what nobody caught in a callback or a task."""
        self.scheduler = scheduler
        self.host = host
        self.random = random
        self._monotonic = monotonic
        self._on_error = on_error
        self._ready: deque[asyncio.Handle] = deque()
        self._is_due = False
        self._free_at = 0.0
        """The turn before is over at this virtual time."""
        self.busy = 0.0
        """Virtual seconds that the present turn has taken beside its own cost."""
        self.is_ended = False
        self.is_paused = False
        self._missed = False
        """A turn or a job came due during the pause."""
        self._held_jobs: list[Callable[[], None]] = []
        self._tasks: list[tuple[asyncio.Task[Any], contextvars.Context]] = []
        self._prune_at = TASKS_PRUNED_FROM
        self.signals: dict[int, Callable[[], None]] = {}
        self.on_log: Callable[[str, str, dict[str, Any]], None] = _unheard
        """`on_log(level, event, fields)` hears of every log line of the process."""
        self.on_group_opened: Callable[[Any], None] = _ignored
        self.on_group_failed: Callable[[BaseException], None] = _ignored
        self.wall_ms: Callable[[], int] = _no_wall_clock
        self.network: ProcessNetwork | None = None
        """The world's network, for a process that uses one."""

    # Time.

    def time(self) -> float:
        return self._monotonic() + self.busy

    def spend(self, seconds: float) -> None:
        """Let the present turn take so much longer: its process computes."""
        self.busy += seconds

    # Turns.

    def _wake(self) -> None:
        if not self._is_due and not self.is_ended:
            self._is_due = True
            scheduler = self.scheduler
            scheduler.at(scheduler.now + TURN_MIN + TURN_SPAN * self.random.random(), self._turn)

    def _turn(self) -> None:
        if self.scheduler.now < self._free_at:
            self.scheduler.at(self._free_at, self._turn)
            return
        self._is_due = False
        if self.is_ended:
            return
        if self.is_paused:
            self._missed = True
            return
        ready = self._ready
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            self._run_ready(len(ready))
        finally:
            asyncio._set_running_loop(before)
            self._free_at = self.scheduler.now + self.busy
            self.busy = 0.0
        if ready:
            self._wake()

    def _run_ready(self, count: int) -> None:
        ready = self._ready
        for _ in range(count):
            if self.is_ended:
                return
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _enter(self, work: Callable[[], None]) -> None:
        """Run something as this loop's thread."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            work()
        finally:
            asyncio._set_running_loop(before)
            self._free_at = self.scheduler.now + self.busy
            self.busy = 0.0

    def run_ready(self) -> None:
        """Run at once what is ready, as a turn that takes no time; for the start of a process."""
        self._enter(lambda: self._run_ready(len(self._ready)))

    def run_now(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call something on the loop's thread at once, unless the process ended.

        For a test that acts as the process itself; during a pause the call waits.
        """
        if self.is_ended:
            return
        if self.is_paused:
            self.call_soon(callback, *arguments)
        else:
            self._enter(lambda: cast("None", callback(*arguments)))

    # Life and death.

    def pause(self) -> None:
        """Stop the process (SIGSTOP): timers come due, nothing runs."""
        self.is_paused = True
        if self.network is not None:
            self.network.process_paused(self.host)

    def resume(self) -> None:
        """Continue: what came due meanwhile runs now."""
        self.is_paused = False
        if self.network is not None:
            self.network.process_resumed(self.host)
        jobs, self._held_jobs = self._held_jobs, []
        for job in jobs:
            self.scheduler.after(self.random.uniform(JOB_MIN, JOB_MAX), job)
        if self._missed:
            self._missed = False
            self._wake()

    def end(self) -> None:
        """End the process at once (SIGKILL): nothing of it runs any more."""
        self.is_ended = True
        self._ready.clear()
        self._held_jobs.clear()

    def discard(self) -> None:
        """Close every task that is left, when the world is over."""
        assert self.is_ended, f"{self.host} runs"
        self.on_log = _unheard
        self._enter(self._close_tasks)

    def _close_tasks(self) -> None:
        for task, context in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                try:
                    context.run(cast("Coroutine[Any, Any, Any]", task.get_coro()).close)
                except Exception:  # its `finally` blocks find a world that is no more
                    continue
        self._tasks.clear()

    # Callbacks.

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.is_ended:
            self._ready.append(handle)
            if not self._is_due:
                self._wake()
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = SimTimerHandle(when, callback, args, self, context)
        at = self.scheduler.now + (when - self._monotonic())
        handle.timer = self.scheduler.at(at, self._fire, handle)
        return handle

    def _fire(self, handle: SimTimerHandle) -> None:
        if not self.is_ended and not handle.cancelled():
            self._ready.append(handle)
            self._wake()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asked by `asyncio.TimerHandle.cancel`."""

    # Futures and tasks.

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> "asyncio.Task[T]":
        work = cast("Coroutine[Any, Any, T]", coro)
        context = context or contextvars.copy_context()
        task = asyncio.Task(work, loop=self, name=name or "task", context=context)
        tasks = self._tasks
        tasks.append((task, context))
        if len(tasks) > self._prune_at:
            self._tasks = [each for each in tasks if not each[0].done()]
            self._prune_at = max(TASKS_PRUNED_FROM, 2 * len(self._tasks))
        return task

    def run_in_executor(
        self, executor: object, func: Callable[..., T], *args: object
    ) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self.create_future()

        def finish(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(cast("T", result))

        self.in_thread(self.random.uniform(JOB_MIN, JOB_MAX), lambda: func(*args), finish)
        return future

    def in_thread(
        self,
        delay: float,
        job: Callable[[], T],
        done: Callable[[T | None, BaseException | None], None],
        *,
        rest: float = 0.0,
    ) -> None:
        """Run a job in a thread after `delay`, then `done(result, error)` on the loop.

        The thread is ready `rest` seconds after the job's effects are there.
        """

        def work() -> None:
            if self.is_ended:
                return
            if self.is_paused:
                self._held_jobs.append(work)
                return
            result, failure = as_thread(job)
            if rest:
                self.scheduler.after(
                    rest, lambda: cast("None", self.call_soon(done, result, failure))
                )
            else:
                self.call_soon(done, result, failure)

        self.scheduler.after(delay, work)

    # Connections.

    async def getaddrinfo(  # type: ignore[override]  # what the product uses of it
        self, host: str, port: int, **_hints: object
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        """Every name stands for the host of that name."""
        return [(0, 0, 0, "", (host, port))]

    async def create_connection(  # type: ignore[override]  # what the product uses of it
        self, protocol_factory: Callable[[], P], host: str, port: int
    ) -> tuple[asyncio.Transport, P]:
        assert self.network is not None, f"{self.host} has no network"
        return await self.network.dial(self, protocol_factory, host, port)

    async def create_server(  # type: ignore[override]  # what the product uses of it
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str | None, port: int
    ) -> object:
        assert self.network is not None, f"{self.host} has no network"
        return self.network.serve(self, protocol_factory, port)

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        self.signals[sig] = lambda: cast("None", callback(*args))

    def terminate(self) -> None:
        """Deliver SIGTERM; a process that does not handle it yet ends at once."""
        handler = self.signals.get(signal.SIGTERM)
        if handler is not None:
            self.call_soon(handler)

    # What asyncio asks of a loop.

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_ended

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Hear of an error that nobody caught."""
        error = context.get("exception")
        if not self.is_ended and error is not None:
            self._on_error(error, str(context.get("message", "")))


def new_loop(
    scheduler: Scheduler,
    random: Random,
    host: str,
    monotonic: Callable[[], float],
    on_error: Callable[[BaseException, str], None],
) -> ProcessLoop:
    """Return a loop. What asyncio may ask of a loop, and the product does not, is not there."""
    return ProcessLoop(scheduler, random, host, monotonic, on_error)  # type: ignore[abstract]


def _ignored(_what: object) -> None:
    pass


def _no_wall_clock() -> int:
    raise AssertionError("this process has no wall clock")


def _unheard(_level: str, _event: str, _fields: dict[str, Any]) -> None:
    pass


def as_thread(job: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    """Run a job as a thread would, outside of any loop; return its result and its error."""
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        return job(), None
    except Exception as error:  # handed on, as a thread does
        return None, error
    finally:
        asyncio._set_running_loop(before)
