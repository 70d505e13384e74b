"""Time as an argument: the core asks a `Clock`, never the machine (D8)."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one for elections, leases and deadlines, one for the stamps people read."""

    def monotonic(self) -> float:
        """Return seconds since some start; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since 1970; may jump."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
