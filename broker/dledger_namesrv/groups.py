"""One broker group as its members describe it: its members, its leader, its term. Pure.

Every process that can reach a name server can register. So the name server believes no single
member. What members tell counts while their leases last, by these rules:

- *Which members belong to the group.* Each member tells the list of members in its configuration.
  The list that most of its own members tell counts. Of two lists that as many members tell, the
  list that counted before still counts. A process that is not on the list is no member: it is not
  in the routes, and what it tells does not count.
- *A new term.* Members claim "in term t, l leads". A leader can claim this only when a majority of
  its group has the term on disk, and the voters report their new term as fast as the leader does.
  A member is heard while its stream is open. A claim of a higher term counts as soon as more than
  half of the members that are heard tell of this term or a later one. Until then the older claim
  counts.
- *The same term.* A claim of a lower term never replaces a claim of a higher term (D14). The name
  server clears the leader, and keeps the term, when the leader tells that it does not lead any
  more, or when the leader's registration ends. A living member that still names the leader brings
  the leader back: the name server may be the only process that does not hear the leader. A leader
  that resigned is brought back by itself alone.
- *The end of a term.* The name server forgets a term when no listed member told of it. It also
  forgets the term when the disks of a group were wiped and the group formed anew at term 1. The
  name server recognises this without a guess, because terms never go down on a disk: a majority of
  the configured members are below the term on streams opened *after* the term was told
  (`BrokerGroup.reborn`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dledger_proto.v1.routes_pb2 import GroupRoute, MemberClaim, MemberRoute

Session = int
"""A registration stream; later streams have higher numbers."""


@dataclass(slots=True)
class Member:
    """A member that registered, and what it tells."""

    name: str
    address: str
    peer_address: str
    lease_end: float
    session: Session | None
    term: int = 0
    leader: str = ""
    """The leader in `term`, as the member tells; empty: the member knows of no leader."""
    configured: Sequence[str] = ()
    control_group: bool = False

    @property
    def alive(self) -> bool:
        """True while its stream is open; afterwards it stays listed until its lease ends (S8)."""
        return self.session is not None


@dataclass(slots=True)
class BrokerGroup:
    """A group of members that replicate one log."""

    name: str
    leader: str = ""
    term: int = 0
    configured: Sequence[str] = ()
    """The members, by the list that counts; empty: no member told a list yet."""
    control_group: bool = False
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    """Every process that is listed, also one that does not belong to the group."""
    resigned: bool = False
    """True: the leader of `term` told that it does not lead any more."""
    term_told_at: Session = 0
    """The newest stream at the time when `term` was first told."""

    def count(self) -> bool:
        """Count the told lists and roles again; True when members or role of the group changed."""
        before = self.configured, self.control_group
        told = Counter(
            member.configured
            for member in self.members.values()
            if member.name in member.configured
        )
        most = max(told.values(), default=0)
        if told[self.configured] < most:
            self.configured = next(each for each, count in told.items() if count == most)
        said = [member.control_group for member in self.members.values() if self.has(member.name)]
        if said:
            self.control_group = 2 * sum(said) > len(said)
        return before != (self.configured, self.control_group)

    def has(self, name: str) -> bool:
        """Tell whether a member belongs to the group."""
        return not self.configured or name in self.configured

    def take_claim(self, name: str, newest_session: Session) -> bool:
        """Judge what a listed member told just now; True when leader or term changed."""
        before = self.leader, self.term
        claim = self.members[name]
        if self.weigh(newest_session) or not self.has(name):
            pass
        elif claim.leader:
            if claim.term == self.term and self.has(claim.leader):
                if name == claim.leader:
                    self.leader, self.resigned = claim.leader, False
                elif not self.leader and not self.resigned:
                    self.leader = claim.leader
        elif claim.term >= self.term and (name == self.leader or not self._is_alive(self.leader)):
            # The leader stepped down; or the leader is not heard and a member tells of no leader.
            # While the leader is heard, members that tell of no leader hold an election that may
            # fail. The term stays: only a leader's term is known to be durable on a majority.
            self.resigned = self.resigned or name == self.leader
            self.leader = ""
        return before != (self.leader, self.term)

    def weigh(self, newest_session: Session) -> bool:
        """Forget a term that no member tells of any more, and take a newer one that counts."""
        before = self.leader, self.term
        if self.term and all(member.term < self.term for member in self._belonging()):
            self.forget_history()
        claims = [
            member
            for member in self._heard()
            if member.leader
            and member.term > self.term
            and self.has(member.leader)
            and self._is_agreed(member.term)
        ]
        if claims:
            newest = max(claims, key=lambda member: (member.term, member.leader == member.name))
            self._set_term(newest.term, newest_session)
            self.leader = newest.leader
        return before != (self.leader, self.term)

    def reborn(self) -> bool:
        """Tell whether a majority that was heard since the term was told is below that term."""
        below = sum(
            1
            for member in self._heard()
            if member.session is not None
            and member.session > self.term_told_at
            and member.term < self.term
        )
        return below > len(self.configured) // 2

    def forget_history(self) -> None:
        """Forget leader and term: the group was formed anew."""
        self.leader = ""
        self._set_term(0, 0)

    def member_silent(self, member: str) -> None:
        """Clear the leader when the leader's registration ended."""
        if self.leader == member:
            self.leader = ""

    def route(self) -> GroupRoute:
        """Return the group as clients see it, members in order of their ids."""
        return GroupRoute(
            group=self.name,
            leader=self.leader,
            term=self.term,
            control_group=self.control_group,
            members=[
                MemberRoute(
                    member=member.name,
                    address=member.address,
                    alive=member.alive,
                    peer_address=member.peer_address,
                )
                for member in sorted(self._belonging(), key=lambda member: member.name)
            ],
        )

    def claims(self) -> Iterator[MemberClaim]:
        """Yield what each listed process tells, and why that does not count, in order of names."""
        for name in sorted(self.members):
            member = self.members[name]
            yield MemberClaim(
                member=name,
                address=member.address,
                term=member.term,
                leader=member.leader,
                ignored=self._ignored(member),
            )

    def _ignored(self, member: Member) -> str:
        if not self.has(member.name):
            return "most members do not name it in their configuration"
        if not member.alive:
            return "its stream is closed"
        if member.leader and not self.has(member.leader):
            return "most members do not name that leader in their configuration"
        if member.leader and member.term > self.term:
            return "most members that are heard tell of earlier terms"
        if member.leader and member.term < self.term:
            return "others tell of a later term"
        return ""

    def _belonging(self) -> list[Member]:
        return [member for member in self.members.values() if self.has(member.name)]

    def _heard(self) -> list[Member]:
        return [member for member in self._belonging() if member.alive]

    def _is_agreed(self, term: int) -> bool:
        """Tell whether more than half of the members that are heard are in this term or later."""
        heard = self._heard()
        return 2 * sum(member.term >= term for member in heard) > len(heard)

    def _is_alive(self, name: str) -> bool:
        member = self.members.get(name)
        return member is not None and member.alive

    def _set_term(self, term: int, newest_session: Session) -> None:
        self.term, self.term_told_at, self.resigned = term, newest_session, False
