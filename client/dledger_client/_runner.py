"""The difference between the asyncio classes and their synchronous twins, in one place.

Owns: how an awaitable is run. `AsyncRunner` awaits it. `SyncRunner` runs it on a background event
loop that all synchronous clients of the process share, and blocks the caller.

Why the twins run on a loop and not on gRPC's blocking API: measured with a bare echo of 1 KiB on
one stream (bench in tests/unit/client/measure.py), blocking streams cost a thread per direction
and a lock handshake per message, and lose pipelining for `send_async`; the loop keeps one code
path, one order of messages from many threads, and batches what they send together.
"""

import asyncio
import atexit
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from dledger_client._producer_engine import ProducerEngine

Result = TypeVar("Result")


class AsyncRunner:
    """Awaits on the caller's own event loop."""

    async def run(self, work: Coroutine[object, object, Result]) -> Result:
        """Return what `work` returns."""
        return await work

    async def make_room(self, engine: "ProducerEngine", size: int, timeout: float) -> None:
        """Wait until a producer's buffer has room; BufferFull after `timeout` seconds."""
        if engine.is_full(size):
            await engine.wait_for_room(size, timeout)

    def insist_on_room(self, engine: "ProducerEngine", size: int, timeout: float) -> None:
        """Do nothing: a coroutine's `submit` cannot wait, it raises BufferFull."""

    def release(self) -> None:
        """End the use of this runner."""


class _BackgroundLoop:
    """One daemon thread with an event loop, there as long as somebody uses it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def acquire(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, for one more user."""
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                loop = asyncio.new_event_loop()
                loop.set_exception_handler(_handle_loop_exception)
                thread = threading.Thread(
                    target=_run_loop, args=(loop,), name="dledger client", daemon=True
                )
                thread.start()
                self._loop, self._thread = loop, thread
            self._users += 1
            return self._loop

    def release(self) -> None:
        """Note that one user is gone; the last one ends the thread."""
        with self._lock:
            self._users -= 1
            if self._users > 0 or self._loop is None or self._thread is None:
                return
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        if threading.current_thread() is not thread:
            thread.join()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _handle_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    # Several loops of one process share gRPC's poller; the one that wakes up second finds nothing
    # to read. gRPC lets this harmless BlockingIOError escape.
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)


_background = _BackgroundLoop()


class SyncRunner:
    """Runs coroutines on the background loop; any number of threads may call it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = _background.acquire()
                atexit.register(self.release)
            return self._loop

    def run(self, work: Coroutine[object, object, Result]) -> Result:
        """Return what `work` returns, once it is done; an interrupted wait cancels it."""
        loop = self._running()
        if self._is_loop_thread():
            work.close()
            raise RuntimeError("a callback of this client must not call its blocking methods")
        future: concurrent.futures.Future[Result] = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def make_room(self, engine: "ProducerEngine", size: int, timeout: float) -> None:
        """Wait until a producer's buffer has room; BufferFull after `timeout` seconds."""
        if engine.is_full(size):
            self.run(engine.wait_for_room(size, timeout))

    def insist_on_room(self, engine: "ProducerEngine", size: int, timeout: float) -> None:
        """Wait as `make_room` does; but a callback, which must not wait, gets BufferFull."""
        if engine.is_full(size):
            if self._is_loop_thread():
                raise engine.full(size)
            self.run(engine.wait_for_room(size, timeout))

    def _is_loop_thread(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def release(self) -> None:
        """End the use of this runner; the last user of the background loop ends it."""
        with self._lock:
            if self._loop is None:
                return
            self._loop = None
            atexit.unregister(self.release)
        _background.release()
