"""How a listener is called: as a coroutine, or as a function in a thread.

Owns: the shape of a listener's call, its threads, what its result means. Not: which record is next
(`_core/group/dispatch.py`).
"""

import asyncio
import inspect
import queue
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple, cast

from dledger_client._core.group.dispatch import Job
from dledger_client.errors import invalid
from dledger_client.model import DeadLetter, Delivery, Retry
from dledger_client.records import ConsumedRecord

Listener = Callable[..., Any]
"""Takes a record, or a list of them, and perhaps a `Delivery`."""
Result = Retry | DeadLetter | None
WITH_DELIVERY: Final = 2
"""Positional parameters without a default of a listener that wants to know about its delivery."""


class _Call(NamedTuple):
    future: "Future[object]"
    function: Callable[[], object]


class DaemonThreads:
    """At most so many threads, begun when they are needed. One thread calls all but `is_here`.

    None of them keeps the process. Python's own executors do: at its end the interpreter waits for
    their threads, also for one that hangs.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        """Threads that wait for a call."""
        self._threads: set[threading.Thread] = set()

    def submit(self, function: Callable[[], object]) -> "Future[object]":
        """Call a function in a thread, as soon as one is free."""
        call = _Call(Future(), function)
        self._calls.put(call)
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
            name = f"{self._name} {len(self._threads)}"
            thread = threading.Thread(
                target=_serve, args=(self._calls, self._idle), name=name, daemon=True
            )
            self._threads.add(thread)
            thread.start()
        return call.future

    def is_here(self) -> bool:
        """Return whether the caller runs in one of these threads."""
        return threading.current_thread() in self._threads

    def end(self) -> None:
        """Begin no more calls. Threads end when their call returns; nobody waits for them."""
        while not self._calls.empty():
            call = self._calls.get()
            if call is not None:
                call.future.cancel()
        for _ in self._threads:
            self._calls.put(None)


def _serve(calls: "queue.SimpleQueue[_Call | None]", idle: threading.Semaphore) -> None:
    while True:
        try:
            call = calls.get_nowait()
        except queue.Empty:
            idle.release()
            call = calls.get()
        if call is None:
            return
        if call.future.set_running_or_notify_cancel():
            try:
                result = call.function()
            except BaseException as error:  # noqa: BLE001  (whoever waits for the future gets it)
                call.future.set_exception(error)
            else:
                call.future.set_result(result)
                del result
        del call


class Caller:
    """Calls one listener."""

    def __init__(self, listener: Listener, *, is_batch: bool, threads: int) -> None:
        if not callable(listener):
            raise invalid(f"listener: {listener!r}, must be a function or a coroutine function")
        self._listener = listener
        self._is_batch = is_batch
        self._wants_delivery = _positional(listener) >= WITH_DELIVERY
        call = getattr(listener, "__call__", None)  # noqa: B004
        self.is_coroutine = inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
            call
        )
        is_plain = self.is_coroutine and not is_batch and not self._wants_delivery
        self.direct: Callable[[ConsumedRecord], Awaitable[object]] | None = (
            listener if is_plain else None
        )
        """The listener itself, if it is a coroutine function of one record: the shortest way."""
        self._threads = DaemonThreads(threads, "dledger listener")

    async def call(self, job: Job, loop: asyncio.AbstractEventLoop) -> object:
        """Call the listener with the records of a job; return what it returns."""
        given: object = job.records if self._is_batch else job.records[0]
        arguments = (given, _delivery(job)) if self._wants_delivery else (given,)
        if self.is_coroutine:
            return await cast("Awaitable[object]", self._listener(*arguments))
        called = self._threads.submit(partial(_guarded, self._listener, *arguments))
        return await asyncio.wrap_future(called, loop=loop)

    def is_here(self) -> bool:
        """Return whether a function that is the listener is the caller."""
        return self._threads.is_here()

    def close(self) -> None:
        """Begin no more calls. A function that hangs goes on, and ends with the process."""
        self._threads.end()


def _guarded(listener: Listener, *arguments: object) -> object:
    """Call a function in a thread; what would end the loop, or never reach it, is an error."""
    try:
        return listener(*arguments)
    except StopIteration as error:
        raise RuntimeError("the listener raised StopIteration") from error
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(f"the listener raised {type(error).__name__}") from error


def _positional(listener: Listener) -> int:
    """Return how many arguments a listener must be given."""
    try:
        parameters = inspect.signature(listener).parameters.values()
    except (TypeError, ValueError):
        return 1
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return WITH_DELIVERY
    fit = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in fit and each.default is each.empty for each in parameters)


def _delivery(job: Job) -> Delivery:
    held = job.chain.lane.held
    return Delivery(job.attempts, held.epoch, min(job.deadline, held.lease_end))


def error_text(raised: BaseException) -> str:
    """Return what an exception says, whatever it is."""
    name = type(raised).__name__
    try:
        return f"{name}: {raised}"
    except Exception:  # noqa: BLE001  (its own code)
        return f"{name}: its text cannot be read"


def results_of(said: object, records: Sequence[ConsumedRecord]) -> list[Result]:
    """Return what a listener says of each record; TypeError when that may not mean done.

    A value that is no wish means done, as None does. A class, something to await, and a list of
    results whose length is wrong are mistakes.
    """
    if isinstance(said, list | tuple):
        each = cast("Sequence[object]", said)
        if len(each) == len(records):
            return [_wish(one) for one in each]
        if len(records) > 1 or any(isinstance(one, Retry | DeadLetter) for one in each):
            raise TypeError(f"the listener returned {len(each)} results of {len(records)} records")
        return [None]
    return [_wish(said)] * len(records)


def _is_class(value: object) -> bool:
    return isinstance(value, type)


def _wish(said: object) -> Result:
    if isinstance(said, Retry | DeadLetter):
        return said
    if _is_class(said):
        raise TypeError(
            f"the listener returned the class {getattr(said, '__name__', said)}, not one of its"
            " objects"
        )
    if inspect.isawaitable(said):
        if inspect.iscoroutine(said):
            said.close()
        raise TypeError(
            f"the listener returned a {type(said).__name__} that nobody awaits: a listener that"
            " awaits must be a coroutine function"
        )
    return None
