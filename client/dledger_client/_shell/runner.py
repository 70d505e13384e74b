"""The difference between the asyncio classes and their synchronous twins, in one place.

Owns: how an awaitable is run. `AsyncRunner` awaits it. `SyncRunner` runs it on a background event
loop that all synchronous clients of the process share, and blocks the caller.

The blocking classes run on a loop and not on gRPC's blocking API: a message then costs less CPU,
and there is one code path, and one order of messages from many threads (D12). The program
`tests/programs/client_cost.py` measures both.
"""

import asyncio
import atexit
import concurrent.futures
import inspect
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, TypeVar

from dledger_client._core.consumer.state import Place
from dledger_client._shell.fork import check_fork
from dledger_client._shell.unclosed import closed, watch
from dledger_client.errors import ClientClosed

if TYPE_CHECKING:
    from dledger_client._shell.producer import ProducerEngine

_LOG = logging.getLogger("dledger_client")
STOP_TIMEOUT = 2.0
"""Seconds that the end of the process waits for the background loop."""

Result = TypeVar("Result")


class AsyncRunner:
    """Awaits on the caller's own event loop."""

    async def run(self, work: Coroutine[object, object, Result]) -> Result:
        """Return what `work` returns."""
        return await work

    async def call(self, function: Callable[[list[Place]], object], places: list[Place]) -> None:
        """Call a function of the user, or a coroutine function."""
        called = function(places)
        if inspect.isawaitable(called):
            await called

    def begin(self, producer: object, engine: "ProducerEngine") -> None:
        """See to it that a producer that nobody closes tells what it left."""
        watch(producer, engine, at_exit=True)

    def check_may_wait(self) -> None:
        """Do nothing: a coroutine that waits blocks nobody."""

    async def make_room(self, engine: "ProducerEngine", size: int, timeout: float) -> None:
        """Wait until a producer's buffer has room; BufferFull after `timeout` seconds."""
        if engine.is_full(size):
            await engine.wait_for_room(size, timeout)

    def insist_on_room(self, engine: "ProducerEngine", size: int, timeout: float) -> None:
        """Do nothing: a coroutine's `submit` cannot wait, it raises BufferFull."""


class _BackgroundLoop:
    """One daemon thread with an event loop, from its first use to the end of the process.

    It does not end with its last user: gRPC may still call a loop whose channels were closed, and
    fails if that loop is gone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.producers: weakref.WeakSet[ProducerEngine] = weakref.WeakSet()
        """Started, and closed at the end of the process if nobody has closed them by then."""
        self._of_parents: list[asyncio.AbstractEventLoop] = []

    def forget(self) -> None:
        """Begin anew in the child of a fork: the thread is the parent's.

        Its loop is kept: to close it would take what it watches out of the parent's own poll.
        """
        self._lock = threading.Lock()
        if self._loop is not None:
            self._of_parents.append(self._loop)
        self._loop = self._thread = None
        self.producers = weakref.WeakSet()

    def is_here(self) -> bool:
        """Return whether the caller is a callback on this loop, which must not block."""
        thread = self._thread
        return thread is not None and thread.ident == threading.get_ident()

    def get(self) -> asyncio.AbstractEventLoop:
        """Return the running loop."""
        with self._lock:
            if self._loop is None:
                check_fork()
                self._loop = asyncio.new_event_loop()
                self._loop.set_exception_handler(_handle_loop_exception)
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="dledger client", daemon=True
                )
                self._thread.start()
                atexit.register(self._stop, self._loop, self._thread)
            return self._loop

    def _stop(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        if thread.is_alive():
            self._settle(loop)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(STOP_TIMEOUT)

    def _settle(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the producers that are open, each within the budget of a send; all at once."""
        open_ones = [engine for engine in self.producers if not engine.is_closed]
        ends = [(engine, engine.config.timeout_ms / 1_000) for engine in open_ones]
        closing = [
            asyncio.run_coroutine_threadsafe(engine.close(budget), loop) for engine, budget in ends
        ]
        closing.append(asyncio.run_coroutine_threadsafe(closed(), loop))
        budget = max((engine.config.timeout_ms / 1_000 for engine in self.producers), default=0.0)
        late = concurrent.futures.wait(closing, budget + STOP_TIMEOUT).not_done
        if late:
            left = sum(engine.unsettled() for engine in open_ones)
            _LOG.warning("the process ends while %d messages are not acknowledged", left)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _handle_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    # All loops of a process share gRPC's poller. The one that wakes up second finds nothing to
    # read, and an answer may be for a loop that was closed: gRPC lets both errors escape, and goes
    # on with the next event.
    is_pollers = "PollerCompletionQueue" in str(context.get("handle"))
    if not (is_pollers and isinstance(context.get("exception"), BlockingIOError | RuntimeError)):
        loop.default_exception_handler(context)


_background = _BackgroundLoop()
os.register_at_fork(after_in_child=_background.forget)


def check_may_wait() -> None:
    """Raise RuntimeError on the background loop's thread: a wait there would never end."""
    if _background.is_here():
        raise RuntimeError(
            "a callback of this client must not call its blocking methods: it runs on the thread"
            " that they wait for; use send_async, or another thread"
        )


class SyncRunner:
    """Runs coroutines on the background loop; any number of threads may call it."""

    def run(self, work: Coroutine[object, object, Result]) -> Result:
        """Return what `work` returns, once it is done; an interrupted wait cancels it."""
        try:
            check_fork()
            loop = _background.get()
            check_may_wait()
        except (ClientClosed, RuntimeError):
            work.close()
            raise
        future: concurrent.futures.Future[Result] = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[list[Place]], object], places: list[Place]) -> None:
        """Call a function of the user, on the user's own thread."""
        function(places)

    def begin(self, producer: object, engine: "ProducerEngine") -> None:
        """See to it that a producer that nobody closes is closed before the process ends."""
        _background.producers.add(engine)
        watch(producer, engine, at_exit=False)

    check_may_wait = staticmethod(check_may_wait)

    def make_room(self, engine: "ProducerEngine", size: int, timeout: float) -> None:
        """Wait until a producer's buffer has room; BufferFull after `timeout` seconds."""
        if engine.is_full(size):
            self.run(engine.wait_for_room(size, timeout))

    def insist_on_room(self, engine: "ProducerEngine", size: int, timeout: float) -> None:
        """Wait as `make_room` does; but a callback, which must not wait, gets BufferFull."""
        if engine.is_full(size):
            if _background.is_here():
                raise engine.full(size)
            self.run(engine.wait_for_room(size, timeout))
