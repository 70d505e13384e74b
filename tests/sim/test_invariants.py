"""Each invariant complains about the one thing it is for, on hand-written facts.

Goal: a checker that never fires proves nothing. Method: facts that are fine, then one that is not.
"""

from collections.abc import Callable

import pytest

from dledger.log.hard_state import HardState
from dledger.raft.api import Role
from dledger.raft.wire.messages import AppendAnswer, VoteAnswer
from dledger.state.commands.command import Command
from dledger.state.consumers.groups import CreateConsumerGroup, DeleteConsumerGroup
from dledger.state.consumers.membership import EndSessions, Join, Session
from dledger.state.consumers.settings import ConsumeOrder, GroupSettings
from dledger.state.consumers.table import Subscribed
from dledger.state.offsets import CommitOffset
from dledger.state.progress.claims import ClaimQueues, WantedQueue
from dledger.state.progress.commits import CommitOffsets
from dledger.state.values import LayoutPart
from dledger.types import EntryRef, LogIndex, Position, Term
from tests.sim.invariants import InvariantSet
from tests.sim.invariants.agreement.committed_on_majority import CommittedOnMajority
from tests.sim.invariants.agreement.durable_before_visible import DurableBeforeVisible
from tests.sim.invariants.agreement.election_safety import ElectionSafety
from tests.sim.invariants.agreement.leader_completeness import LeaderCompleteness
from tests.sim.invariants.agreement.log_matching import LogMatching
from tests.sim.invariants.agreement.monotonic import Monotonic
from tests.sim.invariants.agreement.no_committed_truncation import NoCommittedTruncation
from tests.sim.invariants.agreement.votes_of_majority import VotesOfMajority
from tests.sim.invariants.base import Facts, MemberFacts
from tests.sim.invariants.delivery.group_history import GroupsKept, GroupUses
from tests.sim.invariants.delivery.queue_contents import Contents
from tests.sim.invariants.violation import Property, Violation
from tests.unit.state.groups_kit import SETTINGS, with_group
from tests.unit.state.kit import GROUP, TOPIC, batch


def _ref(index: int, term: int, crc: int = 0) -> EntryRef:
    return EntryRef(
        LogIndex(index), Term(term), Position(100 * index), 100, crc or 1_000 * index + term
    )


def _member(name: str, *refs: EntryRef, role: Role = Role.FOLLOWER, term: int = 1) -> MemberFacts:
    member = MemberFacts(name, boot=1, term=term, role=role)
    member.log = {int(ref.index): ref for ref in refs}
    member.last = max(member.log, default=0)
    return member


def _complains(broken: Property, action: Callable[[], None]) -> None:
    with pytest.raises(Violation) as caught:
        action()
    assert caught.value.broken is broken


def test_two_leaders_of_a_term() -> None:
    check = ElectionSafety(Facts("abc"))
    check.on_role(_member("a", role=Role.LEADER, term=3))
    check.on_role(_member("b", role=Role.LEADER, term=4))
    _complains(
        Property.ELECTION_SAFETY,
        lambda: check.on_role(_member("b", role=Role.LEADER, term=3)),
    )


def test_a_leader_that_leads_its_term_again_after_a_restart() -> None:
    check = ElectionSafety(Facts("abc"))
    first = _member("a", role=Role.LEADER, term=3)
    check.on_role(first)
    first.boot = 2
    _complains(Property.ELECTION_SAFETY, lambda: check.on_role(first))


def test_a_leader_without_the_votes_of_a_majority() -> None:
    """Two answers of one voter are one vote, and votes of another term are none."""
    check = VotesOfMajority(Facts("abcde"))
    leader = _member("a", role=Role.LEADER, term=3)
    for voter, term in (("b", 3), ("b", 3), ("c", 2)):
        check.on_send(_member(voter), "a", VoteAnswer(1, Term(term), Term(term), True))
    check.on_send(_member("d"), "a", VoteAnswer(1, Term(3), Term(3), False))
    _complains(Property.VOTES_OF_MAJORITY, lambda: check.on_role(leader))
    check.on_send(_member("e"), "a", VoteAnswer(1, Term(3), Term(3), True))
    check.on_role(leader)


def test_equal_index_and_term_with_another_history() -> None:
    check = LogMatching(Facts("abc"))
    one, two = _member("a", _ref(1, 1)), _member("b", _ref(1, 1, crc=99))
    check.on_log(one, [], [_ref(1, 1)])
    _complains(Property.LOG_MATCHING, lambda: check.on_log(two, [], [_ref(1, 1, crc=99)]))


def test_a_leader_without_a_committed_entry() -> None:
    facts = Facts("abc")
    facts.committed = {1: _ref(1, 1), 2: _ref(2, 1)}
    facts.committed_by_term = {1: 2}
    check = LeaderCompleteness(facts)
    check.on_role(_member("a", _ref(1, 1), _ref(2, 1), role=Role.LEADER, term=2))
    late = _member("b", _ref(1, 1), role=Role.LEADER, term=3)
    _complains(Property.LEADER_COMPLETENESS, lambda: check.on_role(late))


def test_a_late_winner_of_an_old_term_is_no_finding() -> None:
    facts = Facts("abc")
    facts.committed = {1: _ref(1, 5)}
    facts.committed_by_term = {5: 1}
    LeaderCompleteness(facts).on_role(_member("a", role=Role.LEADER, term=4))


def test_a_commit_on_a_minority() -> None:
    facts = Facts("abc")
    check = CommittedOnMajority(facts)
    facts.holders[_ref(1, 1).crc] = {"a", "b"}
    check.on_commit(_member("a"), [_ref(1, 1)])
    facts.holders[_ref(2, 1).crc] = {"a"}
    _complains(Property.COMMITTED_ON_MAJORITY, lambda: check.on_commit(_member("a"), [_ref(2, 1)]))


def test_a_committed_entry_is_cut() -> None:
    facts = Facts("abc")
    facts.committed = {1: _ref(1, 1)}
    check = NoCommittedTruncation(facts)
    check.on_log(_member("a"), [_ref(2, 1)], [])
    _complains(
        Property.NO_COMMITTED_TRUNCATION, lambda: check.on_log(_member("a"), [_ref(1, 1)], [])
    )


def test_a_term_that_falls() -> None:
    check = Monotonic(Facts("abc"))
    check.on_role(_member("a", term=5))
    _complains(Property.MONOTONIC, lambda: check.on_role(_member("a", term=4)))


def test_an_acknowledgement_and_a_vote_that_are_not_on_disk() -> None:
    facts = Facts("abc")
    on_disk = {"a": HardState(term=Term(2), vote="b")}
    check = DurableBeforeVisible(facts, on_disk.get)
    member = _member("a", _ref(1, 1), term=2)
    answer = AppendAnswer(1, 2, 2, True, 1, 0, 0, 0)
    _complains(Property.DURABLE_BEFORE_VISIBLE, lambda: check.on_send(member, "b", answer))
    facts.on_disk[_ref(1, 1).crc] = {"a"}
    check.on_send(member, "b", answer)
    check.on_send(member, "b", VoteAnswer(1, 2, 2, True))
    _complains(
        Property.DURABLE_BEFORE_VISIBLE,
        lambda: check.on_send(member, "c", VoteAnswer(1, 2, 2, True)),
    )
    on_disk["a"] = HardState(term=Term(2), vote="c")
    _complains(Property.ONE_VOTE, lambda: check.on_send(member, "c", VoteAnswer(1, 2, 2, True)))


class _Uses:
    """One broker group, whose log is applied at the times that a test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.expired: list[str] = []
        uses = GroupUses(10.0, lambda: self.now, self.expired.append)
        self.check = GroupsKept(Facts("a"), uses)
        self.driven = with_group(SETTINGS)
        self.driven.append(batch(10))

    def run(self, now: float, command: Command[object], *, made: float | None = None) -> None:
        """Apply a command at one time, which came into the log at the same or an earlier one."""
        (result,) = self.driven.run(command)
        entry = self.driven.log.entries[-1]
        self.now = now if made is None else made
        self.check.on_log(_member("a"), [], [entry.ref])
        self.now = now
        self.check.on_apply(_member("a"), entry, [result], b"")


def _created() -> _Uses:
    uses = _Uses()
    layout = (LayoutPart(GROUP, 1),)
    settings = GroupSettings(GROUP, b"N" * 16)
    uses.run(1.0, CreateConsumerGroup(MAILS, "mails", layout, settings))
    return uses


MAILS = b"M" * 16
_CLAIM = ClaimQueues("mails", "a", (WantedQueue(TOPIC, 0, 5),))
_JOIN = Join(MAILS, "a", "", "", "", ConsumeOrder.CONCURRENT, "", (Subscribed("orders"),))


def test_a_group_expires_that_nobody_used() -> None:
    uses = _created()
    uses.run(2.0, _CLAIM)
    uses.run(12.5, DeleteConsumerGroup(MAILS))
    assert uses.expired == ["mails"]


@pytest.mark.parametrize("command", [_CLAIM, CommitOffsets("mails", (CommitOffset(TOPIC, 0, 1),))])
def test_a_group_expires_although_it_was_used(command: Command[object]) -> None:
    uses = _created()
    uses.run(5.0, command)
    _complains(Property.GROUPS_KEPT, lambda: uses.run(14.5, DeleteConsumerGroup(MAILS)))


def test_a_use_that_was_stored_while_it_was_asked_for_is_no_finding() -> None:
    """Also one that was long in the log, and committed only then."""
    uses = _created()
    uses.run(18.0, _CLAIM, made=12.0)
    uses.run(20.0, DeleteConsumerGroup(MAILS))
    assert uses.expired == ["mails"]


def test_a_group_expires_although_a_consumer_is_joined() -> None:
    uses = _created()
    uses.run(2.0, _JOIN)
    _complains(Property.GROUPS_KEPT, lambda: uses.run(40.0, DeleteConsumerGroup(MAILS)))


def test_a_group_expires_long_after_its_consumers_left() -> None:
    uses = _created()
    uses.run(2.0, _JOIN)
    joined = uses.driven.machine.queries.consumers(MAILS).consumers["a"].joined
    uses.run(20.0, EndSessions(MAILS, (Session("a", joined),)))
    uses.run(40.0, DeleteConsumerGroup(MAILS))
    assert uses.expired == ["mails"]


def test_every_invariant_is_in_the_set() -> None:
    found = {
        type(each).__name__
        for each in InvariantSet("abc", Contents(), lambda name: None, list, lambda: 0).all
    }
    assert len(found) == 17
