"""Whether this member's wall clock agrees with the majority's (D8). Pure.

Owns: the offset, and when it is too large. The leader collects clocks from answers and tells the
median with each append message (`replication.py`); elections only use the verdict.
"""

from typing import Final

from dledger.clock import Clock

CLOCK_OFFSET_MAX_MS: Final = 1_000
"""Beyond it a member says so and does not campaign while another can."""


class ClockWatch:
    """The newest comparison."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.offset_ms = 0
        """This member's clock minus the majority's median; the way of the message counts in."""

    @property
    def is_off(self) -> bool:
        """The offset is above its limit."""
        return abs(self.offset_ms) > CLOCK_OFFSET_MAX_MS

    def leader_says(self, median_ms: int) -> None:
        """Compare with the median that the leader found."""
        self.offset_ms = self._clock.wall_ms() - median_ms
