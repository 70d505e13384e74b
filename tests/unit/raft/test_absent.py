"""A member that is away keeps the head up to a bound, and then knows that it needs a refill."""

from typing import Any

from tests.unit.raft.harness import World

KIB = 1024
VALUE = bytes(10_000)


def write(world: World, count: int) -> None:
    """Put more than one segment holds, and let every running member save it."""
    for _ in range(count):
        world.leader.put(VALUE)
        world.run(0.01)
    for member in world.alive:
        member.machine.needed = 1 << 40
        member.machine.saved = int(member.machine.applied_index)


def without_c(**settings: Any) -> World:
    """A world whose member c misses a megabyte, four segments."""
    world = World(**settings)
    world.elect("a")
    world.run(0.3)
    world["c"].kill()
    write(world, 100)
    world.run(2.0)
    return world


def test_a_member_that_is_away_keeps_the_head() -> None:
    world = without_c()
    assert world.leader.log.first_index == 1


def test_a_member_that_is_away_keeps_so_many_bytes_and_no_more() -> None:
    world = without_c(absent_bytes_max=500 * KIB)
    log = world.leader.log
    kept = log.last_position - log.first_position
    assert 500 * KIB <= kept < 500 * KIB + 2 * 256 * KIB
    write(world, 100)
    world.run(2.0)
    assert log.last_position - log.first_position < kept + 256 * KIB


def test_a_member_that_is_silent_keeps_the_head_for_a_time() -> None:
    world = without_c(absent_seconds_max=10.0)
    assert world.leader.log.first_index == 1
    world.run(15.0)
    assert world.leader.log.first_index > 1


def test_a_member_that_is_below_the_head_needs_a_refill_and_keeps_nothing() -> None:
    world = without_c(absent_seconds_max=10.0)
    world.run(15.0)
    member = world["c"]
    member.start()
    assert not member.group.needs_refill(world.now)
    world.until(lambda: member.group.needs_refill(world.now), 5.0)
    assert not member.group.is_filled
    before = world.leader.log.first_index
    write(world, 100)
    world.run(3.0)
    assert world.leader.log.first_index > before + 50, "what it has does not keep the head"


def test_a_member_that_replication_fills_needs_no_refill() -> None:
    world = without_c()
    member = world["c"]
    member.start()
    for _ in range(200):
        world.run(0.01)
        assert not member.group.needs_refill(world.now)
    assert member.group.is_filled
    assert world.leader.group.is_filled


def test_a_new_member_of_a_group_that_trimmed_the_first_entry_needs_a_refill() -> None:
    world = without_c(absent_bytes_max=500 * KIB)
    for name in "ab":  # nobody remembers the first entry
        world[name].restart()
    world.elect()
    world["c"].wipe()
    world["c"].start()
    world.until(lambda: world["c"].group.needs_refill(world.now), 5.0)
    assert "lacks entry 1" in world["c"].group.status().reason
    assert not world["c"].group.is_filled
