"""How a signal ends a run before its time.

The first SIGINT, SIGTERM or SIGHUP ends a run in order. The harness heals the faults, the workers
finish what they do, the members stop, and the history gets its end. The harness judges what it saw:
the exit code is 1 when that is enough to say "invalid", else 2, never 0. The second signal ends the
run at once. The harness kills the members and removes everything that it made on this machine. The
history stays without an end, and the exit code is 3. Later signals change nothing.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end a run: SIGHUP only where the caller does not ignore it."""
    asked = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        asked.append(signal.SIGHUP)
    return asked


class StopRequest:
    """Whether somebody asked a run to stop. Belongs to one event loop."""

    def __init__(self) -> None:
        self.signal = ""
        """The first signal that came."""
        self.at_once = False
        self._asked = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None

    def listen(self) -> None:
        """Listen to signals from now on, for the task that calls this."""
        self._task = asyncio.current_task()
        for number in ending_signals():  # SIGINT, too, where a shell made us ignore it
            asyncio.get_running_loop().add_signal_handler(number, self.hear, number.name)

    def hear(self, name: str) -> None:
        """Take in a signal."""
        if not self._asked.is_set():
            self.signal = name
            self._asked.set()
        elif not self.at_once:
            self.at_once = True
            if self._task is not None:
                self._task.cancel()

    async def unless_asked(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do some work to its end; return False when a signal stopped the work before.

        After the first signal the work cleans up before this returns. The second signal cancels
        this at once: the work ends with the loop.
        """
        doing = asyncio.ensure_future(work)
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait({doing, asked}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
                return True
            doing.cancel()
            await asyncio.wait({doing})  # it heals on its way out
            if not doing.cancelled():
                doing.result()
            return False
        finally:
            asked.cancel()
            doing.cancel()


@contextmanager
def handled(handle: Callable[[int, FrameType | None], None]) -> Generator[None]:
    """Let each of these signals call a function, for the length of a block in the main thread."""
    before = {number: signal.signal(number, handle) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interruptible() -> Generator[None]:
    """Let each of these signals raise KeyboardInterrupt, for work without an event loop."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    with handled(interrupt):
        yield
