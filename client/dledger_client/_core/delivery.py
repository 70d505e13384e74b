# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false
# The functions at the end are the friends of the class.
"""Where the outcome of one message is found: its batch, and its position in it. Pure.

Owns: the pointer (batch, position), reading the outcome through it, and the callbacks that come
before the message is placed. Not: waiting (`_shell/futures.py`), when a batch settles
(`producer/buffer.py`).

Users see what the class and its subclasses show. The producer's core, which places and fails
messages, uses the functions below the class.
"""

from collections.abc import Callable

from dledger_client._core.producer.batch import Batch
from dledger_client.errors import ClientError
from dledger_client.model import SendResult


class Delivery:
    """One message on its way. It costs next to nothing: the batch knows, this points at it."""

    __slots__ = ("_batch", "_callbacks", "_position")

    _batch: Batch | None
    """Where the message lies. None: its topic is still being looked up."""
    _position: int
    _callbacks: list[Callable[[], object]] | None
    """Callbacks that were added before the message was placed."""

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

    @staticmethod
    def _hand_over(batch: Batch, callbacks: list[Callable[[], object]]) -> None:
        while callbacks:
            try:
                callback = callbacks.pop(0)
            except IndexError:  # another thread took the last
                return
            batch.observe(callback)


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


def placed(future: Delivery) -> tuple[Batch, int] | None:
    """Return batch and position of a message; None while its topic is being looked up."""
    return None if future._batch is None else (future._batch, future._position)


def outcomes(future: Delivery) -> list[SendResult]:
    """Return the results of all records that were handed over as one, or raise the error."""
    future._outcome()
    batch = future._batch
    assert batch is not None, "a send with an outcome is placed"
    return [batch.result_of(position) for position in range(batch.count)]
