"""One timer of the event loop that follows a moving deadline.

Owns: when the timer is set anew. Setting a timer with each message costs more than letting it fire
a little early, so a timer that fires close enough before the deadline is left alone.
"""

import asyncio
from collections.abc import Callable
from typing import Final

DEADLINE_MIN_SECONDS: Final = 0.001
"""The timer is never set to less: a deadline in the past must not spin the loop."""
DEADLINE_EARLY_SECONDS: Final = 0.05
"""A timer that fires at most so long before the deadline is left alone."""
DEADLINE_SLACK_SECONDS: Final = 0.002
"""A deadline may be met so late. A timer that fires by then is left, and no deadline computed."""


class DeadlineTimer:
    """Calls `fire` at the deadline, or up to `DEADLINE_EARLY_SECONDS` before it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> None:
        self._loop = loop
        self._fire = fire
        self._handle: asyncio.TimerHandle | None = None
        self.at = 0.0
        """When the timer fires, or fired last."""

    def fires_by(self, time: float) -> bool:
        """Tell whether the timer is set to `time` or earlier, also when it is overdue."""
        return self._handle is not None and self.at <= time

    def set(self, deadline: float, now: float) -> None:
        """Fire at `deadline`, unless the timer is set close enough before it."""
        if self._handle is not None:
            if deadline - DEADLINE_EARLY_SECONDS < self.at <= deadline:
                return
            self._handle.cancel()
        self.at = max(deadline, now + DEADLINE_MIN_SECONDS)
        self._handle = self._loop.call_later(self.at - now, self._fired)

    def cancel(self) -> None:
        """Never fire again."""
        if self._handle is not None:
            self._handle.cancel()

    def _fired(self) -> None:
        self._handle = None
        self._fire()
