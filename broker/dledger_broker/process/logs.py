"""Log lines of a member: as its configuration wants them, and never a flood.

Owns which lines are left out. Not owned: how a line looks (`dledger_namesrv.logs`). Callers use
`structlog.get_logger()` and bind group, member and term themselves.
"""

from collections.abc import Hashable
from typing import Final, TextIO

from structlog.typing import EventDict, Processor

from dledger.clock import Clock
from dledger_broker.config.sections import LogConfig, LogFormat
from dledger_broker.process.platform import Note
from dledger_namesrv import logs

QUIET_SECONDS: Final = 10.0
"""A line that any stranger can cause is logged at most once in this time."""
NOTED: Final = "noted"
"""What a line carries, and never shows, that the flight recorder has already."""
_NO_FIELDS: Final = {"event", "group", "exc_info"}


class Quiet:
    """Lets one line of a kind through in each period, and counts the lines that it leaves out."""

    def __init__(self, clock: Clock, seconds: float = QUIET_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._next: dict[Hashable, float] = {}
        self._left_out: dict[Hashable, int] = {}

    def admit(self, kind: Hashable) -> int | None:
        """Return how many lines of a kind were left out since the last one; None: leave this out.

        A kind is a constant of our code: values from the network would make the table grow.
        """
        now = self._clock.monotonic()
        if now < self._next.get(kind, now):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return None
        self._next[kind] = now + self._seconds
        return self._left_out.pop(kind, 0)


def set_up_logs(
    config: LogConfig, *, stream: TextIO | None = None, note: Note | None = None, **bound: str
) -> None:
    """Send all log lines of this process to `stream` (standard error); `bound` goes on each.

    `note` gets each line that is no event of a group, which is noted where it happens.
    """
    json = config.format is LogFormat.JSON
    tap = None if note is None else _noting(note)
    logs.set_up_logs(json=json, level=config.level.value, stream=stream, tap=tap, **bound)


def _noting(note: Note) -> Processor:
    def tap(_logger: object, level: str, line: EventDict) -> EventDict:
        if not line.pop(NOTED, False):
            fields = {key: value for key, value in line.items() if key not in _NO_FIELDS}
            note(str(line.get("group", "")), str(line["event"]), {**fields, "level": level})
        return line

    return tap
