"""Read barriers: confirmed by a majority, shared, asked by followers, bounded in time."""

from dledger.raft.api import Role
from dledger.raft.barrier import BARRIERS_MAX
from dledger.raft.message import AppendRequest, BarrierAnswer, BarrierRequest
from dledger.types import LogIndex
from tests.unit.raft.harness import Member, World

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
    b.group._parts.elections.campaign("test")
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
    number = world["b"].group._parts.barriers._number
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
    barriers = leader.group._parts.barriers
    ignored: Answers = []
    for _ in range(BARRIERS_MAX):
        barriers.add(lambda index, why: ignored.append((index, why)))
    answers = ask(leader)
    assert answers[0][0] is None
    assert str(BARRIERS_MAX) in answers[0][1]
