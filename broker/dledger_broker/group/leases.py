"""Which leases of ordered consumer groups are over, by this member's monotonic clock (D8, D22).

Owns: when this member applied which claims. Not: the rule (`dledger.state.progress.fence`), which
lets a claim in when the leader named the lease that is over, and the row still has this lease.

The holder of a lease counts from the moment at which it asked for it. A member counts from the
moment at which it applied it, which is later, on whatever member. So a lease that a member calls
over has ended for its holder, whoever leads, and whatever any wall clock says. A member that begins
counts what it applied earlier from its beginning.

Only claims are noted, one moment for all of a SPAN: the last. What is older than the longest lease
is not told apart. So there are at most some thousand moments, however many queues are leased.
"""

from bisect import bisect_left
from operator import itemgetter
from typing import Final

from dledger.clock import Clock
from dledger.state.consumers.settings import LEASE_MS
from dledger.state.events import Applied
from dledger.state.machine import StateMachine
from dledger.state.progress.row import Progress
from dledger.state.results import QueuesClaimed
from dledger.types import EntryKind

SPAN_SECONDS: Final = 0.25
KEPT_SECONDS: Final = LEASE_MS[1] / 1_000
"""The longest lease."""
_index_of: Final = itemgetter(0)


class Leases:
    """When this member applied claims."""

    def __init__(self, machine: StateMachine, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        """When the last span began."""
        self._moments: list[tuple[int, float]] = [(machine.applied_index, self._began)]
        """Indexes of entries, and when the last of a span was applied; both grow."""
        machine.events.subscribe(self._applied)

    def _applied(self, applied: Applied) -> None:
        entry = applied.entry
        if entry.kind is not EntryKind.COMMANDS:
            return
        if not any(isinstance(result, QueuesClaimed) for result in applied.results):
            return
        now = self._clock.monotonic()
        moments = self._moments
        if now - self._began < SPAN_SECONDS:
            moments[-1] = entry.ref.index, now
            return
        self._began = now
        moments.append((entry.ref.index, now))
        while now - moments[1][1] >= KEPT_SECONDS:
            del moments[0]

    def _age(self, index: int) -> float:
        """Return for how many seconds a claim is applied here, at least."""
        at = bisect_left(self._moments, index, key=_index_of)
        return self._clock.monotonic() - self._moments[at][1] if at < len(self._moments) else 0.0

    def left_ms(self, row: Progress) -> int:
        """Return how long the lease of a row lasts by this member's clock; 0: it is over."""
        return max(row.lease_ms - int(self._age(row.leased_at) * 1_000), 0)
