"""D8: while most clocks are right, so is the group's time, whoever leads.

Stronger than that stamps never go back: whatever a minority of clocks does, no entry is stamped
ahead of true time; no hold ends before its time in true time; no producer is forgotten early,
whatever all the clocks do. While all clocks are right time does not stand still either.

Not stronger: once a majority of the clocks was wrong, stamps may be, and never go back.
"""

from collections.abc import Callable, Sequence
from typing import Final

from dledger.raft.leadership.clocks import CLOCK_OFFSET_MAX_MS
from dledger.state.results import ProducersExpired
from dledger.types import Entry, EntryRef
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.violation import Property, Violation
from tests.sim.world.clock import RIGHT_MS, MemberClock

AHEAD_MAX_MS: Final = RIGHT_MS + CLOCK_OFFSET_MAX_MS + 10
"""A stamp is at most so far ahead of true time: a right clock is off by RIGHT_MS at most."""
BEHIND_MAX_MS: Final = 10_000
"""A stamp is at most so far behind true time: a leader's message may be late by that much."""


class RightStamps(Invariant):
    """Looks at every entry as its leader stamps it."""

    broken = Property.STAMPS

    def __init__(
        self, facts: Facts, clocks: Callable[[], Sequence[MemberClock]], true_ms: Callable[[], int]
    ) -> None:
        super().__init__(facts)
        self._clocks = clocks
        self.true_ms = true_ms
        """Returns the true time."""
        self.majority_was_wrong = False
        self.any_was_wrong = False
        self._newest = 0
        self._stamps: set[int] = set()

    def look(self) -> None:
        """Note which clocks are right; called before and after each change of one."""
        wrong = sum(not clock.is_right for clock in self._clocks())
        self.any_was_wrong |= wrong > 0
        self.majority_was_wrong |= wrong > (len(self.facts.names) - 1) // 2

    def on_log(
        self, member: MemberFacts, removed: Sequence[EntryRef], added: Sequence[EntryRef]
    ) -> None:
        """See `Invariant.on_log`."""
        self.look()  # clocks drift meanwhile

    def on_stamp(self, member: MemberFacts, stamp_ms: int) -> None:
        """See `Invariant.on_stamp`."""
        true_ms = self.true_ms()
        ahead_ms = stamp_ms - true_ms
        if not self.majority_was_wrong and stamp_ms > self._newest and ahead_ms > AHEAD_MAX_MS:
            self.fail(f"{member.name} stamps {ahead_ms} ms ahead, most clocks are right")
        stands_still = stamp_ms in self._stamps or not stamp_ms  # as for who knows no time yet
        if not (self.any_was_wrong or stands_still) and -ahead_ms > BEHIND_MAX_MS:
            self.fail(f"{member.name} stamps {-ahead_ms} ms behind, all clocks are right")
        self._stamps.add(stamp_ms)
        self._newest = max(self._newest, stamp_ms)

    def on_apply(
        self, member: MemberFacts, entry: Entry, results: Sequence[object], digest: bytes
    ) -> None:
        """See `Invariant.on_apply`."""
        for result in results:
            if isinstance(result, ProducersExpired) and result.count:
                raise Violation(Property.PRODUCERS_KEPT, f"{result} at {entry.ref}")
