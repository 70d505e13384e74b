"""How many lines on what others do the ends of links log: each reason once, and one a minute.

Pure. Strangers can make up reasons without end. They get neither a log without end nor the last
word: after a while there is room for the next line.
"""

from typing import Final

LINES_MAX: Final = 20
"""So many lines at once, and so many reasons are kept in mind."""
LINE_SECONDS: Final = 60.0
"""Then one more line in so many seconds."""


class LineBudget:
    """Lines that may still be written. Time is an argument, in seconds."""

    def __init__(self) -> None:
        self._left = float(LINES_MAX)
        self._seen_at = 0.0
        self._said: dict[str, None] = {}
        """What was said of late, the oldest first."""

    def may_say(self, what: str, now: float) -> bool:
        """Tell whether to write a line on `what`, and count it."""
        if what in self._said:
            return False
        self._left = min(LINES_MAX, self._left + (now - self._seen_at) / LINE_SECONDS)
        self._seen_at = now
        if self._left < 1:
            return False
        self._left -= 1
        self._said[what] = None
        if len(self._said) > LINES_MAX:
            del self._said[next(iter(self._said))]
        return True
