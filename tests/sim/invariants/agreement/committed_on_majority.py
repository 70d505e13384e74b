"""I6: an entry is on the disks of a majority when it is first seen committed.

Source: Raft 5.3 and D4; openraft's `committed_on_quorum`. The disks are read past every cache, so a
member that says "durable" before its sync, or a leader that counts itself too early, is caught.

Stronger than "acknowledged": every client acknowledgement follows a commit. Not stronger: a disk
that was wiped after its true acknowledgement left still counts (see `Facts.holders`). The genesis
entry is not voted on: it is the same wherever it is written, so each member holds it for committed.
"""

from collections.abc import Sequence

from dledger.types import EntryRef
from tests.sim.invariants.base import Invariant, MemberFacts
from tests.sim.invariants.violation import Property


class CommittedOnMajority(Invariant):
    """Checked once per entry, at its first commit."""

    broken = Property.COMMITTED_ON_MAJORITY

    def on_commit(self, member: MemberFacts, new: Sequence[EntryRef]) -> None:
        """See `Invariant.on_commit`."""
        for ref in new:
            if ref.index == 1:
                continue
            holders = self.facts.holders.get(ref.crc, set())
            if len(holders) < self.facts.majority:
                self.fail(
                    f"{member.name} ({member.role.value}, term {member.term}) commits {ref}, "
                    f"on the disks of {sorted(holders)} only"
                )
