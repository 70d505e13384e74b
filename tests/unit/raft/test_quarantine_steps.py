"""The steps out of a quarantine, each alone: what each needs, and what it waits for (D18).

Goal: every comparison of the way out, by a case in which it alone decides. Method: fakes around
`Quarantine`; whole groups in quarantine are in `test_quarantine.py` and tests/scenarios.
"""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import cast

from dledger.raft.api import OnBarrier
from dledger.raft.context import Context
from dledger.raft.leadership.barrier import Barriers
from dledger.raft.membership.hellos import Hooks, Membership
from dledger.raft.membership.quarantine import Quarantine
from dledger.types import LogIndex, MemberId
from tests.unit.raft.harness import hello_of

LIFE, GROUP, OTHER = b"life" * 4, b"grp." * 4, b"othr" * 4
A, B, C = MemberId("a"), MemberId("b"), MemberId("c")


@dataclass
class Alone:
    """A member in quarantine with everything around it faked; b and c have recorded its life."""

    term: int = 5
    vote: str | None = None
    asked: list[OnBarrier] = field(default_factory=list)
    ended: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        view = hello_of(b"", 1, 5, group_id=GROUP, recorded=LIFE)
        self.views = {B: view, C: view}
        self.engine = SimpleNamespace(term=self.term, commit_index=0, spend_vote=self._spend)
        self.journal = SimpleNamespace(term=self.term, vote=self.vote)
        self.durability = SimpleNamespace(
            version=3,
            durable_version=3,
            end_quarantine=lambda *, lifted: self.ended.append(lifted),
        )
        self.log = SimpleNamespace(durable_index=0)
        self.context = SimpleNamespace(
            formed=True, quarantined=True, peers=[B, C], member=A, now=10.0,
            engine=self.engine, journal=self.journal, durability=self.durability, log=self.log,
            settings=SimpleNamespace(heartbeat=0.1),
            trace=SimpleNamespace(event=lambda *_, **__: None),
        )  # fmt: skip
        self.membership = SimpleNamespace(
            incarnation=LIFE, group_id=GROUP, views=self.views, reason=""
        )
        barriers = SimpleNamespace(add=self.asked.append)
        self.quarantine = Quarantine(
            cast("Context", self.context),
            cast("Membership", self.membership),
            cast("Barriers", barriers),
        )

    def _spend(self, term: int, member: MemberId) -> None:
        self.engine.term = self.journal.term = term
        self.journal.vote = member
        self.durability.version += 1

    def advance(self) -> None:
        self.quarantine.advance(cast("Hooks", SimpleNamespace(quarantine_ended=lambda: None)))

    def sync(self) -> None:
        self.durability.durable_version = self.durability.version

    def spent(self) -> "Alone":
        """Take the steps (a) and (b)."""
        self.advance()
        self.sync()
        self.advance()
        assert len(self.asked) == 1
        return self

    def confirmed(self, index: int) -> "Alone":
        """Take the step (c) up to a barrier."""
        self.spent()
        self.asked[0](LogIndex(index), "")
        return self


def test_only_who_has_formed_and_is_in_quarantine_takes_a_step() -> None:
    for name in ("formed", "quarantined"):
        alone = Alone()
        setattr(alone.context, name, False)
        alone.advance()
        assert alone.journal.vote is None, "a vote of a member that may need it was spent"
        assert alone.membership.reason == ""


def test_the_highest_term_that_was_told_is_spent_or_the_own_one() -> None:
    for told, own, spent in ((7, 5, 7), (5, 9, 9)):
        alone = Alone(term=own)
        alone.views[C] = replace(alone.views[C], term=told)
        alone.advance()
        assert (alone.journal.term, alone.journal.vote) == (spent, A)
        assert alone.asked == [], "it is not on disk"
        alone.sync()
        alone.advance()
        assert len(alone.asked) == 1


def test_a_vote_for_itself_in_that_term_is_spent_already() -> None:
    alone = Alone(vote=A)
    alone.advance()
    assert alone.durability.version == 3, "nothing is written"
    assert len(alone.asked) == 1


def test_a_vote_for_another_in_that_term_is_written_over() -> None:
    alone = Alone(vote=B)
    alone.advance()
    assert alone.journal.vote == A
    assert alone.asked == []


def test_later_writes_of_the_hard_state_are_not_waited_for() -> None:
    alone = Alone()
    alone.advance()
    alone.sync()
    alone.durability.version += 5
    alone.advance()
    assert len(alone.asked) == 1


def test_a_version_that_was_written_back_is_not_waited_for() -> None:
    """What has changed back to what is on disk has a smaller version than it had."""
    alone = Alone()
    alone.advance()
    alone.durability.version = alone.durability.durable_version
    alone.advance()
    assert len(alone.asked) == 1


def test_who_has_written_nothing_yet_spends_its_vote_once() -> None:
    alone = Alone(vote=A)
    alone.durability.version = alone.durability.durable_version = 0
    alone.advance()
    alone.journal.vote = None
    alone.advance()
    assert alone.journal.vote is None, "it was spent, and is not spent again"


def test_both_the_own_disk_and_the_commit_index_reach_the_barrier() -> None:
    for disk, commit, held in ((11, 12, 11), (12, 11, 11), (9, 10, 9), (10, 9, 9)):
        alone = Alone().confirmed(12)
        alone.log.durable_index, alone.engine.commit_index = disk, commit
        alone.advance()
        assert alone.ended == [], (disk, commit)
        assert f"refilled to entry {held} of 12" in alone.membership.reason
    alone.log.durable_index = alone.engine.commit_index = 12
    alone.advance()
    assert alone.ended == [False]
    assert alone.membership.reason == ""


def test_a_peer_that_forgets_the_record_begins_it_all_anew() -> None:
    alone = Alone().confirmed(12)
    alone.log.durable_index = alone.engine.commit_index = 12
    known = alone.views[C]
    for view in (replace(known, recorded=OTHER), replace(known, group_id=OTHER)):
        alone.views[C] = view
        alone.advance()
        assert alone.ended == []
        assert "until c has recorded" in alone.membership.reason
    alone.views[C] = replace(known, term=9)
    alone.advance()
    assert (alone.journal.term, alone.journal.vote) == (9, A), "the term is told anew"
    alone.sync()
    alone.context.now += 1.0
    alone.advance()
    assert len(alone.asked) == 2, "and a barrier is asked for anew"
    assert alone.ended == []


def test_a_barrier_is_asked_for_once_a_heartbeat() -> None:
    alone = Alone().spent()
    alone.context.now += 5.0
    alone.advance()
    assert len(alone.asked) == 1, "one is under way"
    alone.asked[0](None, "no leader")
    alone.context.now = 10.1 - 0.001
    alone.advance()
    assert len(alone.asked) == 1, "it was asked for a moment ago"
    alone.context.now = 10.1
    alone.advance()
    assert len(alone.asked) == 2


def test_a_barrier_of_an_earlier_life_counts_for_nothing() -> None:
    alone = Alone().spent()
    alone.membership.incarnation = OTHER
    alone.asked[0](LogIndex(3), "")
    alone.membership.incarnation = LIFE
    alone.log.durable_index = alone.engine.commit_index = 12
    alone.context.now += 1.0
    alone.advance()
    assert alone.ended == []
    assert len(alone.asked) == 2


def test_an_operator_spends_every_term_that_was_heard_of() -> None:
    for told, own, spent in ((7, 5, 7), (5, 9, 9)):
        alone = Alone(term=own)
        alone.views[C] = replace(alone.views[C], term=told, recorded=OTHER)
        alone.quarantine.lift(cast("Hooks", SimpleNamespace(quarantine_ended=lambda: None)))
        assert (alone.journal.term, alone.journal.vote) == (spent, A)
        assert alone.ended == [True]
    alone = Alone()
    alone.views.clear()
    alone.quarantine.lift(cast("Hooks", SimpleNamespace(quarantine_ended=lambda: None)))
    assert alone.journal.term == 5, "nobody was heard of"
