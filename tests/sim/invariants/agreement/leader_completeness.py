"""I3, leader completeness: an entry committed in a term is in the log of every later term's leader.

Source: Raft 5.4, TLA+ LeaderCompleteness.

Not stronger: votes may arrive late, so a member may become leader of term 5 while term 6 has
committed already. Only commits by leaders of *lower* terms bind, as in the paper.
"""

from dledger.raft.api import Role
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.violation import Property


class LeaderCompleteness(Invariant):
    """Checked the moment a member becomes leader."""

    broken = Property.LEADER_COMPLETENESS

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._checked: set[int] = set()

    def on_role(self, member: MemberFacts) -> None:
        """See `Invariant.on_role`."""
        if member.role is not Role.LEADER or member.term in self._checked:
            return
        self._checked.add(member.term)
        by_term = self.facts.committed_by_term
        bound = max((index for term, index in by_term.items() if term < member.term), default=0)
        if bound == 0:
            return
        expected = self.facts.committed[bound]
        held = member.log.get(bound)
        if held != expected:  # equal chain CRC: everything before is equal, too
            self.fail(f"{member.name} leads term {member.term} with {held}, committed {expected}")
