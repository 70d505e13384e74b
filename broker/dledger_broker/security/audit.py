"""Audit lines: who wanted what, from where, and the outcome.

Owns: how many lines strangers can cause. A line that there is no room for is counted, and the next
line says how many were left out. Administration that succeeds is rare, and has room of its own.
"""

from typing import Final

import structlog

from dledger.clock import Clock
from dledger_proto.errors import DledgerError

LINES_MAX: Final = 200
"""So many lines at once..."""
LINES_PER_SECOND: Final = 10.0
"""...and then so many each second."""


class _Room:
    """Room for lines; it grows with time."""

    def __init__(self, now: float) -> None:
        self._left = float(LINES_MAX)
        self._seen_at = now
        self._left_out = 0

    def take(self, now: float) -> int | None:
        """Return how many lines were left out since the last one; None: there is no room."""
        self._left = min(LINES_MAX, self._left + (now - self._seen_at) * LINES_PER_SECOND)
        self._seen_at = now
        if self._left < 1:
            self._left_out += 1
            return None
        self._left -= 1
        left_out, self._left_out = self._left_out, 0
        return left_out


class Audit:
    """The audit of one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._log = structlog.get_logger()
        self._done, self._refused = (_Room(clock.monotonic()) for _ in range(2))

    def done(self, what: str, peer: str, user: str, **fields: str) -> None:
        """Note what somebody did."""
        self._say(self._done, "info", what, address=peer, user=user, outcome="done", **fields)

    def refused(self, what: str, peer: str, user: str, error: DledgerError, **fields: str) -> None:
        """Note what somebody was refused.

        `user`: who has logged in, or whose login is refused; empty where neither is known.
        """
        self._say(
            self._refused, "warning", what, address=peer, user=user, outcome=error.code.name,
            reason=error.detail, **fields,
        )  # fmt: skip

    def _say(self, room: _Room, level: str, what: str, **fields: str) -> None:
        left_out = room.take(self._clock.monotonic())
        if left_out is not None:
            getattr(self._log, level)(f"audit: {what}", others_since=left_out, **fields)
