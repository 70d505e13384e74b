"""I1, election safety: at most one leader is elected in a term (Raft 5.2, TLA+ ElectionSafety).

Not stronger: two members may lead at one time in *different* terms; a deposed leader does not know
it yet. What such a leader may not do is covered by leader completeness and by the read checks.
"""

from dledger.raft.api import Role
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.violation import Property


class ElectionSafety(Invariant):
    """One (member, process) per term: a restarted member may not lead its old term again."""

    broken = Property.ELECTION_SAFETY

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self.leaders: dict[int, tuple[str, int]] = {}

    def on_role(self, member: MemberFacts) -> None:
        """See `Invariant.on_role`."""
        if member.role is not Role.LEADER:
            return
        this = member.name, member.boot
        first = self.leaders.setdefault(member.term, this)
        if first != this:
            self.fail(f"{first} and {this} (member, boot) both lead term {member.term}")
