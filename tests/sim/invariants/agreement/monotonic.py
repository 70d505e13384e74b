"""Term and commit index never go back in one process.

Source: Raft figure 2, KRaft's monotonic high watermark.

Not stronger: a term that was not told to anybody may be lost in a crash; what was told is covered
by `durable_before_visible`.
"""

from collections.abc import Sequence

from dledger.types import EntryRef
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.violation import Property


class Monotonic(Invariant):
    """Remembers the highest of each, per process."""

    broken = Property.MONOTONIC

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._terms: dict[tuple[str, int], int] = {}
        self._commits: dict[tuple[str, int], int] = {}

    def on_role(self, member: MemberFacts) -> None:
        """See `Invariant.on_role`."""
        self._check(self._terms, member, "term", member.term)

    def on_commit(self, member: MemberFacts, new: Sequence[EntryRef]) -> None:
        """See `Invariant.on_commit`."""
        self._check(self._commits, member, "commit index", member.commit)

    def _check(
        self, highest: dict[tuple[str, int], int], member: MemberFacts, what: str, now: int
    ) -> None:
        key = member.name, member.boot
        before = highest.get(key, 0)
        if now < before:
            self.fail(f"{member.name}: {what} {before} falls to {now}")
        highest[key] = now
