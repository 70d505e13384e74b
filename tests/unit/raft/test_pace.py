"""When a leader speaks: entries that gather, heartbeats that slow down and hurry."""

from dledger.raft.api import Role
from dledger.raft.commit.gathering import GATHER_SECONDS, Gathering
from dledger.raft.wire.messages import AppendRequest
from dledger.types import EntryKind, MemberId
from dledger_proto.errors import Outcome
from tests.sim.member.convinced import Convinced
from tests.unit.raft.harness import Call, Member, World


def test_an_idle_group_rests_between_heartbeats() -> None:
    world = World()
    leader = world.elect()
    world.run(1.0)
    world.sent.clear()
    ticks = 0
    for _ in range(1000):
        world.now += 0.01
        for member in world.alive:
            if member.group.next_deadline() <= world.now:
                ticks += 1
                member.tick()
        world.pump()
    assert len(world.sent) <= 2 * 2 * 42, "a slow heartbeat and an answer for each follower"
    assert ticks <= 42 + 3 * 84, "besides, everybody looks at the clock between two of them"
    assert leader.role is Role.LEADER


def test_group_commit_gathers_what_waits_for_a_sync() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    leader.disk_stalls = True
    before = leader.log.last_index
    calls = leader.propose(b"first")
    for number in range(50):
        leader.group.propose(EntryKind.COMMANDS, [b"%d" % number], Call(b"").settled.append)
    later = leader.propose(b"last")
    assert leader.log.last_index == before + 1
    leader.disk_stalls = False
    leader.drain()
    world.run(0.2)
    assert leader.log.last_index == before + 2, "everything that waited became one entry"
    assert leader.machine.values == [b"first", *(b"%d" % number for number in range(50)), b"last"]
    assert calls[0].outcome is later[0].outcome is Outcome.STORED
    assert later[0].settled[0].results == [f"{before + 2}:50"]


def test_small_entries_gather_until_the_one_before_is_committed() -> None:
    world = World(gather_bytes=100)
    leader = world.elect("a")
    world.run(0.3)
    world.isolate("a")  # nothing is committed
    before = leader.log.last_index
    first = leader.propose(b"first")
    assert leader.log.last_index == before + 1, "a lone one leaves at once"
    for number in range(4):
        leader.propose(b"%d" % number)
    assert not leader.group.has_outputs
    assert leader.log.last_index == before + 1
    leader.propose(b"x" * 80)
    assert leader.log.last_index == before + 2, "enough waits for an entry of its own"
    small = leader.propose(b"last")
    assert leader.log.last_index == before + 2
    world.heal()
    world.run(0.5)
    assert leader.log.last_index == before + 3
    values = [b"first", *(b"%d" % number for number in range(4)), b"x" * 80, b"last"]
    assert leader.machine.values == values, "order is kept"
    assert first[0].outcome is small[0].outcome is Outcome.STORED


def test_heartbeats_are_quick_again_when_somebody_does_not_answer() -> None:
    world = World()
    leader = world.elect("a")
    world.run(2.0)
    world.cut |= {("b", "a"), ("c", "a")}
    world.run(0.5)  # the first that nobody answers, and the one that finds it so
    world.sent.clear()
    world.run(0.35)
    beats = [sent for sent in world.sent if sent[:2] == ("a", "b")]
    assert len(beats) >= 3, "at most a tenth of a second apart"
    assert leader.role is Role.LEADER


def gathering_pair() -> tuple[World, Member]:
    """A leader that has just answered two callers and expects both again."""
    world = World(gather_bytes=1_000)
    leader = world.elect("a")
    leader.group._wiring.proposals._gathering = Gathering(Convinced())
    world.run(0.3)
    leader.disk_stalls = True
    leader.propose(b"alone")
    leader.propose(b"one")
    leader.propose(b"other")
    leader.disk_stalls = False
    leader.drain()
    world.until(lambda: len(leader.machine.values) == 3)
    world.sent.clear()
    return world, leader


def told(world: World) -> list[tuple[int, bool]]:
    """What b was told since: commit index, and whether entries came with it."""
    return [
        (message.commit_index, message.payload is not None)
        for source, target, message in world.sent
        if (source, target) == ("a", "b") and isinstance(message, AppendRequest)
    ]


def test_a_new_commit_index_is_told_soon_when_nobody_is_expected() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    leader.put(b"one")
    world.run(0.02, step=0.001)  # a heartbeat left with it
    world.sent.clear()
    leader.put(b"two")
    world.pump()
    committed = leader.group.commit_index
    assert committed == leader.log.last_index
    world.run(0.01, step=0.001)
    assert told(world)[-1] == (committed, False), "long before the next heartbeat"


def test_a_new_commit_index_travels_with_the_entry_that_is_expected() -> None:
    world, leader = gathering_pair()
    committed = leader.log.last_index
    leader.propose(b"one again")
    world.run(GATHER_SECONDS * 0.75, step=0.005)
    assert not told(world), "no notice: an entry is expected"
    leader.propose(b"other again")
    world.pump()
    assert told(world) == [(committed, True)]
    assert leader.group.next_deadline() > world.now + 0.015, "the notice is off"


def test_who_has_no_link_does_not_keep_the_others_from_being_told() -> None:
    world, leader = gathering_pair()
    world.disconnect("a", "c")
    leader.propose(b"one again", b"other again")
    world.pump()
    assert told(world)[-1] == (leader.log.last_index - 1, True)
    world.run(GATHER_SECONDS + 0.01, step=0.005)
    assert told(world)[-1] == (leader.log.last_index, False)


def test_the_notice_is_not_put_off_again_and_again() -> None:
    """To a follower whose window is closed no entries go that could carry it."""
    world, leader = gathering_pair()
    progress = leader.group._wiring.replication.peers[MemberId("b")]
    progress.inflight_bytes = leader.group._context.settings.inflight_bytes_max
    committed = leader.log.last_index
    began = world.now
    while not told(world):
        leader.propose(b"one again", b"other again")
        world.run(0.005, step=0.005)
        assert world.now - began <= GATHER_SECONDS + 0.01, "what was due then is due"
    assert told(world)[0][0] >= committed


def test_a_new_commit_index_is_told_soon_when_the_expected_stay_away() -> None:
    world, leader = gathering_pair()
    world.run(GATHER_SECONDS + 0.01, step=0.005)
    assert told(world) == [(leader.log.last_index, False)]
