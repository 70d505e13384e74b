"""The follower's half alone: which runs of entries are taken, and what an answer waits for."""

from dataclasses import replace

import pytest

from dledger.log.errors import DamagedFile
from dledger.raft.commit.applying import check_state
from dledger.raft.replication.follower import parse_run
from dledger.raft.wire.messages import AppendAnswer, AppendRequest
from dledger.types import LogIndex
from dledger_proto.entry import CorruptEntry
from tests.unit.raft.harness import Member, World


@pytest.fixture
def leader() -> Member:
    world = World("a")
    member = world.elect("a")
    for number in range(5):
        member.put(b"%d" % number)
    world.run(0.1)
    return member


def run_of(leader: Member, first: int, last: int) -> AppendRequest:
    """Return what the leader would send of its entries."""
    parts: list[bytes] = []
    for index in range(first, last + 1):
        buffers = leader.log.payload(LogIndex(index), 1).buffers
        assert buffers is not None
        parts.append(b"".join(buffers))
    prev = leader.log.ref(LogIndex(first - 1))
    term = leader.log.ref(LogIndex(last)).term
    frames = memoryview(b"".join(parts))
    return AppendRequest(1, term, prev.index, prev.term, 0, 0, 0, frames=frames)


def test_a_run_follows_its_prev_without_gaps(leader: Member) -> None:
    message = run_of(leader, 3, 5)
    run = parse_run(message)
    assert (run.first, run.last) == (3, 5)
    for prev in (1, 3):
        with pytest.raises(CorruptEntry, match="follows"):
            parse_run(replace(message, prev_index=prev))


def test_terms_of_a_run_grow_and_end_at_the_leaders(leader: Member) -> None:
    message = run_of(leader, 3, 5)
    term = message.term
    assert parse_run(replace(message, prev_term=term)).last_term == term
    assert parse_run(replace(message, term=term + 1)).last_term == term
    with pytest.raises(CorruptEntry, match="follows"):
        parse_run(replace(message, prev_term=term + 1))
    with pytest.raises(CorruptEntry, match="follows"):
        parse_run(replace(message, term=term - 1))


def test_a_run_that_ends_within_an_entry_is_damaged(leader: Member) -> None:
    message = run_of(leader, 3, 5)
    frames = message.frames
    assert isinstance(frames, memoryview)
    with pytest.raises(CorruptEntry):
        parse_run(replace(message, frames=frames[:-1]))


def test_an_answer_waits_until_its_term_is_on_disk() -> None:
    """A heartbeat's, too: it says that this member follows in that term (I5)."""
    world = World()
    world.elect("a")
    world.run(0.3)
    world.hold_all()
    follower = world["b"]
    term, last = follower.group.term, follower.log.last_index
    follower.disk_stalls = True
    beat = AppendRequest(1, term + 1, last, term, last, 0, 0)
    world.inject("c", "b", beat)
    assert answers(world) == []
    follower.disk_stalls = False
    follower.drain()
    assert answers(world) == [(term + 1, last)]
    follower.disk_stalls = True
    world.inject("c", "b", replace(beat, number=2))
    assert answers(world)[1:] == [(term + 1, last)], "nothing is to be written for this one"


def answers(world: World) -> list[tuple[int, int]]:
    """Return (own term, match index) of what b has answered c."""
    return [
        (message.own_term, message.match_index)
        for message in world.waiting("b", "c")
        if isinstance(message, AppendAnswer)
    ]


@pytest.mark.parametrize(("applied", "fits"), [(3, False), (4, True), (9, True), (10, False)])
def test_a_state_fits_a_log_that_can_bring_it_up_to_date(applied: int, fits: bool) -> None:
    """From the entry before the first to the last one."""
    if fits:
        check_state("here", applied, 5, 9)
        return
    with pytest.raises(DamagedFile, match="here"):
        check_state("here", applied, 5, 9)


def test_of_a_run_only_what_is_not_held_is_appended() -> None:
    """A repeated range that begins in what the follower holds and ends beyond it."""
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    leader.put(b"both")
    world.run(0.3)
    world.cut = {("a", "b")}
    leader.put(b"only one")
    leader.put(b"only two")
    world.run(0.1)
    follower, last = world["b"], leader.log.last_index
    assert follower.log.last_index == last - 2
    run = parse_run(run_of(leader, last - 3, last))
    follower.group._context.journal.add(run, run.last, run.last_term)
    assert follower.terms() == leader.terms()
    assert follower.log.ref(last) == leader.log.ref(last)
