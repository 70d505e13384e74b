"""A group of three forms, elects, replicates, applies, fails over: the ordinary life of a group."""

from dataclasses import replace

import pytest

from dledger.raft.api import Role
from dledger.raft.commit.applying import SLICE_ENTRIES_MAX
from dledger.types import MemberId
from dledger_proto.errors import Code, DledgerError, Outcome
from tests.unit.raft.harness import ListMachine, World


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
    assert not leader.trace.named("round_slow")
    leader.disk_stalls = False
    world.run(0.1)
    assert call.outcome is Outcome.STORED
    (slow,) = leader.trace.named("round_slow")
    assert slow["seconds"] == pytest.approx(0.3, abs=0.05)
    assert (slow["synced"], "sync" in str(slow["what"])) == (True, True), slow


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


def test_the_last_words_of_a_killed_leader_do_not_put_off_its_successor() -> None:
    """What a leader sent before it died may arrive after the redial to it was refused (D17)."""
    world = World()
    leader = world.elect()
    world.run(0.3)
    followers = world.followers()
    world.hold_all()
    leader.put(b"one")
    world.pump()
    late = {member.name: world.waiting(leader.name, member.name) for member in followers}
    leader.kill()
    world.held.clear()
    for member in followers:
        assert late[member.name], "the leader had nothing under way"
        for message in late[member.name]:
            member.group.receive(leader.name, message, world.now)
        member.drain()
    took = world.until(lambda: bool(world.leaders), 2.0)
    assert took <= 0.3, "the followers believed the dead leader again"
    assert world.leader.log.last_index >= 3, "what it had sent is kept"


def test_a_leader_that_goes_on_speaking_after_its_link_was_lost_is_believed() -> None:
    world = World()
    leader = world.elect()
    world.run(0.3)
    term = leader.group.term
    follower = world.followers()[0]
    for _ in range(2):  # lost, then doubted
        follower.group.dial_failed(leader.name, world.now)
        leader.put(b"more")
        world.run(0.05)
    world.run(3.0)
    assert (leader.role, leader.group.term) == (Role.LEADER, term)
    assert follower.group.leader == leader.name


def test_apply_is_done_in_bounded_slices() -> None:
    """L13: a long replay gives the loop back after each slice."""
    world = World()
    leader = world.elect("a")
    for number in range(200):
        leader.put(b"%d" % number)
        world.pump()
    member = world["b"]
    member.kill()
    member.machine = ListMachine()
    outputs = member.drain
    member.drain = lambda: None  # type: ignore[method-assign]
    member.start()
    world.run(0.5)
    member.drain = outputs  # type: ignore[method-assign]
    group = member.group
    group._context.engine._SyncObj__raftCommitIndex = 202
    slices = 0
    while True:
        before = member.machine.applied_index
        more = group.apply_slice(world.now)
        slices += 1
        assert member.machine.applied_index - before <= SLICE_ENTRIES_MAX
        if not more:
            break
    assert member.machine.applied_index == 202
    assert slices >= 200 // SLICE_ENTRIES_MAX


def test_the_head_is_trimmed_only_up_to_the_slowest_member_and_the_saved_state() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    world["c"].paused = True
    for number in range(100):
        leader.put(bytes(10_000) + b"%d" % number)
        world.run(0.01)
    for member in world.alive:
        member.machine.needed = 1 << 40
        member.machine.saved = int(member.machine.applied_index)
    world.run(3.0)
    assert leader.log.first_index == 1, "c has not got these entries"
    for member in world.alive:
        member.machine.saved = 40
    world["c"].paused = False
    world.run(3.0)
    firsts = {member.log.first_index for member in world.alive}
    assert 1 < min(firsts) <= max(firsts) <= 41
    for member in world.alive:
        member.machine.saved = int(member.machine.applied_index)
        member.machine.needed = 0
    before = [member.log.first_index for member in world.alive]
    world.run(3.0)
    assert [member.log.first_index for member in world.alive] == before, "the state refers to it"


def test_status_says_what_people_ask() -> None:
    world = World()
    leader = world.elect("a")
    leader.put(b"one")
    world.run(0.3)
    status = leader.group.status()
    assert (status.role, status.leader, status.reason) == (Role.LEADER, "a", "")
    assert status.commit_index == status.applied_index == status.durable_index == 3
    assert [(peer.member, peer.match_index, peer.connected) for peer in status.peers] == [
        ("b", 3, True),
        ("c", 3, True),
    ]
    assert all(len(peer.incarnation) == 32 for peer in status.peers)
    follower = world["b"].group
    assert (follower.role, follower.leader, follower.term) == (Role.FOLLOWER, "a", status.term)


def test_what_a_group_refuses_says_why() -> None:
    world = World(start=False)
    world["a"].start()
    assert world["a"].put(b"x").settled[0].code is Code.NOT_FORMED
    assert "b, c" in world["a"].put(b"x").settled[0].detail
    world["b"].start()
    world["c"].start()
    leader = world.elect("a")
    world.run(0.3)
    refused = world["b"].put(b"x").settled[0]
    assert (refused.code, refused.detail) == (Code.NOT_LEADER, "a")
    waits = leader.put(b"admitted")
    leader.group.stop_admission()
    assert leader.put(b"x").settled[0].code is Code.SHUTTING_DOWN
    world.run(0.1)
    assert waits.outcome is Outcome.STORED
    leader.group.stop(world.now)
    assert leader.role is Role.STOPPED


def test_settings_that_make_no_sense_are_refused() -> None:
    sound = World(start=False).settings_of(MemberId("a"))
    sound.check()
    for wrong, named in (
        (replace(sound, members=[]), "members"),
        (replace(sound, members=[MemberId("a")] * 2), "members"),
        (replace(sound, member=MemberId("z")), "member z"),
        (replace(sound, heartbeat=0.4), "heartbeat 0.4"),
        (replace(sound, election_timeout_max=0.1), "election_timeout_max 0.1"),
        (replace(sound, inflight_bytes_max=0), "inflight"),
    ):
        with pytest.raises(DledgerError, match=named):
            wrong.check()
