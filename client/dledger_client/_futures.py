"""Futures of single messages that cost next to nothing: the batch knows, the future points at it.

Owns: waiting for a batch from coroutines and threads, callbacks, results built when asked for. Not:
when a batch settles (`_accumulator.py`).

A future points at (batch, position) once its message is placed. `Batch.settle` runs the observers
of the batch, which are there only if somebody waits or gave a callback. Batches settle on one
thread; waiting is allowed on any. The two sides of the race (a waiter registers, a batch settles)
each write first and look at the other's word second, so one of them sees the other; taking the
callbacks under a lock makes sure that each runs once.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Self

from dledger_client._batch import Batch
from dledger_client.errors import ClientError
from dledger_client.model import SendResult

_LOG = logging.getLogger("dledger_client")
_callbacks_lock = threading.Lock()


class Delivery:
    """What both kinds of futures share. Not made by users."""

    __slots__ = ("_callbacks", "batch", "position")

    def __init__(self) -> None:
        self.batch: Batch | None = None
        """Where the message lies; None while its topic is being looked up."""
        self.position = 0
        self._callbacks: list[Callable[[], object]] | None = None

    def attach(self, batch: Batch, position: int) -> None:
        """Say where the message was placed. Called by the producer's core."""
        self.position = position
        self.batch = batch
        if self._callbacks is not None:
            batch.observe(self.run_callbacks)

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
        with _callbacks_lock:
            if self._callbacks is None:
                self._callbacks = [callback]
            else:
                self._callbacks.append(callback)
        batch = self.batch
        if batch is not None:
            batch.observe(self.run_callbacks)

    def run_callbacks(self) -> None:
        """Run each callback once. An observer of the batch."""
        with _callbacks_lock:
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            try:
                callback()
            except Exception:  # noqa: BLE001  a user's callback must not end the producer's loop
                _LOG.exception("a send callback failed")


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
            woken = threading.Event()
            self.when_done(woken.set)
            if not woken.wait(None if timeout_ms is None else timeout_ms / 1_000):
                raise TimeoutError(f"no outcome within {timeout_ms} ms; the send goes on")
        return self.outcome()
