"""When a leader counts the time in which it led, and asks to forget producers that were silent.

Owns: that duty's period and its clock, which is the leader's monotonic one (D11). Pure: the caller
proposes what it gives. Not owned: what is counted and who is forgotten
(`dledger.state.producers.table`).
"""

from typing import Final

from dledger.state.commands.codec import ExpireProducers
from dledger.state.counted_time import COUNTED_AT_ONCE_MAX_MS

CHECKS_PER_EXPIRY: Final = 8
"""Proposals within the time after which a producer expires; more, when that time is long."""


class ProducerExpiry:
    """The duty of one member. Invariant: no moment is told twice, and none of another's reign."""

    def __init__(self, expiry_ms: int) -> None:
        self._expiry_ms = expiry_ms
        self.period = min(expiry_ms / CHECKS_PER_EXPIRY, COUNTED_AT_ONCE_MAX_MS) / 1_000
        """Seconds from one proposal to the next."""
        self._term: int | None = None
        self._since = 0.0

    def due(self, leads_term: int | None, now: float) -> ExpireProducers | None:
        """Return what to propose; `leads_term` is None while this member does not lead.

        `now` is monotonic seconds. What is refused or unknown is not told again: it may count.
        """
        if leads_term is None or leads_term != self._term:
            self._term, self._since = leads_term, now
            return None
        elapsed = now - self._since
        if elapsed < self.period:
            return None
        self._since = now
        return ExpireProducers(int(elapsed * 1_000), self._expiry_ms)

    def rest(self) -> ExpireProducers:
        """Return what to propose when there are more to forget: no further time is counted."""
        return ExpireProducers(0, self._expiry_ms)
