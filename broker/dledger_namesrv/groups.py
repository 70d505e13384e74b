"""One group as its members describe it: leases, and who leads in which term. Pure.

Members claim "in term t, l leads". A claim of a lower term never replaces one of a higher term
(D14). The leader is cleared, keeping the term, when it says itself that it leads no more, or when
its registration ends; a living member that still claims it brings it back, because the name server
may be the only one that does not hear it. A leader that resigned is brought back only by itself.

One exception to "never": a group whose disks were wiped and that formed anew starts at term 1. It
is recognised without guessing: a term is durable on a majority before its leader can say so, and
terms never go down on a disk. So when a majority of the configured members, on streams opened
*after* the term was told, are all below it, that history is gone (`Group.reborn`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dledger_proto.v1.routes_pb2 import GroupRoute, MemberRoute

Session = int
"""A registration stream; later streams have higher numbers."""


@dataclass(slots=True)
class Member:
    """What is known of one member."""

    name: str
    address: str
    peer_address: str
    lease_end: float
    session: Session | None
    term: int = 0

    @property
    def alive(self) -> bool:
        """Its stream is open; without one it stays listed until its lease ends (S8)."""
        return self.session is not None


@dataclass(frozen=True, slots=True)
class Claim:
    """Who leads, as one member tells it. An empty leader: nobody that it knows of."""

    member: str
    term: int
    leader: str


@dataclass(slots=True)
class Group:
    """One broker group."""

    name: str
    control_group: bool = False
    leader: str = ""
    term: int = 0
    configured: Sequence[str] = ()
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    resigned: bool = False
    """The leader of `term` said itself that it leads no more."""
    term_told_at: Session = 0
    """The newest stream there was when `term` was first told."""

    def take_claim(self, claim: Claim, newest_session: Session) -> bool:
        """Take a claim of a listed member; True when leader or term changed."""
        before = self.leader, self.term
        if claim.leader:
            if claim.term > self.term:
                self._set_term(claim.term, newest_session)
                self.leader = claim.leader
            elif claim.term == self.term and claim.member == claim.leader:
                self.leader, self.resigned = claim.leader, False
            elif claim.term == self.term and not self.leader and not self.resigned:
                self.leader = claim.leader
        elif claim.term >= self.term and (
            claim.member == self.leader or not self._is_alive(self.leader)
        ):
            # It stepped down; or nobody hears the leader and a member says there is none. A claim
            # of nobody by others while the leader is heard is an election that may yet fail.
            # The term stays: only that of a leader is known to be durable on a majority.
            self.resigned = self.resigned or claim.member == self.leader
            self.leader = ""
        return before != (self.leader, self.term)

    def reborn(self) -> bool:
        """Tell whether a majority, heard since the term was told, has never been in that term."""
        below = sum(
            1
            for member in self.members.values()
            if member.session is not None
            and member.session > self.term_told_at
            and member.name in self.configured
            and member.term < self.term
        )
        return below > len(self.configured) // 2

    def forget_history(self) -> None:
        """Drop leader and term of a group that was formed anew."""
        self.leader = ""
        self._set_term(0, 0)

    def member_silent(self, member: str) -> None:
        """Clear the leader when it is the one whose registration ended."""
        if self.leader == member:
            self.leader = ""

    def route(self) -> GroupRoute:
        """Return the group as clients see it, members in order of their ids."""
        return GroupRoute(
            group=self.name,
            leader=self.leader,
            term=self.term,
            control_group=self.control_group,
            members=self._member_routes(),
        )

    def _member_routes(self) -> Iterator[MemberRoute]:
        for name in sorted(self.members):
            member = self.members[name]
            yield MemberRoute(
                member=name,
                address=member.address,
                alive=member.alive,
                peer_address=member.peer_address,
            )

    def _is_alive(self, name: str) -> bool:
        member = self.members.get(name)
        return member is not None and member.alive

    def _set_term(self, term: int, newest_session: Session) -> None:
        self.term, self.term_told_at, self.resigned = term, newest_session, False
