"""Writing the record down: at the end, after a failure, on demand.

Owns: the two files in the member's folder, `flight.jsonl` and the one before it, and how long a
dump may hold the end of the process. A thread of its own writes: the disk may hang, and then the
process ends without the record. Nothing is synced: the file outlives the process, not a power cut.
A process that never served writes nothing: restarts that fail would push out what explains them.
"""

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from dledger.clock import Clock
from dledger.files import FILE_MODE, FOLDER_MODE
from dledger_broker.flight.record_file import encode_record
from dledger_broker.flight.recorder import FlightRecorder

RECORD_FILE: Final = "flight.jsonl"
PREVIOUS_FILE: Final = "flight.previous.jsonl"
DUMP_SECONDS_MAX: Final = 2.0
"""How long the end of a process waits for its record."""


class FlightDump:
    """The record of one process, and its files."""

    def __init__(
        self, recorder: FlightRecorder, clock: Clock, folder: Path, about: Mapping[str, str]
    ) -> None:
        self._recorder = recorder
        self._clock = clock
        self._folder = folder
        self._about = about
        self._writing = threading.Lock()
        self.is_serving = False
        """True: the process has served, so its end is worth a record."""

    def begin(self, reason: str) -> threading.Thread:
        """Write the record down in a thread of its own."""
        thread = threading.Thread(
            target=self._write, args=(reason,), name="flight record", daemon=True
        )
        thread.start()
        return thread

    def at_end(self, reason: str) -> None:
        """Write the record down, if the process has served; wait at most DUMP_SECONDS_MAX."""
        if self.is_serving:
            self.begin(reason).join(DUMP_SECONDS_MAX)

    def _write(self, reason: str) -> None:
        about: dict[str, object] = {
            **self._about, "reason": reason, "written_ms": self._clock.wall_ms(),
            "monotonic": self._clock.monotonic(),
        }  # fmt: skip
        path = self._folder / RECORD_FILE
        beside = self._folder / f"{RECORD_FILE}.new"
        with self._writing:
            try:
                self._folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
                with open(beside, "wb", opener=_for_our_user_alone) as file:
                    file.writelines(encode_record(about, self._recorder.snapshot()))
                with suppress(FileNotFoundError):
                    path.replace(self._folder / PREVIOUS_FILE)
                beside.replace(path)
            except OSError as error:
                structlog.get_logger().warning("flight record not written", reason=str(error))
            else:
                structlog.get_logger().info("flight record written", file=str(path))


def _for_our_user_alone(path: str, flags: int) -> int:
    """Open a file that other users of the machine cannot read."""
    return os.open(path, flags, FILE_MODE)
