"""Disks that are low, and full ones: who refuses what, and how a group gets out (I16)."""

import pytest

from dledger.raft.api import Role
from dledger.raft.wire.messages import AppendRequest
from dledger.types import DiskRoom, EntryKind, MemberId
from dledger_proto.errors import Code, Outcome
from tests.unit.raft.harness import LOG_SETTINGS, Call, Member, World
from tests.unit.raft.test_barrier import ask


def free(member: Member, value: bytes = b"trim") -> Call:
    """Propose something that frees space."""
    call = Call(value)
    member.group.propose(EntryKind.COMMANDS, [value], call.settled.append, frees_space=True)
    member.drain()
    return call


def leave(world: World, names: str, room: DiskRoom) -> None:
    """Let the disks of some members be low, full, or neither."""
    for name in names:
        member = world[name]
        member.fs.budget_bytes = None
        if room is not DiskRoom.ENOUGH:
            share = LOG_SETTINGS.low_water_bytes // 4
            left = 3 * share if room is DiskRoom.LOW else share
            member.fs.budget_bytes = member.fs.used_bytes() + left
        assert member.log.space.check() is room


def entries_sent(world: World, target: str) -> int:
    """Return how many messages with entries were sent to a member since `world.sent.clear()`."""
    return sum(
        isinstance(message, AppendRequest) and message.payload is not None
        for _, receiver, message in world.sent
        if receiver == target
    )


def refusal(call: Call) -> Code:
    assert call.outcome is Outcome.NOT_STORED
    return call.settled[0].code


@pytest.mark.parametrize("room", [DiskRoom.LOW, DiskRoom.FULL])
def test_one_member_without_room_is_left_behind_and_catches_up(room: DiskRoom) -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    leave(world, "b", room)
    calls = [leader.put(b"one")]
    world.run(0.5)
    assert (world["b"].machine.values == []) == (room is DiskRoom.FULL), "it said so too late"
    world.sent.clear()
    calls += leader.propose(b"two", b"three")
    world.run(1.0)
    assert {call.outcome for call in calls} == {Outcome.STORED}
    assert entries_sent(world, "b") == 0, "entries are not sent to who has no room"
    leave(world, "b", DiskRoom.ENOUGH)
    world.run(0.5)
    assert world["b"].machine.values == [b"one", b"two", b"three"]


@pytest.mark.parametrize("room", [DiskRoom.LOW, DiskRoom.FULL])
def test_a_leader_without_room_refuses_and_goes_on_by_itself(room: DiskRoom) -> None:
    world = World()
    leader = world.elect("a")
    leave(world, "a", room)
    world.run(0.3)
    assert refusal(leader.put(b"one")) is Code.DISK_FULL
    assert leader.machine.values == []
    leave(world, "a", DiskRoom.ENOUGH)
    world.run(0.3)
    call = leader.put(b"two")
    world.run(0.2)
    assert call.outcome is Outcome.STORED


def test_a_low_group_takes_what_frees_space_and_nothing_else() -> None:
    world = World()
    leader = world.elect("a")
    leave(world, "abc", DiskRoom.LOW)
    world.run(0.3)
    assert refusal(leader.put(b"more")) is Code.DISK_FULL
    call = free(leader)
    world.run(0.3)
    assert call.outcome is Outcome.STORED
    assert all(member.machine.values == [b"trim"] for member in world.alive)
    leave(world, "a", DiskRoom.FULL)
    world.run(0.3)
    assert refusal(free(leader)) is Code.DISK_FULL


def test_a_low_group_elects_and_confirms_reads() -> None:
    """A new leader's first entry needs room on a majority, or nothing is confirmed any more."""
    world = World()
    world.elect("a")
    leave(world, "abc", DiskRoom.LOW)
    world.run(0.3)
    world["a"].kill()
    world.until(lambda: bool(world.leaders))
    answers = ask(world.leader)
    world.until(lambda: bool(answers))
    assert answers[0][0] is not None, answers


def test_writes_are_refused_when_no_majority_has_room() -> None:
    """Not taken and left undecided: what was taken before is brought to an end."""
    world = World()
    leader = world.elect("a")
    world.hold_all()
    before = leader.put(b"before")
    leave(world, "bc", DiskRoom.LOW)
    world.held.clear()
    world.run(0.3)
    assert before.outcome is Outcome.STORED
    assert refusal(leader.put(b"after")) is Code.DISK_FULL
    call = free(leader)
    world.run(0.3)
    assert call.outcome is Outcome.STORED
    leave(world, "c", DiskRoom.ENOUGH)
    world.run(0.3)
    assert leader.put(b"again").outcome is None
    world.run(0.3)
    world["c"].kill()
    assert refusal(leader.put(b"needs b")) is Code.DISK_FULL
    world["b"].kill()
    world.run(0.3)
    assert leader.put(b"needs somebody").outcome is None, "it is not for want of room"


def test_full_followers_make_a_leader_with_room_refuse() -> None:
    """The worse disks must not get the worse answer: what they can't store is not taken."""
    world = World()
    leader = world.elect("a")
    leave(world, "b", DiskRoom.FULL)
    leave(world, "c", DiskRoom.LOW)
    world.run(0.3)
    assert refusal(leader.put(b"one")) is Code.DISK_FULL
    leave(world, "c", DiskRoom.FULL)
    world.run(0.3)
    assert refusal(leader.put(b"two")) is Code.DISK_FULL
    leave(world, "bc", DiskRoom.ENOUGH)
    world.run(0.3)
    call = leader.put(b"three")
    world.run(0.2)
    assert call.outcome is Outcome.STORED


@pytest.mark.parametrize("how", ["silent", "hangs", "late", "quarantined"])
def test_who_can_not_store_does_not_stand_in_for_who_is_low(how: str) -> None:
    """With a silent third member writes were taken, and undecided for as long as it was silent."""
    world = World(disk_hang_limit=0.5)
    leader = world.elect("a")
    progress = leader.group._wiring.replication.peers
    if how == "late":
        world["c"].kill()
        world.until(lambda: len(world.leaders) == 1)
        for number in range(40):
            leader.put(bytes([number]) * 10_000)
            world.run(0.02)
    leave(world, "b", DiskRoom.LOW)
    world.run(0.3)
    if how == "silent":
        world.cut = {("c", "a")}
    elif how == "hangs":
        world["c"].disk_stalls = True
    elif how == "late":
        world.hold_all()
        world.held = {("a", "c")}  # its entries are on their way for long
        world["c"].start()
    else:
        world["c"].kill()
        world["c"].wipe()
        world.held = {("a", "c")}
        world["c"].start()
    calls: list[Call] = []

    def refused() -> bool:
        calls.append(leader.put(b"%d" % len(calls)))
        return calls[-1].outcome is Outcome.NOT_STORED

    world.until(refused, 3.0)
    assert refusal(calls[-1]) is Code.DISK_FULL
    world.run(0.3)
    assert {call.outcome for call in calls[:-1]} <= {Outcome.STORED}, (
        "what was taken is brought to an end"
    )
    assert progress[MemberId("c")].match != leader.log.last_index


def test_a_low_group_hands_leadership_over() -> None:
    world = World()
    leader = world.elect("a")
    leave(world, "abc", DiskRoom.LOW)
    world.run(0.3)
    done: list[tuple[bool, str]] = []
    leader.group.transfer(None, lambda is_done, why: done.append((is_done, why)), world.now)
    leader.drain()
    world.until(lambda: bool(done))
    assert done[0][0], done
    leave(world, "b", DiskRoom.ENOUGH)
    world.until(lambda: bool(world.leaders))
    world.run(0.3)
    if world.leader is not world["b"]:
        candidates = world.leader.group._wiring.replication.transfer_candidates()
        assert candidates[0] == "b", "who has room comes first"


def test_who_is_low_and_left_behind_gets_all_up_to_what_frees_space() -> None:
    world = World()
    leader = world.elect("a")
    leave(world, "b", DiskRoom.LOW)
    world.run(0.3)
    leader.propose(b"one", b"two")
    world.run(0.3)
    assert world["b"].machine.values == []
    free(leader)
    world.run(0.3)
    assert world["b"].machine.values == [b"one", b"two", b"trim"]
    leader.put(b"three")
    world.run(0.3)
    assert world["b"].machine.values == [b"one", b"two", b"trim"]


def test_a_new_leader_sends_what_another_proposed_to_free_space() -> None:
    """Four of five have room: b is not needed, and gets what it must have all the same."""
    world = World("abcde")
    world.elect("a")
    leave(world, "b", DiskRoom.LOW)
    world.run(0.3)
    world["a"].put(b"one")
    world.cut = {("a", "b")}
    free(world["a"])
    world.until(lambda: all(b"trim" in world[name].machine.values for name in "cde"))
    world["a"].kill()
    world.cut.clear()
    world.until(lambda: b"trim" in world["b"].machine.values)
    assert world.leader.group._wiring.replication.room is DiskRoom.ENOUGH
    world.leader.put(b"two")
    world.run(0.3)
    assert b"two" not in world["b"].machine.values


def test_what_freed_space_in_an_earlier_reign_counts_no_more() -> None:
    world = World("abcde")
    old = world.elect("a")
    world.partition("a", "bcde")
    for _ in range(20):
        free(old)
    world.until(lambda: any(member is not old for member in world.leaders))
    world.cut.clear()
    world.until(lambda: len(world.leaders) == 1)
    world.run(0.5)
    leader = world.elect("a")
    assert leader.group._wiring.replication.freeing_index <= leader.log.last_index
    leave(world, "b", DiskRoom.LOW)
    world.run(0.3)
    leader.propose(*(b"%d" % number for number in range(10)))
    world.run(0.3)
    assert b"9" not in world["b"].machine.values


def test_who_leads_no_more_sends_nothing_when_a_link_changes() -> None:
    """What it noted of others' disks in its reign must not make it send entries in another's."""
    world = World()
    old = world.elect("a")
    leave(world, "b", DiskRoom.LOW)
    world.run(0.3)
    old.propose(b"one", b"two")  # not sent to b: a and c are enough
    world.run(0.1)
    old.group.transfer(MemberId("c"), lambda _done, _why: None, world.now)
    old.drain()
    world.until(lambda: world["c"].role is Role.LEADER and old.role is Role.FOLLOWER)
    world.sent.clear()
    world.disconnect("a", "c", refused=False)
    assert old.role is Role.FOLLOWER
    carried = [each for source, _, each in world.sent if source == "a"]
    assert not any(isinstance(each, AppendRequest) for each in carried)


def test_what_frees_space_is_refused_when_only_full_members_could_store_it() -> None:
    """Not taken and left undecided; with one that is only low it is stored."""
    world = World()
    leader = world.elect("a")
    leave(world, "bc", DiskRoom.FULL)
    world.run(0.3)
    assert refusal(leader.put(b"one")) is Code.DISK_FULL
    assert refusal(free(leader)) is Code.DISK_FULL
    leave(world, "b", DiskRoom.ENOUGH)
    leave(world, "b", DiskRoom.LOW)
    world.run(0.5)
    assert refusal(leader.put(b"two")) is Code.DISK_FULL
    call = free(leader)
    world.run(0.5)
    assert call.outcome is Outcome.STORED


def test_leadership_is_not_offered_to_who_is_silent() -> None:
    """Its link stands and its disk had room: the low one that answers is the better leader."""
    world = World()
    leader = world.elect("a")
    leave(world, "b", DiskRoom.LOW)
    world.run(0.3)
    world.cut = {("a", "c"), ("c", "a")}
    leader.put(b"x")
    world.until(lambda: leader.machine.values == [b"x"])
    world.run(1.0)
    done: list[bool] = []
    leader.group.transfer(None, lambda is_done, _why: done.append(is_done), world.now)
    leader.drain()
    world.until(lambda: bool(done))
    assert done == [True]
    assert world["b"].role is Role.LEADER
