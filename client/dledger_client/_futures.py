"""Futures of single messages that cost next to nothing: the batch knows, the future points at it.

Owns: waiting for a batch from coroutines and threads, callbacks, results built when asked for. Not:
when a batch settles (`_accumulator.py`).

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

from dledger_client._batch import Batch
from dledger_client._fork import check_fork
from dledger_client.errors import ClientError
from dledger_client.model import SendResult

_unplaced_lock = threading.Lock()
"""Two threads must not both make a future's list."""


class Delivery:
    """What both kinds of futures share. Not made by users."""

    __slots__ = ("_callbacks", "batch", "position")

    def __init__(self, on_done: Callable[[Self], object] | None = None) -> None:
        """Begin unplaced. `on_done` is there before the batch can settle: the loop calls it."""
        self.batch: Batch | None = None
        """Where the message lies; None while its topic is being looked up."""
        self.position = 0
        self._callbacks: list[Callable[[], object]] | None = (
            None if on_done is None else [partial(on_done, self)]
        )
        """Added before the message was placed."""

    def attach(self, batch: Batch, position: int) -> None:
        """Say where the message was placed. Called by the producer's core."""
        self.position = position
        self.batch = batch
        if self._callbacks is not None:
            self._hand_over(batch, self._callbacks)

    def fail(self, topic: str, error: ClientError) -> None:
        """Settle a message that is placed nowhere."""
        batch = Batch(topic, b"", 0, "")
        batch.settle_failed(error)
        self.attach(batch, 0)

    def done(self) -> bool:
        """Return whether the outcome is known."""
        batch = self.batch
        return batch is not None and batch.is_settled

    def exception(self) -> ClientError | None:
        """Return why the message is not stored, or not known to be; None when it is stored.

        Raises RuntimeError when the outcome is not known yet.
        """
        batch = self.batch
        if batch is None or not batch.is_settled:
            raise RuntimeError("the send has no outcome yet")
        return None if batch.error is None else batch.error.again()

    def outcome(self) -> SendResult:
        """Return the result, or raise the error, of a send that is done."""
        error = self.exception()
        if error is not None:
            raise error
        batch = self.batch
        assert batch is not None, "a send with an outcome is placed"
        return batch.result_of(self.position)

    def outcomes(self) -> list[SendResult]:
        """Return the results of all records of the batch; for what was handed over as one."""
        self.outcome()
        batch = self.batch
        assert batch is not None, "a send with an outcome is placed"
        return [batch.result_of(position) for position in range(batch.count)]

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(future)` once the outcome is known; at once if it is.

        Callbacks run on the thread of the client's event loop and must not block it.
        """
        self.when_done(partial(callback, self))

    def when_done(self, callback: Callable[[], object]) -> None:
        """Call `callback()` once the outcome is known; at once if it is."""
        batch = self.batch
        if batch is not None:
            batch.observe(callback)
            return
        with _unplaced_lock:
            callbacks = self._callbacks
            if callbacks is None:
                callbacks = self._callbacks = []
        callbacks.append(callback)
        batch = self.batch
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
        return self.outcome()

    def wait(self) -> Self:
        """Return something to await: the future itself. `SendFuture.wait` blocks instead."""
        return self

    def __await__(self) -> Generator[object, None, SendResult]:
        if not self.done():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_done(partial(_wake, waiter))
            yield from waiter.__await__()
        return self.outcome()


def _wake(waiter: "asyncio.Future[None]") -> None:
    """Wake one coroutine, unless it was cancelled meanwhile."""
    if not waiter.done():
        waiter.set_result(None)


class SendFuture(Delivery):
    """The outcome of one `send_async`. Any thread may wait; giving up a wait changes nothing."""

    __slots__ = ()

    def wait(self) -> SendResult:
        """Wait as long as it takes, at most the budget of the send; return the result or raise."""
        return self.result()

    def result(self, timeout_ms: float | None = None) -> SendResult:
        """Wait, then return the result or raise the error of the send.

        Raises TimeoutError when `timeout_ms` is over first; the send itself goes on.
        """
        if not self.done():
            check_fork()  # nobody would ever settle it here
            woken = threading.Event()
            self.when_done(woken.set)
            if not woken.wait(None if timeout_ms is None else timeout_ms / 1_000):
                raise TimeoutError(f"no outcome within {timeout_ms} ms; the send goes on")
        return self.outcome()
