"""The safety findings of the audit of PySyncObj, each as the shortest script that shows it.

Goal: every repair in our own code is seen to matter. F4-F6 (snapshots), F7 (membership change), F9
(code versions), F12 (forwarding) and F18 (pickle) do not apply: those parts of the library are
never reached, which `test_engine.py` shows. F10 and F11 are the log's, see its tests.
"""

import pytest

from dledger.raft.api import Role
from dledger.raft.engine.journal import InvariantBroken
from dledger.raft.wire.messages import AppendAnswer, AppendRequest, VoteAnswer
from dledger.types import AppendPayload, EntryKind, LogIndex, MemberId, Span, Term
from dledger_proto.errors import Outcome
from tests.unit.raft.harness import Member, World


def frames_of(member: Member, first: int, last: int) -> AppendPayload:
    """Return entries of a member's log as the payload of an append message."""
    parts: list[bytes] = []
    for index in range(first, last + 1):
        payload = member.log.payload(LogIndex(index), 1)
        assert payload.buffers is not None
        parts.append(b"".join(payload.buffers))
    data = b"".join(parts)
    span = Span(member.log.ref(LogIndex(first)).position, len(data))
    term = Term(int(member.log.term_at(LogIndex(first)) or 0))
    return AppendPayload(LogIndex(first), LogIndex(last), term, len(data), [data], span)


def request(
    leader: Member, target: str, prev: int, *, last: int | None = None, commit: int
) -> AppendRequest:
    """Return an append message as `leader` would have sent it at some time."""
    number = leader.group._wiring.replication.peers[MemberId(target)].sent(None, 0)
    prev_term = leader.log.term_at(LogIndex(prev))
    assert prev_term is not None
    payload = None if last is None else frames_of(leader, prev + 1, last)
    term = leader.group.term
    return AppendRequest(number, term, prev, prev_term, commit, 0, 0, payload=payload)


def test_f1_a_heartbeat_does_not_commit_a_suffix_it_did_not_match() -> None:
    """A deposed leader holds x1..x3; the new leader's commit index is beyond, its prev before."""
    world = World()
    old = world.elect("a")
    common = old.log.last_index
    world.run(0.3)
    world.isolate("a")
    lost = old.propose(b"x1", b"x2", b"x3")
    world.until(lambda: any(member.name != "a" for member in world.leaders))
    new = next(member for member in world.leaders if member.name != "a")
    new.propose(*(b"y%d" % number for number in range(8)))
    world.run(0.5)
    commit = new.group.commit_index
    assert commit > old.log.last_index
    world.held = {(new.name, "a")}
    world.connect("a", new.name)
    world.run(0.2)
    world.deliver(new.name, "a", 1)  # hello
    world.queues[new.name, "a"].clear()
    world.inject(new.name, "a", request(new, "a", common, commit=commit))
    assert old.group.commit_index == common
    assert old.machine.values == []
    world.held.clear()
    world.heal()
    world.run(1.0)
    world.assert_equal_logs()
    assert {call.outcome for call in lost} == {Outcome.NOT_STORED}


def test_f2_a_repeated_append_does_not_cut_what_was_acknowledged() -> None:
    """A late copy of an older request arrives behind newer ones: nothing is truncated by it."""
    world = World()
    leader = world.elect("a")
    base = leader.log.last_index
    leader.propose(b"1")
    leader.propose(b"2")
    leader.propose(b"3")
    world.run(0.3)
    follower = world["b"]
    assert follower.log.last_index == base + 3
    world.inject("a", "b", request(leader, "b", base, last=base + 1, commit=base))
    world.inject("a", "b", request(leader, "b", base, commit=base))
    assert follower.log.last_index == base + 3
    assert not follower.trace.named("truncated")


def test_f2_a_real_conflict_cuts_exactly_the_conflict() -> None:
    world = World()
    old = world.elect("a")
    world.isolate("a")
    old.propose(b"x1")
    old.propose(b"x2")
    kept = old.log.last_index - 2
    world.until(lambda: any(member.name != "a" for member in world.leaders))
    world.heal()
    world.run(1.0)
    world.assert_equal_logs()
    cuts = old.trace.named("truncated")
    assert [(cut["first"], cut["last"]) for cut in cuts] == [(kept + 1, kept + 2)]


def test_f3_an_acknowledgement_of_an_older_reign_is_not_counted() -> None:
    """The answer says that b holds more than it does; it answers an older term."""
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    leader = world.elect("b")
    leader = world.elect("a")
    world.hold_all()
    call = leader.put(b"new")
    number = leader.group._wiring.replication.peers[MemberId("b")].number
    stale = AppendAnswer(number, leader.group.term - 1, leader.group.term, True, 0, 0, 0, 0)
    stale.match_index = leader.log.last_index
    world.inject("b", "a", stale)
    assert leader.group.commit_index < leader.log.last_index
    assert call.outcome is None


def test_f3_an_answer_to_a_request_that_was_never_made_is_not_counted() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    world.hold_all()
    leader.put(b"new")
    answer = AppendAnswer(10**9, leader.group.term, leader.group.term, True, 0, 0, 0, 0)
    answer.match_index = leader.log.last_index
    world.inject("b", "a", answer)
    assert leader.group.commit_index < leader.log.last_index


def test_f8_a_repeated_vote_counts_once() -> None:
    """Five members; b's answer arrives twice, as from a retried call. Two votes are no majority."""
    world = World("abcde")
    world.elect("a")
    world.run(0.3)
    world.hold_all()
    candidate = world["c"]
    candidate.group._wiring.elections.campaign("test")
    candidate.drain()
    world.deliver("c", "b")
    answers = [each for each in world.waiting("b", "c") if isinstance(each, VoteAnswer)]
    assert [answer.granted for answer in answers] == [True]
    world.deliver("b", "c")
    world.inject("b", "c", answers[0])
    world.inject("b", "c", answers[0])
    assert candidate not in world.leaders
    assert candidate.group.status().role is Role.CANDIDATE
    world.deliver("c", "d")
    world.deliver("d", "c")
    assert candidate in world.leaders


def test_f13_a_leader_does_not_count_itself_before_its_own_sync() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    leader.disk_stalls = True
    call = leader.put(b"one")
    world["c"].disk_stalls = True
    world.run(0.2)
    assert world["b"].log.durable_index == leader.log.last_index
    assert leader.group.commit_index < leader.log.last_index, "one disk is no majority"
    assert call.outcome is None
    leader.disk_stalls = False
    world.run(0.1)
    assert call.outcome is Outcome.STORED


def test_f14_commit_after_a_restart_is_what_the_state_vouches_for() -> None:
    world = World()
    leader = world.elect("a")
    leader.propose(b"one", b"two")
    world.run(0.3)
    applied = world["b"].machine.applied_index
    for member in world.members.values():
        member.kill()
    member = world["b"]
    member.start()
    assert member.group.commit_index == applied
    member.kill()
    member.machine = type(member.machine)()  # the state is behind: its last save
    member.start()
    assert member.group.commit_index == 1
    for member in world.members.values():
        if not member.alive:
            member.start()
    world.elect()
    world.run(1.0)
    world.assert_equal_logs()


def test_f15_a_conflict_below_the_commit_index_stops_the_member() -> None:
    """Only a bug can ask for it; it must not be obeyed."""
    world = World()
    leader = world.elect("a")
    base = leader.log.last_index
    call = leader.put(b"one")
    world.run(0.3)
    assert call.outcome is Outcome.STORED
    follower = world["b"]
    world.hold_all()
    other = World(seed=2)
    impostor = other.elect("a")
    while impostor.log.last_index < base + 1:
        impostor.put(b"evil")
    forged = request(leader, "b", base, last=base + 1, commit=base)
    forged.term += 5
    assert forged.payload is not None
    from dledger_proto.entry import frame_entry

    header, _ = frame_entry(
        EntryKind.COMMANDS, [b"evil"], index=base + 1, term=int(forged.term), time_ms=0,
        position=leader.log.ref(LogIndex(base + 1)).position,
        previous_crc=leader.log.ref(LogIndex(base)).crc,
    )  # fmt: skip
    forged = AppendRequest(
        forged.number, forged.term, base, forged.prev_term, base, 0, 0,
        payload=AppendPayload(
            LogIndex(base + 1), LogIndex(base + 1), Term(int(forged.term)), len(header) + 4,
            [header, b"evil"], forged.payload.span,
        ),
    )  # fmt: skip
    with pytest.raises(InvariantBroken, match="committed"):
        world.inject("a", "b", forged)
    assert follower.role is Role.STOPPED
    assert follower.log.term_at(LogIndex(base + 1)) == leader.group.term


def test_i1_a_second_leader_of_the_same_term_stops_the_member() -> None:
    """Only a bug, or a vote that was forgotten, can bring it about."""
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    forged = request(leader, "b", int(leader.log.last_index), commit=1)
    with pytest.raises(InvariantBroken, match="both lead term"):
        world.inject("b", "a", forged)
    assert leader.group.status().role is Role.STOPPED


def test_f16_a_leader_that_was_cut_off_confirms_no_read() -> None:
    world = World()
    old = world.elect("a")
    world.run(0.3)
    world.partition("a", "bc")
    answers: list[tuple[LogIndex | None, str]] = []
    old.group.read_barrier(lambda index, why: answers.append((index, why)), world.now)
    old.drain()
    world.until(lambda: any(member.name != "a" for member in world.leaders))
    new = next(member for member in world.leaders if member.name != "a")
    call = new.put(b"newer")
    world.run(0.2)
    assert call.outcome is Outcome.STORED
    assert answers == []
    world.run(3.0)
    assert [index for index, _ in answers] == [None]


def test_f17_an_entry_that_cannot_be_applied_stops_the_member() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    world["b"].machine.poison = b"newer format"
    leader.put(b"newer format")
    with pytest.raises(RuntimeError):
        world.run(0.3)
    assert world["b"].role is Role.STOPPED
    world["b"].kill()
    call = leader.put(b"next")
    world.run(0.3)
    assert call.outcome is Outcome.STORED


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_vote_is_remembered_by_a_restarted_member(power_cut: bool) -> None:
    """I5: the answer left after the sync, so the next candidate of that term is refused."""
    world = World()
    world.elect("a")
    world.run(0.3)
    world.hold_all()
    candidate = world["c"]
    candidate.group._wiring.elections.campaign("test")
    candidate.drain()
    term = candidate.group.term
    world.deliver("c", "b")
    assert any(isinstance(each, VoteAnswer) for each in world.waiting("b", "c"))
    voter = world["b"]
    voter.kill(power_cut=power_cut)
    voter.start()
    assert voter.group._context.journal.term == term
    assert voter.group._context.journal.vote == "c"


def test_i5_a_vote_does_not_leave_before_it_is_on_disk() -> None:
    world = World()
    world.elect("a")
    world.run(0.3)
    world.hold_all()
    candidate, voter = world["c"], world["b"]
    candidate.disk_stalls = voter.disk_stalls = True
    candidate.group._wiring.elections.campaign("test")
    candidate.drain()
    assert world.waiting("c", "b") == [], "its own vote is not on disk"
    candidate.disk_stalls = False
    candidate.drain()
    world.deliver("c", "b")
    assert not [each for each in world.waiting("b", "c") if isinstance(each, VoteAnswer)]
    voter.disk_stalls = False
    voter.drain()
    assert [each for each in world.waiting("b", "c") if isinstance(each, VoteAnswer)]


def test_i6_an_acknowledgement_does_not_leave_before_the_entry_is_on_disk() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    world["b"].disk_stalls = world["c"].disk_stalls = True
    call = leader.put(b"one")
    world.run(0.25)
    assert leader.group.status().peers[0].match_index < leader.log.last_index
    assert call.outcome is None
    assert leader.role is Role.LEADER, "heartbeats are answered while the sync is in flight"
    world["b"].disk_stalls = False
    world.run(0.1)
    assert call.outcome is Outcome.STORED
