"""Whole groups whose wall clocks are wrong: what is stamped, who leads, what is said (D8)."""

import pytest

from dledger.raft.api import Role
from dledger.raft.leadership import clocks
from dledger.raft.leadership.clocks import CLOCK_OFFSET_MAX_MS, ODD_SECONDS
from dledger.raft.leadership.transfer import CLOCK_RETRY_SECONDS
from dledger_proto.errors import Outcome
from tests.unit.raft import harness
from tests.unit.raft.harness import Member, World

HOUR_MS = 3_600_000
REST = 20.0


@pytest.fixture(autouse=True)
def short_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jumps are followed sooner: the harness counts time in hundredths of a second."""
    monkeypatch.setattr(clocks, "JUMP_REST_SECONDS", REST)


def true_ms(world: World) -> int:
    return harness.TestClock(world=world).wall_ms()


def stamped(world: World, leader: Member, value: bytes = b"x") -> int:
    """Store something; return its stamp less the true time."""
    call = leader.put(value)
    stamp = leader.log.last_time_ms - true_ms(world)
    world.run(0.2)
    assert call.outcome is Outcome.STORED
    return stamp


def test_d8_a_leaders_clock_that_jumps_ahead_is_not_stamped() -> None:
    """Not even before the next answer tells it: ten-minute holds would end, and be trimmed."""
    world = World()
    leader = world.elect("a")
    for ahead_ms in (50_000, HOUR_MS):  # the first would be followed at once in a majority
        leader.clock.wall_offset_ms = ahead_ms
        assert stamped(world, leader) <= CLOCK_OFFSET_MAX_MS
        world.run(1.0)
        assert stamped(world, leader) <= CLOCK_OFFSET_MAX_MS


def test_d8_a_leaders_clock_that_jumps_back_does_not_hold_time_up() -> None:
    world = World()
    leader = world.elect("a")
    leader.clock.wall_offset_ms = -HOUR_MS
    world.run(3.0)
    assert stamped(world, leader) >= -CLOCK_OFFSET_MAX_MS - 100


def test_d8_a_leader_whose_clock_is_off_hands_over_once() -> None:
    world = World()
    leader = world.elect("a")
    leader.clock.wall_offset_ms = HOUR_MS
    world.run(ODD_SECONDS - 1)
    assert leader.role is Role.LEADER, "a correction may be under way"
    assert "off the majority's" in leader.group.status().reason
    world.run(2.0)
    assert world.leader is not leader
    assert world.leader.group.status().clock_offset_ms == 0
    assert leader.group.status().clock_is_off
    assert leader.trace.named("clock_off")
    term = world.leader.group.term
    world.run(15.0)
    assert world.leader.group.term == term, "nobody takes it back"
    peers = {peer.member: peer.clock_offset_ms for peer in world.leader.group.status().peers}
    assert abs((peers[leader.name] or 0) - HOUR_MS) < 100, "the leader tells each clock"


def test_d8_clocks_that_go_to_and_fro_move_leadership_once_a_minute_at_most() -> None:
    world = World()
    leader = world.elect("a")
    began = len(leader.trace.named("transfer"))
    for turn in range(8):
        for member in world.members.values():
            member.clock.wall_offset_ms = HOUR_MS if member is world.leader and turn % 2 else 0
        world.run(ODD_SECONDS + 2)
    moves = sum(len(member.trace.named("transfer")) for member in world.members.values()) - began
    assert moves <= len(world.members), f"{moves} in less than {CLOCK_RETRY_SECONDS} s"


def test_d8_a_leader_goes_on_while_no_other_clock_is_right() -> None:
    """The one that is in the middle is down: what it showed before still is the median."""
    world = World()
    leader = world.elect("a")
    world["b"].kill()
    leader.clock.wall_offset_ms, world["c"].clock.wall_offset_ms = HOUR_MS, -HOUR_MS
    world.run(ODD_SECONDS + 3)
    assert world.leader is leader
    reason = leader.group.status().reason
    assert "no caught-up member has a correct clock" in reason
    assert len(leader.trace.named("clock_kept")) == 1
    assert abs(stamped(world, leader)) <= CLOCK_OFFSET_MAX_MS
    world["b"].start()
    world.until(lambda: world.leader is world["b"], ODD_SECONDS + 3)


def test_d8_a_leader_that_never_heard_a_clock_makes_no_entries_before_it_has() -> None:
    """After a restart of all there is nobody to have told it, and its own may be the wrong one."""
    world = World()
    world.elect("a")
    world.run(1.0)
    stamped(world, world["a"])
    for member in world.members.values():
        member.kill()
    world["a"].clock.wall_offset_ms = HOUR_MS
    world.now += 100.0
    for member in world.members.values():
        member.start()
    world.run(0.1)
    world.hold_all()
    before = world["a"].log.last_time_ms
    world["a"].group._wiring.elections.campaign("test")
    world["a"].drain()
    while world["a"].role is not Role.LEADER:
        assert world.deliver("a", "b") + world.deliver("b", "a")
    first = world["a"].log.last_index
    early = world["a"].put(b"early")
    assert (world["a"].log.last_index, world["a"].log.last_time_ms) == (first, before)
    world.held.clear()
    world.run(0.2)
    assert early.outcome is Outcome.STORED
    assert abs(world["a"].log.last_time_ms - true_ms(world)) <= CLOCK_OFFSET_MAX_MS + 200


def test_d8_who_leads_after_a_long_silence_goes_on_with_the_time_it_was_told() -> None:
    """A median that is not carried on would stamp the time of the last heartbeat."""
    world = World()
    leader = world.elect("a")
    world.run(1.0)
    stamped(world, leader)
    leader.kill()
    world.disconnect("b", "c")
    world.run(60.0, step=0.05)
    world.heal()
    world.until_led(5.0, other_than=leader)
    assert world.leader.log.last_time_ms >= true_ms(world) - CLOCK_OFFSET_MAX_MS


def test_d8_a_majority_that_jumps_and_comes_back_leaves_nothing() -> None:
    world = World()
    leader = world.elect("a")
    for name in "abc":
        world[name].clock.wall_offset_ms = HOUR_MS
    world.run(REST - 5)
    assert stamped(world, leader) <= CLOCK_OFFSET_MAX_MS
    assert "the majority's clock jumped ahead" in world.leader.group.status().reason
    for name in "abc":
        world[name].clock.wall_offset_ms = 0
    world.run(1.0)
    assert abs(stamped(world, world.leader)) <= 100
    assert world.leader.group.status().reason == ""


def test_d8_a_majority_that_stays_ahead_is_followed_and_stamps_then_stand_still() -> None:
    """What it promises: stamps never go back; when the clocks do, time waits for them."""
    world = World()
    leader = world.elect("a")
    for name in "bc":
        world[name].clock.wall_offset_ms = HOUR_MS
    world.run(REST + 2)
    world.until(lambda: world.leader is not leader, 30.0)  # now it is the odd one
    assert stamped(world, world.leader) >= HOUR_MS - CLOCK_OFFSET_MAX_MS
    world.run(10.0)
    for name in "bc":
        world[name].clock.wall_offset_ms = 0
    world.run(REST - 5)
    assert stamped(world, world.leader) >= HOUR_MS - CLOCK_OFFSET_MAX_MS, "the way back waits too"
    world.run(10.0)
    newest = world.leader.log.last_time_ms
    stamped(world, world.leader)
    assert world.leader.log.last_time_ms == newest
    assert "time stamps stand still" in world.leader.group.status().reason


def test_d8_a_jump_is_waited_for_across_leaders() -> None:
    world = World()
    world.elect("a")
    for name in "abc":
        world[name].clock.wall_offset_ms = HOUR_MS
    world.run(REST / 2)
    assert not any(world[name].group.status().clock_is_off for name in "abc"), "nobody is odd"
    world.leader.kill()
    world.until_led(1.0)  # a member whose clock is off lets two timeouts pass
    world.run(1.0)
    assert stamped(world, world.leader) <= CLOCK_OFFSET_MAX_MS


def test_d8_a_clock_that_is_behind_holds_no_time_up_while_another_is_away() -> None:
    """A new leader has heard two clocks of three: its own, which is right, and the wrong one."""
    world = World()
    world.elect("c")
    world["a"].kill()
    world["a"].start()  # it has not led, and is told the time
    world.run(2.0)
    world["c"].kill()
    world["b"].clock.wall_offset_ms = -HOUR_MS
    world["a"].group._wiring.elections.campaign("test")
    world.until_led(5.0)
    leader = world.leader
    world.run(REST / 2)
    assert abs(stamped(world, leader)) <= CLOCK_OFFSET_MAX_MS + 100
    assert "jumped back by" in leader.group.status().reason
    world["c"].start()
    for _ in range(5):
        world.run(1.0)
        assert abs(stamped(world, world.leader)) <= 100
    assert not world.leader.group.status().clock_is_off
    assert world.leader is leader, "nobody was odd"
