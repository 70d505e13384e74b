"""Threads in which functions of the user run.

Owns: how many there are, and that none of them keeps the process. The threads of Python's own
executors do: the interpreter waits for them at its end, also for one that hangs.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple


class _Call(NamedTuple):
    future: "Future[object]"
    function: Callable[[], object]


class DaemonThreads:
    """At most so many threads, begun when they are needed. One thread calls all but `is_here`."""

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
