"""Starts a process of the product whose disk and clock the harness can trouble, or with a bug.

`python -m jepsen_tests.processes.launch PARENT [--control FILE] [--mutant NAME] MODULE
ARGUMENTS...` runs MODULE as `python -m` would, and ends with the process PARENT that started it.
The wheel does not hold this module, and the product has no switch for it. This module replaces
`os.fdatasync` and the wall clock, and for a mutant the text of one function.

The control file is one JSON object, read again when it changes (written beside and renamed):

    {"sync_seconds": 0.0, "sync_fails": false, "clock_seconds": 0.0, "clock_rate": 1.0}
"""

import ctypes
import errno
import importlib
import json
import os
import runpy
import signal
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

LOOK_SECONDS: Final = 0.02
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True)
class Control:
    """What a member's disk and clock do to it."""

    sync_seconds: float = 0.0
    sync_fails: bool = False
    clock_seconds: float = 0.0
    clock_rate: float = 1.0

    def write(self, path: Path) -> None:
        """Let the process that was started with this file follow these values."""
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(asdict(self)))
        beside.replace(path)


class Surroundings:
    """Follows a control file. Its functions replace those of the system."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = (0, 0)
        self._control = Control()
        self._fdatasync = os.fdatasync
        self._time_ns = time.time_ns
        self._shifted_since = 0

    def install(self) -> None:
        """Replace the calls of the system, and follow the file from now on."""
        self._look()
        os.fdatasync = self.fdatasync  # type: ignore[assignment]
        time.time_ns = self.time_ns
        time.time = lambda: self.time_ns() / 1e9
        threading.Thread(target=self._follow, name="surroundings", daemon=True).start()

    def fdatasync(self, file: int) -> None:
        """Sync as slowly as told, or fail."""
        control = self._control
        until = time.monotonic() + control.sync_seconds
        while (left := until - time.monotonic()) > 0 and self._control.sync_seconds:
            time.sleep(min(left, LOOK_SECONDS))
        if self._control.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._fdatasync(file)

    def time_ns(self) -> int:
        """Return the time as told."""
        now, control = self._time_ns(), self._control
        drift = (now - self._shifted_since) * (control.clock_rate - 1.0)
        return now + int(control.clock_seconds * 1e9 + drift)

    def _follow(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            self._look()

    def _look(self) -> None:
        found = self._path.stat()
        version = (found.st_ino, found.st_mtime_ns)
        if version != self._version:
            self._version = version
            self._shifted_since = self._time_ns()
            self._control = Control(**json.loads(self._path.read_text()))


def end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, however it ends (Linux)."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(0)  # the parent ended before the call above


def main(arguments: list[str]) -> None:
    """Change what the arguments ask for, then run the module."""
    end_with(int(arguments.pop(0)))
    with ExitStack() as changes:
        if arguments[0] == "--control":
            Surroundings(Path(arguments[1])).install()
            arguments = arguments[2:]
        if arguments[0] == "--mutant":
            # Shared with the simulation, and as little a part of the product as this module.
            mutants = importlib.import_module("tests.mutants.catalogue").by_name()
            applied = importlib.import_module("tests.mutants.rewrite").applied
            changes.enter_context(applied(*mutants[arguments[1]].edits))
            arguments = arguments[2:]
        sys.argv = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
