"""A duty: the leader counts the time in which it led, and forgets producers that were silent.

Owns the duty's period and its clock, which is the leader's monotonic one (D11). Pure. Not owned:
what is counted, and which producers are forgotten (`dledger.state.producers.table`).
"""

from typing import Final

from dledger.state.counted_time import COUNTED_AT_ONCE_MAX_MS
from dledger.state.producers.expiry import ExpireProducers
from dledger.state.results import ProducersExpired
from dledger_broker.group.duty import Duty, Look

CHECKS_PER_EXPIRY: Final = 8
"""Proposals within the time after which a producer expires; more, when that time is long."""


class ProducerExpiry(Duty):
    """Invariant: no moment is counted twice, and no moment of another member's reign."""

    name = "expire producers"

    def __init__(self, expiry_ms: int) -> None:
        super().__init__(min(expiry_ms / CHECKS_PER_EXPIRY, COUNTED_AT_ONCE_MAX_MS) / 1_000)
        self._expiry_ms = expiry_ms
        self._term: int | None = None
        self._since = 0.0

    def due(self, look: Look) -> ExpireProducers | None:
        """See `Duty.due`. A proposal that is refused or unknown is not repeated: it may count."""
        leads_term, now = look.leads_term, look.now
        if leads_term is None or leads_term != self._term:
            self._term, self._since = leads_term, now
            return None
        elapsed = now - self._since
        if elapsed < self.period:
            return None
        self._since = now
        return ExpireProducers(int(elapsed * 1_000), self._expiry_ms)

    def rest(self, result: object) -> ExpireProducers | None:
        """See `Duty.rest`. No further time is counted."""
        assert isinstance(result, ProducersExpired), result
        return ExpireProducers(0, self._expiry_ms) if result.more else None

    def count(self, result: object) -> int:
        """See `Duty.count`: producers."""
        assert isinstance(result, ProducersExpired), result
        return result.count
