"""Old copies of data folders: what shows them, and what does not (D18)."""

from random import Random

import pytest

from dledger.raft.api import Role
from dledger.raft.gate import term_on_disk
from dledger.raft.membership.formation import Promise, forgotten_by
from dledger.raft.replication.progress import Progress
from dledger.raft.wire.messages import (
    AppendAnswer,
    AppendRequest,
    Hello,
    Message,
    PreVoteAnswer,
    TermNotice,
    VoteAnswer,
    VoteRequest,
)
from dledger.types import FlushMode, MemberId
from dledger_proto.errors import Outcome
from tests.unit.raft.harness import ListMachine, World

LIFE = bytes(range(16))


def hello(term: int, *, formed: bool = True) -> Hello:
    return Hello("c", "g", "b", LIFE, 1, term, group_id=LIFE if formed else b"")


@pytest.mark.parametrize(
    ("promised", "said", "forgotten"),
    [
        (0, hello(0, formed=False), False),
        (4, hello(4), False),
        (4, hello(5), False),
        (4, hello(3), True),
        (0, hello(0), False),
        (4, hello(0, formed=False), True),
    ],
)
def test_a_life_that_says_less_than_before_has_forgotten(
    promised: int, said: Hello, forgotten: bool
) -> None:
    assert bool(forgotten_by(said, Promise(LIFE, promised))) is forgotten
    assert not forgotten_by(said, Promise(bytes(16), promised)), "another life said that"


@pytest.mark.parametrize(
    ("message", "term"),
    [
        (AppendAnswer(1, 3, 4, True, 9, 0, 0, 0), 4),
        (AppendRequest(1, 3, 8, 2, 0, 0, 0), 3),
        (VoteRequest(1, 3, 8, 2), 3),
        (VoteAnswer(1, 3, 4, True), 4),
        (VoteAnswer(1, 3, 4, False), 0),
        (PreVoteAnswer(1, 3, True), 0),
        (TermNotice(3), 0),
    ],
)
def test_only_messages_that_waited_for_the_disk_promise_a_term(message: Message, term: int) -> None:
    assert term_on_disk(message) == term


def test_a_mismatch_below_what_was_acknowledged_is_no_news_when_it_is_older() -> None:
    progress = Progress(MemberId("b"))
    progress.begin_reign(10)
    first, second, third = (progress.sent(None, 0) for _ in range(3))
    assert not progress.forgets(first, 0), "nothing is acknowledged in this reign"
    progress.matched(second, 10)
    assert not progress.forgets(first, 5), "an answer to an older request"
    assert not progress.forgets(third, 10)
    assert progress.forgets(third, 9)
    progress.forget_data()
    assert not progress.forgets(third, 9)


def test_with_async_flush_a_member_that_lost_its_tail_is_filled_again() -> None:
    """What the setting allows is no reason for a quarantine; it was never filled again before."""
    world = World(flush=FlushMode.ASYNC)
    leader, other = world.elect("a"), world["b"]
    world.run(0.3)
    for number in range(50):
        leader.put(b"value %d" % number)
        world.pump()
    before = other.log.last_index
    matched = leader.group.status().peers[0].match_index
    assert matched > 1
    other.kill(power_cut=True)
    other.machine = ListMachine()
    other.start()
    if other.log.last_index == before:
        pytest.fail("the power cut took nothing")
    world.run(2.0)
    assert other.role is Role.FOLLOWER
    assert leader.trace.named("acknowledgement_lost")
    assert not leader.trace.named("forgotten")
    assert leader.put(b"last").outcome in (None, Outcome.STORED)
    world.run(0.5)
    world.assert_equal_logs()


def test_nothing_is_called_forgotten_that_a_restart_may_lose() -> None:
    """Kills and power cuts at any time: what was not on disk was never promised."""
    random = Random(7)
    world = World(seed=7)
    for _ in range(40):
        world.run(random.uniform(0.0, 0.7))
        for leader in world.leaders:
            world[leader.name].put(b"value")
        victim = world[random.choice("abc")]
        victim.disk_stalls = random.random() < 0.3
        world.run(random.uniform(0.0, 0.1))
        victim.kill(power_cut=random.random() < 0.5)
        victim.disk_stalls = False
        if random.random() < 0.7:
            world.run(random.uniform(0.0, 0.5))
        victim.machine = ListMachine()
        victim.start()
    world.run(3.0)
    assert len(world.leaders) == 1
    world.assert_equal_logs()
    for member in world.members.values():
        assert not member.trace.named("forgotten")


def test_a_wiped_member_owes_nothing_for_its_life_before() -> None:
    world = World()
    world.elect("a")
    world.run(0.3)
    member = world["b"]
    member.kill()
    member.wipe()
    member.start()
    world.run(3.0)
    assert len(world.leaders) == 1
    for each in world.members.values():
        assert not each.trace.named("forgotten"), each.name
    world.assert_equal_logs()


def test_nor_to_a_member_that_met_that_life_before_it_had_formed_itself() -> None:
    """Found by a seed: what it had heard of the life before counted against the new one."""
    world = World()
    leader, other = world.elect("a"), world["b"]
    world.run(0.3)
    other.kill()
    other.wipe()
    other.start()
    world.hold_all()
    membership = other.group._wiring.membership
    for _ in range(40):  # until a has told of its term; its first entry is lost on the way
        world.deliver("b", "a", 1)
        world.run(0.05)
        while any(isinstance(each, Hello) and each.genesis for each in world.waiting("a", "b")[:1]):
            world.queues["a", "b"].popleft()
        world.deliver("a", "b", 1)
        if membership._promised[leader.name].term:
            break
    assert membership._promised[leader.name].term
    assert other.role is Role.UNFORMED
    leader.kill()
    leader.wipe()
    leader.start()
    world.held -= {("a", "b"), ("b", "a")}
    world.run(0.3)
    assert other.role is Role.UNFORMED, "it shall meet the new life before it forms"
    world.held = set()
    world.run(3.0)
    assert other.role is not Role.UNFORMED
    assert not other.trace.named("forgotten")
