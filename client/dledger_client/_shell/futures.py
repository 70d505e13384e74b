# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false
# `when_done` is a friend of the classes.
"""Futures of single messages: waiting for an outcome from coroutines and threads, and callbacks.

Owns: how a caller waits for a batch, callbacks and what their failures may do. Not: where a message
lies and what became of it (`_core/delivery.py`).

A future points at its batch once its message is placed. Who waits or gives a callback then becomes
an observer of the batch, and the batch calls each observer once (`Batch.observe`). Batches settle
on one thread; any thread may wait. Until its message is placed a future keeps the callbacks itself.
A callback may be added while the message is being placed. Each side writes first and then reads
what the other side wrote, so that one of them sees the other. Taking from the list is atomic.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Self, TypeVar

from dledger_client._core.delivery import Delivery
from dledger_client._shell.fork import check_fork
from dledger_client._shell.runner import check_may_wait
from dledger_client.model import SendResult

Future = TypeVar("Future", bound="MessageFuture")
_LOG = logging.getLogger("dledger_client")
_unplaced_lock = threading.Lock()
"""Two threads must not both make a future's list."""


class MessageFuture(Delivery):
    """What both kinds of futures share. Not made by users."""

    __slots__ = ()

    def __init__(self, on_done: Callable[[Self], object] | None = None) -> None:
        """Begin unplaced. `on_done` is there before the batch can settle: the loop calls it."""
        self._batch = None
        self._position = 0
        self._callbacks = None if on_done is None else [partial(_call, on_done, self)]

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(future)` once the outcome is known; at once if it is.

        Callbacks run on the thread of the client's event loop and must not block it.
        """
        when_done(self, partial(_call, callback, self))


def _call(callback: Callable[[Future], object], future: Future) -> None:
    """Call a user's callback. A callback that fails must not end the producer's loop."""
    try:
        callback(future)
    except BaseException as error:
        # Python lets sys.exit() end the process in the main thread only. So does this.
        is_end = isinstance(error, SystemExit | KeyboardInterrupt)
        if is_end and threading.current_thread() is threading.main_thread():
            raise
        _LOG.exception("a send callback failed")


def when_done(future: Delivery, callback: Callable[[], object]) -> None:
    """Call `callback()` once the outcome is known; at once if it is. It must not raise."""
    batch = future._batch
    if batch is not None:
        batch.observe(callback)
        return
    with _unplaced_lock:
        callbacks = future._callbacks
        if callbacks is None:
            callbacks = future._callbacks = []
    callbacks.append(callback)
    batch = future._batch
    if batch is not None:
        future._hand_over(batch, callbacks)


class AsyncSendFuture(MessageFuture):
    """The outcome of one `submit`. Await it, as often as needed; cancelling a wait changes nothing.

    A message that was handed over stays handed over: whoever stops waiting does not know whether
    it is stored.
    """

    __slots__ = ()

    def result(self) -> SendResult:
        """Return the result, or raise the error; RuntimeError when the outcome is not known yet."""
        return self._outcome()

    def wait(self) -> Self:
        """Return something to await: the future itself. `SendFuture.wait` blocks instead."""
        return self

    def __await__(self) -> Generator[object, None, SendResult]:
        if not self.done():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            when_done(self, partial(_wake, waiter))
            yield from waiter.__await__()
        return self._outcome()


def _wake(waiter: "asyncio.Future[None]") -> None:
    """Wake one coroutine, unless it was cancelled meanwhile or its loop is closed."""
    if not waiter.done():
        try:
            waiter.set_result(None)
        except RuntimeError:  # its loop is closed
            return


class SendFuture(MessageFuture):
    """The outcome of one `send_async`. Any thread may wait, and a coroutine of any loop may await.

    Giving up a wait changes nothing.
    """

    __slots__ = ()

    def wait(self) -> SendResult:
        """Wait as long as it takes, at most the budget of the send; return the result or raise."""
        return self.result()

    def result(self, timeout: float | None = None) -> SendResult:
        """Wait, then return the result or raise the error of the send.

        Raises TimeoutError when `timeout` seconds are over first, as `concurrent.futures` does; the
        send itself goes on. Raises RuntimeError in a callback when there is no outcome yet.
        """
        if not self.done():
            check_fork()  # nobody would ever settle it here
            check_may_wait()
            woken = threading.Event()
            when_done(self, woken.set)
            if not woken.wait(timeout):
                raise TimeoutError(f"no outcome within {timeout} s; the send goes on")
        return self._outcome()

    def __await__(self) -> Generator[object, None, SendResult]:
        if not self.done():
            check_fork()
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            when_done(self, partial(_wake_from_thread, loop, waiter))
            yield from waiter.__await__()
        return self._outcome()


def _wake_from_thread(loop: asyncio.AbstractEventLoop, waiter: "asyncio.Future[None]") -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_wake, waiter)
