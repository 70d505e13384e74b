"""I2, log matching: two entries of equal index and term have equal contents and equal histories.

Source: Raft 5.3, TLA+ LogMatching. The chain CRC in each entry header covers the entry's payload
CRCs and the previous header's CRC, so one comparison per new entry compares whole prefixes.

Not stronger: logs may differ in their uncommitted suffixes; only (index, term) pairs bind.
"""

from collections.abc import Sequence

from dledger.types import EntryRef
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.violation import Property


class LogMatching(Invariant):
    """Every entry ever seen in any log, by (index, term)."""

    broken = Property.LOG_MATCHING

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._seen: dict[tuple[int, int], tuple[EntryRef, str]] = {}

    def on_log(
        self, member: MemberFacts, removed: Sequence[EntryRef], added: Sequence[EntryRef]
    ) -> None:
        """See `Invariant.on_log`."""
        previous = member.log.get(added[0].index - 1) if added else None
        for ref in added:
            first, owner = self._seen.setdefault((ref.index, ref.term), (ref, member.name))
            if first != ref:
                self.fail(f"{owner} had {first}, {member.name} has {ref}")
            if previous is not None:
                if ref.term < previous.term:
                    self.fail(f"{member.name}: term falls from {previous} to {ref}")
                if ref.position != previous.position + previous.size:
                    self.fail(f"{member.name}: position of {ref} does not follow {previous}")
            previous = ref
