"""What the engines of producers and consumers do around their cores.

Owns: the event loop of one client object, carrying out what the core asks for after every input,
the timer, the tasks, the end. Not: what an action means (`producer.py`, `consumer.py`), what is
decided (`_core/`).

All methods run on the event loop's thread.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Generic, NoReturn, Protocol, TypeVar

from dledger_client._core.routes import RouteChange
from dledger_client._shell.cluster import Cluster
from dledger_client.errors import ClientClosed
from dledger_proto.errors import Code

Action = TypeVar("Action")
Work = Coroutine[object, object, None]


class DrivenCore(Protocol[Action]):
    """What a core without I/O offers its driver."""

    def take_actions(self) -> list[Action]:
        """Return what the driver has to do now, in order."""
        ...

    def tick(self, now: float) -> None:
        """Let time pass."""
        ...

    def next_deadline(self, now: float) -> float | None:
        """Return when `tick` has to be called at the latest."""
        ...

    def routes_changed(self, change: RouteChange, now: float) -> None:
        """Take in what changed in the routes."""
        ...

    def member_ready(self, address: str, now: float, *, is_ready: bool) -> None:
        """Take in whether a connection to a member stands."""
        ...


class Driver(Generic[Action]):
    """Drives one core. `settle` runs after every input, when all actions are carried out."""

    def __init__(
        self,
        what: str,
        cluster: Cluster,
        core: DrivenCore[Action],
        carry_out: Callable[[Action], None],
        settle: Callable[[], None],
    ) -> None:
        self.is_stopped = False
        self._what = what
        self._cluster = cluster
        self._core = core
        self._carry_out = carry_out
        self._settle = settle
        self.now: Callable[[], float] = self._not_started
        """The loop's clock: seconds. ClientClosed before `start`."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._streams: dict[int, asyncio.Task[None]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    @property
    def is_started(self) -> bool:
        """True: `start` was called."""
        return self._loop is not None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that the client object was started on. ClientClosed before `start`."""
        if self._loop is None:
            self._not_started()
        return self._loop

    def _not_started(self) -> NoReturn:
        raise ClientClosed(Code.CLOSED, f"the {self._what} is not started")

    def start(self) -> None:
        """Begin to watch the routes, on the running loop."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self.now = self._loop.time
            self._cluster.listen(self._routes_changed)
            self._cluster.listen_ready(self._member_ready)
            self._cluster.start()

    def advance(self) -> None:
        """Carry out what the core asks for, and set the timer. Called after every input."""
        self.carry_out()
        self._settle()
        self.arm()

    def carry_out(self) -> None:
        """Carry out what the core asks for."""
        for action in self._core.take_actions():
            self._carry_out(action)

    def arm(self) -> None:
        """Set the timer to the core's next deadline."""
        deadline = self._core.next_deadline(self.now())
        if deadline is None or self.is_stopped:
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self.loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._core.tick(self.now())
        self.advance()

    def _routes_changed(self, change: RouteChange) -> None:
        if self.is_stopped:
            return  # or the core would open streams that nobody ends
        self._core.routes_changed(change, self.now())
        self.advance()

    def _member_ready(self, address: str, is_ready: bool) -> None:
        if self.is_stopped:
            return
        self._core.member_ready(address, self.now(), is_ready=is_ready)
        self.advance()

    def open_stream(self, stream: int, work: Work, name: str) -> None:
        """Run a stream as a task, until it ends or `close_stream` cancels it."""
        task = self.loop.create_task(work, name=name)
        self._streams[stream] = task
        task.add_done_callback(partial(self._stream_ended, stream))

    def _stream_ended(self, stream: int, _task: "asyncio.Task[None]") -> None:
        self._streams.pop(stream, None)

    def close_stream(self, stream: int) -> None:
        """Cancel a stream that still runs."""
        task = self._streams.get(stream)
        if task is not None:
            task.cancel()

    def spawn(self, work: Work) -> None:
        """Run a call as a task."""
        task = self.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)

    def stop(self) -> None:
        """Stop the timer, for good."""
        self.is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    async def end(self) -> None:
        """Cancel all streams and calls, and close all connections."""
        await self.cancel()
        await self._cluster.close()

    async def cancel(self) -> None:
        """Cancel all streams and calls."""
        self.stop()
        tasks = [*self._streams.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
