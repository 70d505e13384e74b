"""The last events of a member, in memory. Pure, but for the clock.

Owns: what is kept of an event, and the bounds: so many events, so many bytes, the oldest go first.
Not: the file (`record_file.py`), when it is written (`dumping.py`). Noting an event costs some
microseconds: values become text when the record is written. Of what happens with every entry only
one event in THIN_SECONDS is kept, with the number of those that were left out; else a busy group
would push all other events out within a minute.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dledger.clock import Clock
from dledger.trace import FREQUENT

EVENTS_MAX: Final = 20_000
BYTES_MAX: Final = 4 << 20
"""Of all events in memory, about."""
TEXT_LENGTH_MAX: Final = 400
"""Of one value; a longer one is cut."""
THIN_SECONDS: Final = 1.0
EVENT_BYTES: Final = 300
"""Of an event without its texts, about."""
LEFT_OUT: Final = "left_out"
"""The field that counts the events of a kind since the one before."""

Value = int | float | str | bytes | None


class Event(NamedTuple):
    """One thing that happened."""

    wall_ms: int
    monotonic: float
    """Seconds since some moment of this machine's life: between two events no clock jumps."""
    group: str
    """Empty: the member as a whole."""
    name: str
    fields: Mapping[str, Value]
    size: int = 0
    """Bytes in memory, about."""


class Snapshot(NamedTuple):
    """What a recorder held at a moment."""

    events: Sequence[Event]
    dropped: int
    """Older events that are gone, for there was no room."""


class FlightRecorder:
    """Keeps the last events; any thread may note one."""

    def __init__(
        self, clock: Clock, *, events_max: int = EVENTS_MAX, bytes_max: int = BYTES_MAX
    ) -> None:
        self._clock = clock
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._events: deque[Event] = deque()
        self._bytes = 0
        self._dropped = 0
        self._thin: dict[tuple[str, str], tuple[float, int]] = {}
        """Of frequent kinds: when one was kept last, and how many were left out since."""
        self._lock = threading.Lock()

    def note(self, group: str, name: str, fields: Mapping[str, object]) -> None:
        """Keep an event. Never raises for a value, never blocks for long."""
        now = self._clock.monotonic()
        with self._lock:
            left_out = self._left_out(group, name, now) if name in FREQUENT else 0
            if left_out is None:
                return
            kept = {key: _value(value) for key, value in fields.items()}
            if left_out:
                kept[LEFT_OUT] = left_out
            size = EVENT_BYTES + sum(map(_size, kept.values()))
            self._events.append(Event(self._clock.wall_ms(), now, group, name, kept, size))
            self._bytes += size
            while len(self._events) > self._events_max or self._bytes > self._bytes_max:
                self._bytes -= self._events.popleft().size
                self._dropped += 1

    def _left_out(self, group: str, name: str, now: float) -> int | None:
        """Return how many of a kind were left out since the last; None: this one is, too."""
        last, count = self._thin.get((group, name), (-THIN_SECONDS, 0))
        if now - last < THIN_SECONDS:
            self._thin[group, name] = last, count + 1
            return None
        self._thin[group, name] = now, 0
        return count

    def snapshot(self) -> Snapshot:
        """Return what is kept, the oldest first."""
        with self._lock:
            return Snapshot(tuple(self._events), self._dropped)


def _value(value: object) -> Value:
    """Return what is kept of a value: it must not change, nor hold much else in memory."""
    if value is None or isinstance(value, int | float):
        return value
    kept = value if isinstance(value, str | bytes) else str(value)
    return kept[:TEXT_LENGTH_MAX]


def _size(value: Value) -> int:
    return len(value) if isinstance(value, str | bytes) else 0
