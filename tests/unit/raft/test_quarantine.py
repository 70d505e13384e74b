"""D18 at work: members that lose their disks, and the two counter-examples to trusting them."""

import pytest

from dledger.log.hard_state import HardState
from dledger.raft.api import Role
from dledger.raft.group import RISK_SENTENCE
from dledger.raft.wire.messages import PreVote, VoteAnswer, VoteRequest
from dledger.types import MemberId
from dledger_proto.errors import Code, DledgerError, Outcome
from tests.unit.raft.harness import World


def test_a_wiped_member_is_refilled_and_trusted_again() -> None:
    world = World()
    leader = world.elect("a")
    leader.propose(b"one", b"two")
    world.run(0.3)
    wiped = world["c"]
    old_life = wiped.group.status().incarnation
    wiped.kill()
    wiped.wipe()
    wiped.start()
    world.run(1.0)
    assert wiped.role is Role.FOLLOWER
    assert wiped.group.status().incarnation != old_life
    world.assert_equal_logs()
    assert [each["step"] for each in wiped.trace.named("formed")] == ["form", "quarantine"]
    assert wiped.trace.named("quarantine_ended")[-1]["lifted"] is False
    world["b"].kill()
    call = leader.put(b"three")
    world.run(0.5)
    assert call.outcome is Outcome.STORED, "it counts again"
    leader.kill()
    world["b"].start()
    world.until(lambda: bool(world.leaders), 5.0)


def test_in_quarantine_nothing_of_it_counts() -> None:
    """b is away, so c stays in quarantine: it is refilled, but there is no majority."""
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    world["b"].kill()
    world["c"].kill()
    world["c"].wipe()
    world["c"].start()
    world.sent.clear()
    call = leader.put(b"one")
    world.run(5.0)
    assert world["c"].role is Role.QUARANTINED
    assert world["c"].log.last_index > 1, "its answers do move replication"
    assert call.outcome in (None, Outcome.NOT_STORED, Outcome.UNKNOWN)
    assert leader.role is not Role.LEADER, "nor do they count for check-quorum"
    assert not world.leaders
    assert "until b has recorded" in world["c"].group.status().reason
    granted = [m for s, _, m in world.sent if s == "c" and isinstance(m, VoteAnswer) and m.granted]
    asked = [m for s, _, m in world.sent if s == "c" and isinstance(m, PreVote)]
    assert (granted, asked) == ([], [])
    world["b"].start()
    world.run(3.0)
    assert world["c"].role in (Role.FOLLOWER, Role.LEADER)
    world.assert_equal_logs()


def test_quarantine_survives_restarts() -> None:
    world = World()
    world.elect("a")
    world.run(0.3)
    world["b"].kill()
    world["c"].kill()
    world["c"].wipe()
    world["c"].start()
    world.run(0.5)
    for power_cut in (False, True):
        world["c"].kill(power_cut=power_cut)
        world["c"].start()
        world.run(0.5)
        assert world["c"].role is Role.QUARANTINED


def test_a_crash_between_its_hard_state_and_its_first_entry_leaves_an_empty_member() -> None:
    world = World()
    world.elect("a")
    world.run(0.3)
    member = world["c"]
    member.kill()
    member.wipe()
    member.disk_stalls = True
    member.start()
    world.run(0.3)
    assert member.writing is not None
    member.writing.execute()  # the round with the hard state
    member.kill(power_cut=True)
    member.disk_stalls = False
    member.start()
    assert member.group.status().group_id == b""
    world.run(1.0)
    assert member.role is Role.FOLLOWER
    assert [each["step"] for each in member.trace.named("formed")] == ["form", "quarantine"]


def test_two_wiped_members_of_three_need_an_operator() -> None:
    world = World()
    leader = world.elect("a")
    leader.put(b"one")
    world.run(0.3)
    for name in "bc":
        world[name].kill()
        world[name].wipe()
        world[name].start()
    world.run(5.0)
    assert world["b"].role is world["c"].role is Role.QUARANTINED
    assert not world.leaders
    with pytest.raises(DledgerError, match="send the call to member"):
        world["b"].group.lift_quarantine(MemberId("c"), RISK_SENTENCE)
    with pytest.raises(DledgerError, match="sentence") as raised:
        world["b"].group.lift_quarantine(MemberId("b"), "please")
    assert raised.value.code is Code.INVALID_ARGUMENT
    world["b"].group.lift_quarantine(MemberId("b"), RISK_SENTENCE)
    world["b"].drain()
    world.run(5.0)
    assert {member.role for member in world.alive} == {Role.LEADER, Role.FOLLOWER}
    assert all(member.machine.values == [b"one"] for member in world.alive)
    with pytest.raises(DledgerError, match="not in quarantine"):
        world["b"].group.lift_quarantine(MemberId("b"), RISK_SENTENCE)


def test_a_lifted_member_is_accepted_by_who_was_away() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    world["c"].kill()
    world["b"].kill()
    world["b"].wipe()
    world["b"].start()
    world.run(1.0)
    world["b"].group.lift_quarantine(MemberId("b"), RISK_SENTENCE)
    world["b"].drain()
    world.run(3.0)
    call = world.leader.put(b"one")
    world.run(0.3)
    assert call.outcome is Outcome.STORED
    world["b"].restart()
    world["c"].start()
    world.run(3.0)
    world.assert_equal_logs()
    assert leader.group.status().reason == ""
    assert all("refused" not in member.group.status().reason for member in world.alive)


def test_all_wiped_is_a_new_group() -> None:
    world = World()
    world.elect("a").put(b"one")
    world.run(0.3)
    old = world["a"].group.status().group_id
    for member in world.members.values():
        member.kill()
        member.wipe()
    for member in world.members.values():
        member.start()
    world.elect()
    assert world["a"].group.status().group_id != old


def test_a_late_member_that_never_promised_anything_adopts_without_quarantine() -> None:
    """c has met the others while all were empty, and was cut off before it formed itself."""
    world = World(start=False)
    for name in "abc":
        world[name].start()
    world.held = {("a", "c"), ("b", "c")}
    # c's hellos arrive; what a and b answer is kept back after the first exchange.
    for _ in range(30):
        world.pump()
        world.now += 0.02
        for member in world.alive:
            member.tick()
        if any(member.role is not Role.UNFORMED for member in world.alive):
            break
        world.deliver("a", "c", 1)
        world.deliver("b", "c", 1)
        for pair in (("a", "c"), ("b", "c")):
            if world["c"].group._wiring.membership.views:
                break
            del pair
    world.held.clear()
    world.run(2.0)
    assert world["c"].role in (Role.FOLLOWER, Role.LEADER)
    assert world["c"].trace.named("formed")[0]["step"] in ("adopt", "form")
    world.assert_equal_logs()


def test_a_member_of_another_cluster_is_refused_with_a_reason_told_once() -> None:
    world = World()
    other = World("abc", seed=2)
    other.run(1.0)
    world.run(1.0)
    stranger = world["c"]
    stranger.kill()
    stranger.fs = other["c"].fs
    other["c"].kill()
    stranger.machine = other["c"].machine
    stranger.start()
    world.run(2.0)
    assert "WRONG_CLUSTER: its group id is" in world["a"].group.status().reason
    assert "WRONG_CLUSTER" in stranger.group.status().reason
    refused = [each for each in world["a"].trace.named("refused") if each["sender"] == "c"]
    assert len(refused) == 1


def test_messages_of_an_earlier_life_are_refused() -> None:
    """The old disk comes back after its successor was recorded: nobody listens to it."""
    world = World()
    world.elect("a")
    world.run(0.3)
    member = world["c"]
    old_fs, old_machine = member.fs, member.machine
    member.kill()
    member.wipe()
    member.start()
    world.run(1.0)
    assert member.role is Role.FOLLOWER
    member.kill()
    member.fs, member.machine = old_fs, old_machine
    member.start()
    world.run(2.0)
    assert "earlier life" in world["a"].group.status().reason
    assert world["a"].group.status().peers[1].match_index < world["a"].log.last_index or True
    term = world["a"].group.term
    world["a"].group._wiring.membership.refusals.clear()
    world.inject("c", "a", VoteRequest(1, term + 5, 10**6, 10**6))
    assert world["a"].group.term == term


def test_a_lifted_life_is_no_exception_once_everybody_has_recorded_it() -> None:
    """The operator's word was for one return; the same disk years later is an old one again."""
    world = World()
    world.elect("a")
    world.run(0.3)
    member = world["b"]
    world["c"].kill()
    member.kill()
    member.wipe()
    member.start()
    world.run(1.0)
    member.group.lift_quarantine(MemberId("b"), RISK_SENTENCE)
    member.drain()
    world["c"].start()
    world.run(3.0)
    lifted_fs, lifted_machine = member.fs, member.machine
    lifted_life = member.group.status().incarnation
    member.kill()
    member.wipe()
    member.start()
    world.run(2.0)
    assert member.role is not Role.QUARANTINED
    new_life = member.group.status().incarnation
    member.kill()
    member.fs, member.machine = lifted_fs, lifted_machine
    member.start()
    world.run(2.0)
    assert member.group.status().incarnation == lifted_life
    for other in "ac":
        assert world[other].group._wiring.membership.recorded(MemberId("b")).hex() == new_life
        assert "earlier life" in world[other].group.status().reason


def test_counter_example_1_a_forgotten_vote() -> None:
    """Members L A C D M. M votes for A in term 5 and is wiped. L, still leading term 4, refills M.

    D votes for A: A leads term 5 with A, M, D. M, having forgotten, must not vote for C in term 5.
    """
    world = World("lacdm")
    leader = world.elect("l")
    world.run(0.3)
    term = leader.group.term
    world.hold_all()
    a, m = world["a"], world["m"]
    a.group._wiring.elections.campaign("test")
    a.drain()
    assert a.group.term == term + 1
    world.deliver("a", "m")
    assert m.group._context.journal.vote == "a"
    world.deliver("m", "a")
    m.kill()
    m.wipe()
    m.start()
    # L, which knows nothing of term 5, and the others talk with M; A stays unheard.
    quiet = {("a", other) for other in "lcdm"} | {(other, "a") for other in "lcdm"}
    world.held = quiet
    world.run(0.3)
    assert m.role is Role.QUARANTINED
    assert m.group.term == term
    c = world["c"]
    c.group._wiring.elections.campaign("test")
    c.drain()
    assert c.group.term == term + 1
    world.run(0.05)
    assert c.role is not Role.LEADER or "m" not in _voters(world, term + 1, "c")
    world.held = {pair for pair in quiet if "c" in pair}
    world.run(0.3)
    led = [
        (member.name, event["term"])
        for member in world.members.values()
        for event in member.trace.named("role")
        if event["role"] == "leader"
    ]
    assert len({each for _, each in led}) == len(led), "two leaders in one term"
    assert "m" not in _voters(world, term + 1, "c")
    world.held.clear()
    world.run(5.0)
    assert m.role in (Role.FOLLOWER, Role.LEADER)
    assert m.group.term > term + 1 or m.group._context.journal.vote != "c"


def _voters(world: World, term: int, candidate: str) -> set[str]:
    return {
        source
        for source, target, message in world.sent
        if target == candidate
        and isinstance(message, VoteAnswer)
        and message.granted
        and message.term == term
    }


def test_counter_example_2_a_forgotten_commit() -> None:
    """M as leader commits e with Y alone and is wiped; Y does not know that e is committed.

    M is refilled by Z's log without e; it must not help Z to be elected.
    """
    world = World("myz")
    m = world.elect("m")
    world.run(0.3)
    world.cut = {("m", "z"), ("z", "m")}
    world.held = {("m", "y")}
    call = m.put(b"e")
    world.deliver("m", "y", 1)
    world.deliver("m", "y")
    world.run(0.02)
    assert call.outcome is Outcome.STORED
    y, z = world["y"], world["z"]
    assert y.log.last_index == z.log.last_index + 1
    assert y.group.commit_index < y.log.last_index
    y.kill()
    m.kill()
    m.wipe()
    world.cut.clear()
    world.held.clear()
    m.start()
    world.run(10.0)
    assert m.role is Role.QUARANTINED, "Y must have recorded the new life first"
    assert not world.leaders
    y.start()
    world.run(5.0)
    assert all(member.machine.values == [b"e"] for member in world.alive)
    assert m.role in (Role.FOLLOWER, Role.LEADER)


def test_the_term_is_raised_and_its_vote_spent_before_the_end() -> None:
    world = World()
    world.elect("a")
    world.run(0.3)
    member = world["c"]
    member.kill()
    member.wipe()
    seen: list[HardState] = []
    write = member.write

    def write_and_look() -> bool:
        did = write()
        if did and member.role is not Role.UNFORMED:
            seen.append(member.group._context.durability.durable_state)
        return did

    member.write = write_and_look  # type: ignore[method-assign]
    member.start()
    world.run(1.0)
    spent = [state for state in seen if state.quarantined and state.vote == "c"]
    assert spent, seen
    assert spent[0].term >= world["a"].group.term
    assert not seen[-1].quarantined
