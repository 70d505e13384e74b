"""I1, seen from the voters: a majority voted for the leader, and each voter counts once.

Two leaders of one term need bad luck as well; a leader without its votes is wrong by itself.
"""

from dledger.raft.api import Role
from dledger.raft.wire.messages import Message, VoteAnswer
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.violation import Property


class VotesOfMajority(Invariant):
    """Votes as they left the voters. A leader's own vote is its campaign."""

    broken = Property.VOTES_OF_MAJORITY

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self.voters: dict[tuple[int, str], set[str]] = {}

    def on_send(self, member: MemberFacts, target: str, message: Message) -> None:
        """See `Invariant.on_send`."""
        if isinstance(message, VoteAnswer) and message.granted:
            self.voters.setdefault((int(message.term), target), {target}).add(member.name)

    def on_role(self, member: MemberFacts) -> None:
        """See `Invariant.on_role`."""
        voters = self.voters.get((member.term, member.name), {member.name})
        if member.role is Role.LEADER and len(voters) < self.facts.majority:
            self.fail(f"{member.name} leads term {member.term} with the votes of {sorted(voters)}")
