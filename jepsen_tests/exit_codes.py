"""How a run ends before its time, and what the exit codes say.

The first SIGINT, SIGTERM or SIGHUP ends a run in order: faults are healed, workers finish what they
do, members are stopped, the history gets its end, and what was seen is judged: the exit code is 1
when it is enough to say "invalid", else 2, never 0. The second ends it at once: members are killed
and everything that was made on this machine is taken away, the history stays without an end, and
the exit code is 3. More signals change nothing: there is nothing left to hurry.
"""

import asyncio
import signal
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

EXIT_VALID, EXIT_INVALID, EXIT_UNKNOWN, EXIT_FAILED = range(4)
WORST_FIRST: Final = (EXIT_FAILED, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID)


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end a run; a lost terminal does not where it was to be ignored."""
    asked = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        asked.append(signal.SIGHUP)
    return asked


class Ending:
    """Whether somebody asked a run to end. Belongs to one event loop."""

    def __init__(self) -> None:
        self.signal = ""
        """The first signal that came."""
        self.at_once = False
        self._asked = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None

    def listen(self) -> None:
        """Hear signals from now on, for the task that calls this."""
        self._task = asyncio.current_task()
        for number in ending_signals():  # also where a shell made us ignore the first
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
        """Do some work to its end; False when it was broken off, and has cleaned up, before.

        Cancelled by the second signal this returns at once: the work ends with the loop.
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
def interruptible() -> Generator[None]:
    """Let every one of these signals raise KeyboardInterrupt; for work without an event loop."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
