"""I5 and D4: what a message promises is on the sender's disk the moment it leaves.

Votes and vote requests: term and vote are in the durable hard state. Append acknowledgements: the
entry at the named index, by chain CRC with all before it, was found on the disk. Terms: who leads,
acknowledges or introduces itself in a term has it on disk; refusals and notices promise nothing.

Also I1's second half: one vote per member and term, across restarts, wipes and incarnations.

Not stronger: a vote that is on disk and was never sent binds as well, but only its sender.
"""

from collections.abc import Callable

from dledger.log.hard_state import HardState
from dledger.raft.wire.messages import (
    AppendAnswer,
    AppendRequest,
    Hello,
    Message,
    VoteAnswer,
    VoteRequest,
)
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.violation import Property, Violation


class DurableBeforeVisible(Invariant):
    """Looks at every message that leaves; `hard_state` reads a member's disk past its caches."""

    broken = Property.DURABLE_BEFORE_VISIBLE

    def __init__(self, facts: Facts, hard_state: Callable[[str], HardState | None]) -> None:
        super().__init__(facts)
        self._hard_state = hard_state
        self._votes: dict[tuple[int, str], str] = {}
        self._terms_seen: dict[str, int] = {}
        """By member: a term that was found on its disk."""

    def on_send(self, member: MemberFacts, target: str, message: Message) -> None:
        """See `Invariant.on_send`."""
        if isinstance(message, AppendAnswer):
            if message.matched:
                self._acknowledged(member, message)
        elif isinstance(message, VoteAnswer):
            if message.granted:
                self._voted(member, message.term, target)
        elif isinstance(message, VoteRequest):
            self._voted(member, message.term, member.name)
        self._term_told(member, message)

    def _term_told(self, member: MemberFacts, message: Message) -> None:
        """Check that a restarted process would not say that it knows less."""
        term = _own_term(message)
        if term <= self._terms_seen.get(member.name, 0):
            return
        state = self._hard_state(member.name)
        on_disk = 0 if state is None else int(state.term)
        if on_disk < term:
            self.fail(f"{member.name} says {message}, on disk is term {on_disk}")
        # A term on disk never falls, unless the disk goes: then this is a check less, no more.
        self._terms_seen[member.name] = on_disk

    def _acknowledged(self, member: MemberFacts, message: AppendAnswer) -> None:
        index = message.match_index
        if index == 0:
            return
        ref = member.log.get(index)
        if ref is None:
            self.fail(f"{member.name} acknowledges {index}, its log has {member.last}")
        if member.name not in self.facts.on_disk.get(ref.crc, ()):
            self.fail(f"{member.name} acknowledges {ref}, which its disk does not hold")

    def _voted(self, member: MemberFacts, term: int, candidate: str) -> None:
        state = self._hard_state(member.name)
        if state is None or state.term < term:
            self.fail(f"{member.name} votes for {candidate} in {term}, on disk is {state}")
        if state.term == term and state.vote != candidate:
            self.fail(f"{member.name} votes for {candidate} in {term}, on disk is {state}")
        first = self._votes.setdefault((term, member.name), candidate)
        if first != candidate:
            raise Violation(
                Property.ONE_VOTE, f"{member.name} voted for {first} and {candidate} in {term}"
            )


def _own_term(message: Message) -> int:
    """Return the term that a message promises its sender has; 0: it promises none."""
    match message:
        case AppendAnswer():
            return message.own_term if message.matched else 0
        case AppendRequest() | VoteRequest() | Hello():
            return message.term
        case _:
            return 0
