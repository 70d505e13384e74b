"""Read barriers: confirmed by a majority, shared, asked by followers, bounded in time."""

import math

import pytest

from dledger.raft.api import Role
from dledger.raft.leadership.barrier import BARRIERS_MAX
from dledger.raft.wire.messages import AppendRequest, BarrierAnswer, BarrierRequest
from dledger.types import LogIndex, MemberId
from tests.unit.raft.harness import Member, World

LIMIT = 2 * 1.2
"""Two of the longest election timeouts."""
Answers = list[tuple[LogIndex | None, str]]


def ask(member: Member) -> Answers:
    answers: Answers = []
    member.group.read_barrier(lambda index, why: answers.append((index, why)), member.world.now)
    member.drain()
    return answers


def test_a_leader_confirms_in_one_round_trip() -> None:
    world = World()
    leader = world.elect("a")
    leader.put(b"one")
    world.run(0.3)
    answers = ask(leader)
    assert answers == []
    world.pump()
    assert answers == [(leader.log.last_index, "")]


def test_a_follower_asks_its_leader() -> None:
    world = World()
    leader = world.elect("a")
    call = leader.put(b"one")
    world.pump()
    assert call.outcome is not None
    answers = ask(world["b"])
    world.pump()
    index = answers[0][0]
    assert index is not None
    assert index >= call.settled[0].index, "it covers what was acknowledged before"


def test_many_barriers_share_a_round() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    world.sent.clear()
    first = ask(leader)
    others = [ask(leader) for _ in range(500)]
    remote = [ask(world["b"]) for _ in range(500)]
    world.pump()
    assert all(answers and answers[0][0] is not None for answers in [first, *others, *remote])
    beats = [m for s, t, m in world.sent if isinstance(m, AppendRequest) and (s, t) == ("a", "c")]
    assert len(beats) <= 5
    requests = [m for _, _, m in world.sent if isinstance(m, BarrierRequest)]
    assert len(requests) <= 2


def test_a_new_leader_waits_for_its_own_first_entry() -> None:
    world = World()
    world.elect("a")
    world.run(0.3)
    world["b"].disk_stalls = world["c"].disk_stalls = False
    world.hold_all()
    b = world["b"]
    b.group._wiring.elections.campaign("test")
    b.drain()
    world.deliver("b", "c")
    world.deliver("c", "b")
    assert b.role is Role.LEADER
    answers = ask(b)
    assert answers == []
    assert b.group.commit_index < b.log.last_index
    world.held.clear()
    world.run(0.3)
    assert answers == [(b.group.commit_index, "")]


def test_without_a_majority_it_ends_in_time() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    world.partition("a", "b", "c")
    answers = ask(leader), ask(world["b"])
    world.run(2.5)
    assert [each[0][0] for each in answers] == [None, None]
    assert "in time" in answers[0][0][1]


def test_lost_requests_and_answers_are_repeated() -> None:
    world = World()
    world.elect("a")
    world.run(0.3)
    world.cut = {("b", "a")}
    answers = ask(world["b"])
    world.run(0.25)
    world.cut = {("a", "b")}
    world.run(0.15)
    world.cut.clear()
    world.run(0.3)
    assert answers[0][0] is not None


def test_answers_to_an_earlier_process_match_nothing() -> None:
    world = World()
    world.elect("a")
    world.run(0.3)
    answers = ask(world["b"])
    world.pump()
    number = world["b"].group._wiring.barriers._number
    world["b"].restart()
    world.run(0.3)
    later = ask(world["b"])
    world.held = {("b", "a")}
    world.inject("a", "b", BarrierAnswer(number, 1, 1, True))
    assert later == []
    world.held.clear()
    world.run(0.5)
    assert answers[0][0] is not None
    assert later[0][0] is not None


def test_a_change_of_leader_in_between_only_delays() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    world.hold_all()
    answers = ask(leader)
    follower = ask(world["b"])
    world.held.clear()
    world.partition("a", "bc")
    world.run(2.9, step=0.05)
    assert answers[0][0] is None
    assert follower
    world.heal()


def test_waiting_barriers_are_bounded() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    world.partition("a", "b", "c")
    ask(leader)
    barriers = leader.group._wiring.barriers
    ignored: Answers = []
    for _ in range(BARRIERS_MAX):
        barriers.add(lambda index, why: ignored.append((index, why)))
    answers = ask(leader)
    assert answers[0][0] is None
    assert str(BARRIERS_MAX) in answers[0][1]


def test_a_member_in_quarantine_is_not_counted_for_its_own_barrier() -> None:
    """Nor is it believed from then on (D18 c)."""
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    barriers = leader.group._wiring.barriers
    peers = leader.group._wiring.replication.peers
    answers: Answers = []
    far = 1 << 60
    barriers.on_request(MemberId("b"), BarrierRequest(7, quarantined=False))
    assert not peers[MemberId("b")].quarantined
    barriers.on_answer(MemberId("b"), far)
    assert answered_by(leader) == [("b", True)], "one that is whole confirms its own"
    barriers.on_request(MemberId("b"), BarrierRequest(8, quarantined=True))
    assert peers[MemberId("b")].quarantined
    barriers.add(lambda index, why: answers.append((index, why)))
    barriers.on_answer(MemberId("b"), far)
    assert answered_by(leader) == [], "its own answer confirms nothing for it"
    barriers.on_answer(MemberId("c"), far)
    barriers.on_answer(MemberId("c"), far)
    assert answered_by(leader) == [("b", True)]
    assert answers[0][0] is not None


def answered_by(member: Member) -> list[tuple[str, bool]]:
    """Return whom the member answers now, and whether it confirms."""
    return [
        (target, message.confirmed)
        for target, message in member.group.outputs().messages
        if isinstance(message, BarrierAnswer)
    ]


def test_a_refusal_confirms_nothing() -> None:
    """A leader that cannot confirm says so, with no index that a reader could take for one."""
    world = World()
    world.elect("a")
    world.run(0.3)
    world.hold_all()
    follower = world["b"]
    answers = ask(follower)
    barriers = follower.group._wiring.barriers
    barriers.on_barrier_answer(BarrierAnswer(barriers._number, 1, 0, confirmed=False))
    assert answers == []
    barriers.on_barrier_answer(BarrierAnswer(barriers._number, 1, 2, confirmed=True))
    assert answers == [(2, "")]


def test_a_round_ends_exactly_in_time() -> None:
    """The deadline is told, nothing ends before it, and the next round begins anew."""
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    world.hold_all()
    barriers = leader.group._wiring.barriers
    early = ask(leader)
    world.now += 0.01
    late = ask(leader)
    world.now += 0.01
    later = ask(leader)
    assert barriers.next_deadline() == pytest.approx(world.now - 0.02 + LIMIT)
    limit = barriers.next_deadline()
    leader.group._context.now = limit - 0.001
    barriers.tick()
    assert (early, late) == ([], [])
    leader.group._context.now = limit
    barriers.tick()
    assert early[0][0] is None
    assert late == [], "it began later"
    leader.group._context.now = limit + 0.015
    barriers.tick()
    assert late[0][0] is None
    assert later == []
    leader.group._context.now = limit + 0.03
    barriers.tick()
    assert later[0][0] is None
    assert barriers.next_deadline() == math.inf
    assert barriers._round is None, "nobody waits for a round that is over"


def test_a_follower_asks_once_a_heartbeat() -> None:
    """Exactly then, and no longer than somebody waits."""
    world = World()
    world.elect("a")
    world.run(0.3)
    world.hold_all()
    follower = world["b"]
    context, barriers = follower.group._context, follower.group._wiring.barriers
    answers = ask(follower)
    barriers.tick()
    assert requests_by(follower) == 0, "not before the next heartbeat"
    assert barriers.next_deadline() == pytest.approx(world.now + 0.1)
    context.now = barriers.next_deadline()
    barriers.tick()
    assert requests_by(follower) == 1
    context.now = world.now + LIMIT
    barriers.tick()
    assert answers[0][0] is None
    context.now += 1.0
    barriers.tick()
    assert requests_by(follower) == 0, "nobody waits any more"
    assert barriers.next_deadline() == math.inf


def requests_by(member: Member) -> int:
    """Return how many requests the member sends now."""
    messages = [message for _, message in member.group.outputs().messages]
    return sum(isinstance(message, BarrierRequest) for message in messages)
