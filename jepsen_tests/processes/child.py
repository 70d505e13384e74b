"""Child processes: runs of the harness, and tools. They end with the process that started them.

Each child is a process group of its own: it gets the signals of a terminal only through us.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Final

_LEASH: Final = (
    'exec 3<&0 </dev/null; "$@" 3<&- & it=$!; '
    '(cat <&3 >/dev/null; kill "$it") & exec 3<&-; wait "$it"'
)
HARNESS: Final = (sys.executable, "-m", "jepsen_tests")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: its exit code (negative: the signal that ended it), and its output."""

    code: int
    said: str


class Children:
    """Runs of the harness that end in order when a signal asks us to. Threads may call `run`.

    Each signal is passed on: the second one ends the children at once, as it would end a run.
    """

    def __init__(self) -> None:
        self.asked = 0
        """How many signals came. After the first no child starts."""
        self._running: set[subprocess.Popen[str]] = set()
        self._turn = threading.RLock()  # a handler may interrupt who holds it

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Take in a signal, and pass it on."""
        del number, frame
        with self._turn:
            self.asked += 1
            for process in self._running:
                process.send_signal(signal.SIGTERM)

    def run(self, arguments: Sequence[str], command: Sequence[str] = HARNESS) -> Ended | None:
        """Run a child to its end; None when a signal came before it began."""
        with self._turn:
            if self.asked:
                return None
            process = subprocess.Popen(
                [*command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, process_group=0,
            )  # fmt: skip
            self._running.add(process)
            if self.asked:  # it came between these lines, in this thread
                process.send_signal(signal.SIGTERM)
        try:
            said, _ = process.communicate()
        finally:
            with self._turn:
                self._running.discard(process)
        if self.asked and process.returncode == -signal.SIGTERM:
            return None  # the signal came before the child could handle it
        return Ended(process.returncode, said)


def leashed(*command: str) -> list[str]:
    """Return a command that ends another one when its standard input, a pipe of ours, ends.

    So the other command ends with us, however we end.
    """
    return ["sh", "-c", _LEASH, "leash", *command]


async def tool(*command: str, seconds: float) -> Ended:
    """Run a tool; TimeoutError when it takes longer. Breaking off kills it and all it started."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(seconds):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    assert process.returncode is not None, "communicate waits for the end"
    return Ended(process.returncode, said.decode(errors="replace"))
