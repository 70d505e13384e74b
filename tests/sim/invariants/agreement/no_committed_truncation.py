"""I7: an entry at or below the commit index is never removed from the end of a log.

Stronger than "the member's own commit index": an entry that *anybody* saw committed may not be cut
by a member that holds it, because that member was, or may have been, counted.

Not stronger: a wiped disk loses committed entries; D18 is what makes that safe.
"""

from collections.abc import Sequence

from dledger.types import EntryRef
from tests.sim.invariants.base import Invariant, MemberFacts
from tests.sim.invariants.violation import Property


class NoCommittedTruncation(Invariant):
    """Looks at every removed suffix."""

    broken = Property.NO_COMMITTED_TRUNCATION

    def on_log(
        self, member: MemberFacts, removed: Sequence[EntryRef], added: Sequence[EntryRef]
    ) -> None:
        """See `Invariant.on_log`."""
        for ref in removed:
            if ref.index <= member.commit:
                self.fail(f"{member.name} cuts {ref}, its commit index is {member.commit}")
            if self.facts.committed.get(ref.index) == ref:
                self.fail(f"{member.name} cuts {ref}, which is committed")
