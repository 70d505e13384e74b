# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false
# The functions at the end are the friends of the classes.
"""Futures of single messages that cost next to nothing: the batch knows, the future points at it.

Owns: waiting for a batch from coroutines and threads, callbacks, results built when asked for. Not:
when a batch settles (`_core/producer/buffer.py`).

Users see what the classes show; the producer's core, which places and fails messages, uses the
functions below them.

A future points at (batch, position) once its message is placed; whoever waits or gives a callback
is then an observer of the batch, which calls it once (`Batch.observe`). Batches settle on one
thread; waiting is allowed on any. Until a message is placed its future holds the callbacks. The two
sides of that race (a callback is added, the message is placed) each write first and look at the
other's word second, so one of them sees the other; taking from the list is atomic.
"""

import asyncio
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Self

from dledger_client._core.producer.batch import Batch
from dledger_client._shell.fork import check_fork
from dledger_client._shell.runner import check_may_wait
from dledger_client.errors import ClientError
from dledger_client.model import SendResult

_unplaced_lock = threading.Lock()
"""Two threads must not both make a future's list."""


class Delivery:
    """What both kinds of futures share. Not made by users."""

    __slots__ = ("_batch", "_callbacks", "_position")

    def __init__(self, on_done: Callable[[Self], object] | None = None) -> None:
        """Begin unplaced. `on_done` is there before the batch can settle: the loop calls it."""
        self._batch: Batch | None = None
        """Where the message lies; None while its topic is being looked up."""
        self._position = 0
        self._callbacks: list[Callable[[], object]] | None = (
            None if on_done is None else [partial(on_done, self)]
        )
        """Added before the message was placed."""

    def __repr__(self) -> str:
        batch = self._batch
        if batch is None or not batch.is_settled:
            outcome = "no outcome yet"
        elif batch.error is not None:
            outcome = str(batch.error)
        else:
            result = batch.result_of(self._position)
            outcome = f"stored at {result.topic}/{result.queue} offset {result.offset}"
        return f"<{type(self).__name__}: {outcome}>"

    def done(self) -> bool:
        """Return whether the outcome is known."""
        batch = self._batch
        return batch is not None and batch.is_settled

    def exception(self) -> ClientError | None:
        """Return why the message is not stored, or not known to be; None when it is stored.

        Raises RuntimeError when the outcome is not known yet.
        """
        batch = self._batch
        if batch is None or not batch.is_settled:
            raise RuntimeError("the send has no outcome yet")
        return None if batch.error is None else batch.error.again()

    def _outcome(self) -> SendResult:
        """Return the result, or raise the error, of a send that is done."""
        error = self.exception()
        if error is not None:
            raise error
        batch = self._batch
        assert batch is not None, "a send with an outcome is placed"
        return batch.result_of(self._position)

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(future)` once the outcome is known; at once if it is.

        Callbacks run on the thread of the client's event loop and must not block it.
        """
        self._when_done(partial(callback, self))

    def _when_done(self, callback: Callable[[], object]) -> None:
        batch = self._batch
        if batch is not None:
            batch.observe(callback)
            return
        with _unplaced_lock:
            callbacks = self._callbacks
            if callbacks is None:
                callbacks = self._callbacks = []
        callbacks.append(callback)
        batch = self._batch
        if batch is not None:
            self._hand_over(batch, callbacks)

    @staticmethod
    def _hand_over(batch: Batch, callbacks: list[Callable[[], object]]) -> None:
        while callbacks:
            try:
                callback = callbacks.pop(0)
            except IndexError:  # another thread took the last
                return
            batch.observe(callback)


class AsyncSendFuture(Delivery):
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
            self._when_done(partial(_wake, waiter))
            yield from waiter.__await__()
        return self._outcome()


def _wake(waiter: "asyncio.Future[None]") -> None:
    """Wake one coroutine, unless it was cancelled meanwhile."""
    if not waiter.done():
        waiter.set_result(None)


class SendFuture(Delivery):
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
            self._when_done(woken.set)
            if not woken.wait(timeout):
                raise TimeoutError(f"no outcome within {timeout} s; the send goes on")
        return self._outcome()

    def __await__(self) -> Generator[object, None, SendResult]:
        if not self.done():
            check_fork()
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self._when_done(partial(_wake_from_thread, loop, waiter))
            yield from waiter.__await__()
        return self._outcome()


def _wake_from_thread(loop: asyncio.AbstractEventLoop, waiter: "asyncio.Future[None]") -> None:
    try:
        loop.call_soon_threadsafe(_wake, waiter)
    except RuntimeError:
        if not loop.is_closed():  # else nobody waits any more
            raise


# What the core, and nobody else, does with futures.


def attach(future: Delivery, batch: Batch, position: int) -> None:
    """Say where the message of a future was placed."""
    future._position = position
    future._batch = batch
    if future._callbacks is not None:
        future._hand_over(batch, future._callbacks)


def fail(future: Delivery, topic: str, error: ClientError) -> None:
    """Settle a message that is placed nowhere."""
    batch = Batch(topic, b"", 0, "")
    batch.settle_failed(error)
    attach(future, batch, 0)


def when_done(future: Delivery, callback: Callable[[], object]) -> None:
    """Call `callback()` once the outcome is known; at once if it is."""
    future._when_done(callback)


def placed(future: Delivery) -> tuple[Batch, int] | None:
    """Return batch and position of a message; None while its topic is being looked up."""
    return None if future._batch is None else (future._batch, future._position)


def outcomes(future: Delivery) -> list[SendResult]:
    """Return the results of all records that were handed over as one, or raise the error."""
    future._outcome()
    batch = future._batch
    assert batch is not None, "a send with an outcome is placed"
    return [batch.result_of(position) for position in range(batch.count)]
