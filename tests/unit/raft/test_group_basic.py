"""A group of three forms, elects, replicates, applies, fails over: the ordinary life of a group."""

from dledger.raft.api import Role
from dledger_proto.errors import Outcome
from tests.unit.raft.harness import World


def test_three_empty_members_form_one_group_and_elect_one_leader() -> None:
    world = World()
    world.run(2.0)
    assert len({member.group.status().group_id for member in world.alive}) == 1
    assert len(world.leaders) == 1
    assert {member.log.last_index for member in world.alive} == {2}


def test_a_proposal_is_stored_everywhere_and_answered_with_the_machines_result() -> None:
    world = World()
    leader = world.elect()
    call = leader.put(b"one")
    world.run(0.2)
    assert call.outcome is Outcome.STORED
    assert call.settled[0].results == ["3:0"]
    assert all(member.machine.values == [b"one"] for member in world.alive)
    world.assert_equal_logs()


def test_a_group_of_one_serves() -> None:
    world = World("a")
    leader = world.elect()
    leader.disk_stalls = True
    call = leader.put(b"one")
    world.run(0.3)
    assert call.outcome is None, "acknowledged before the sync"
    leader.disk_stalls = False
    world.run(0.1)
    assert call.outcome is Outcome.STORED


def test_followers_take_over_when_the_leader_is_killed() -> None:
    world = World()
    leader = world.elect()
    calls = leader.propose(b"one", b"two")
    world.run(0.2)
    leader.kill()
    took = world.until(lambda: bool(world.leaders), 2.0)
    assert took <= 0.3, "a closed connection is noticed at once (D17)"
    call = world.leader.put(b"three")
    world.run(0.3)
    assert [each.outcome for each in [*calls, call]] == [Outcome.STORED] * 3
    leader.start()
    world.run(1.0)
    world.assert_equal_logs()
    assert leader.machine.values == [b"one", b"two", b"three"]
    assert leader.role is Role.FOLLOWER
