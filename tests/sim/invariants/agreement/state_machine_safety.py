"""I4, state-machine safety: no two members apply different entries at one index (Raft 5.4.3).

Stronger than the paper's wording: what is applied must also be what the world saw committed, each
index once and in order within a process, and stamped no earlier than the entry before (D8).

Not stronger: a restarted process applies again what its saved state does not hold.
"""

from collections.abc import Sequence

from dledger.types import Entry
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.violation import Property, Violation


class StateMachineSafety(Invariant):
    """Every applied entry is the committed one, durable here, and the successor of the last."""

    broken = Property.STATE_MACHINE_SAFETY

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._times: dict[int, int] = {}

    def on_apply(
        self, member: MemberFacts, entry: Entry, results: Sequence[object], digest: bytes
    ) -> None:
        """See `Invariant.on_apply`."""
        index = entry.ref.index
        expected = self.facts.committed.get(index)
        if expected is None:
            self.fail(f"{member.name} applies {entry.ref}, which nobody committed")
        if expected != entry.ref:
            self.fail(f"{member.name} applies {entry.ref}, committed is {expected}")
        if index != member.applied + 1:
            self.fail(f"{member.name} applies {index} after {member.applied}")
        before = self._times.get(index - 1, entry.time_ms)
        if entry.time_ms < before:
            raise Violation(
                Property.STAMPS, f"{entry.ref} is stamped {entry.time_ms}, after {before}"
            )
        self._times[index] = entry.time_ms
        if member.name not in self.facts.on_disk.get(entry.ref.crc, ()):
            self.fail(f"{member.name} applies {entry.ref} before its disk holds it (D6)")
