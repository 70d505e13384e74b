"""The liveness findings of the audit of PySyncObj, and the group's own promises, in virtual time.

L8 (latency by timer), L13 (apply without end) and L14 (slices of the whole log) are in
`test_group_basic.py` and `test_journal.py`; L6 and L18 are about parts that are never reached.
"""

import pytest

from dledger.raft.api import Role
from dledger.raft.wire.messages import PreVote, PreVoteAnswer, TermNotice, VoteAnswer
from dledger.types import LogIndex, MemberId
from dledger_proto.errors import Code, Outcome
from tests.unit.raft.harness import Call, World


def test_l1_a_member_that_can_send_but_not_hear_changes_nothing() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    term = leader.group.term
    world.cut = {("a", "c"), ("b", "c")}
    acknowledged = 0
    for number in range(20):
        call = leader.put(b"%d" % number)
        world.run(1.0)
        acknowledged += call.outcome is Outcome.STORED
    assert world.leader is leader
    assert leader.group.term == term
    assert acknowledged == 20
    assert world["c"].trace.named("role")[-1]["term"] == term


def test_l2_a_member_resumed_after_a_pause_forces_no_election() -> None:
    for seed in range(10):
        world = World(seed=seed)
        leader = world.elect()
        world.run(0.3)
        term = leader.group.term
        follower = world.followers()[0]
        follower.paused = True
        world.run(3.0)
        follower.paused = False
        world.sent.clear()
        follower.tick()
        assert follower.trace.named("paused")
        world.run(2.0)
        assert leader.group.term == term
        assert not [m for _, _, m in world.sent if isinstance(m, PreVote)], "it listens first"


@pytest.mark.parametrize(
    ("leads", "timeouts", "seconds", "noticed"),
    [
        (False, (0.5, 1.0), 0.2, False),
        (False, (0.5, 1.0), 0.3, True),
        (True, (0.5, 1.0), 0.4, False),
        (True, (0.5, 1.0), 0.6, True),
        (True, (0.95, 1.0), 0.2, False),
        (True, (0.95, 1.0), 0.4, True),
    ],
)
def test_l2_a_pause_is_one_by_the_timeout_that_a_member_judges_by(
    leads: bool, timeouts: tuple[float, float], seconds: float, noticed: bool
) -> None:
    world = World(election_timeout_min=timeouts[0], election_timeout_max=timeouts[1])
    leader = world.elect()
    world.run(0.3)
    member = leader if leads else world.followers()[0]
    member.tick()
    before = len(member.trace.named("paused"))
    member.paused = True
    world.run(seconds)
    member.paused = False
    member.tick()
    assert len(member.trace.named("paused")) - before == noticed
    world.run(2.0)
    assert world.leader is leader or seconds > timeouts[0]


def test_l3_a_leader_that_hears_no_majority_steps_down() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    world.partition("a", "bc")
    took = world.until(lambda: leader.role is not Role.LEADER, 3.0)
    assert took <= leader.world.settings_of(leader.name).election_timeout_max + 0.2
    took = world.until(lambda: bool(world.leaders), 3.0)
    assert took <= 1.5


def test_l4_a_deposed_leader_with_a_long_suffix_is_back_at_once() -> None:
    world = World()
    old = world.elect("a")
    world.run(0.3)
    world.isolate("a")
    old_calls: list[Call] = []
    for number in range(300):
        old_calls += old.propose(b"x%d" % number)
    world.until(lambda: any(member.name != "a" for member in world.leaders))
    new = next(member for member in world.leaders if member.name != "a")
    for number in range(300):
        new.put(b"y%d" % number)
    world.run(0.2)
    world.heal()
    took = world.until(lambda: old.log.last_index == new.log.last_index, 5.0)
    assert took <= 0.3
    world.run(1.0)
    world.assert_equal_logs()


def test_l7_every_proposal_of_a_cut_off_leader_is_settled() -> None:
    world = World(waiting_bytes_max=4_000)
    leader = world.elect("a")
    world.run(0.3)
    world.partition("a", "bc")
    leader.disk_stalls = True
    calls = [leader.put(b"%d" % number) for number in range(10)]
    world.run(6.0)
    assert all(len(call.settled) == 1 for call in calls)
    assert {call.outcome for call in calls} == {Outcome.UNKNOWN, Outcome.NOT_STORED}
    refused = [call.settled[0] for call in calls if call.outcome is Outcome.NOT_STORED]
    assert {(each.code, int(each.index)) for each in refused} == {(Code.NOT_LEADER, 0)}


def test_l7_a_deposed_leader_that_is_back_in_time_tells_the_truth() -> None:
    """The entry reached c; c wins with it: the caller at a hears STORED, from a follower."""
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    world.held = {("c", "a"), ("b", "a"), ("a", "b")}
    call = leader.put(b"one")
    world.deliver("a", "c")
    assert world["c"].log.last_index == leader.log.last_index
    world["c"].group._wiring.elections.campaign("test")
    world["c"].drain()
    world.held.clear()
    world.run(0.9)
    assert world["c"].role is Role.LEADER
    assert call.outcome is Outcome.STORED
    assert call.settled[0].results == [f"{call.settled[0].index}:0"]


def test_l8_nothing_waits_for_a_timer() -> None:
    world = World()
    leader = world.elect()
    world.run(0.3)
    call = leader.put(b"one")
    world.pump()
    assert call.outcome is Outcome.STORED


def test_l9_a_stale_leader_hears_of_a_higher_term() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    other = world["c"]
    other.group._context.engine.adopt_term(MemberId("b"), leader.group.term + 5, world.now)
    other.tick()
    world.run(3.0)
    call = world.leader.put(b"one")
    world.run(0.5)
    assert call.outcome is Outcome.STORED
    assert other.machine.values == [b"one"]
    assert any(isinstance(message, TermNotice) for _, _, message in world.sent)


def test_l10_a_leader_without_a_majority_accepts_only_so_much() -> None:
    world = World(uncommitted_bytes_max=20_000)
    leader = world.elect("a")
    world.run(0.3)
    world.partition("a", "bc")
    calls = [leader.put(bytes(1000)) for _ in range(50)]
    busy = [call for call in calls if call.settled and call.settled[0].code is Code.BUSY]
    assert 25 <= len(busy) <= 32
    assert leader.log.size_between(LogIndex(3), leader.log.last_index) <= 22_000


def test_waiting_proposals_are_bounded() -> None:
    world = World(waiting_bytes_max=10_000)
    leader = world.elect("a")
    world.run(0.3)
    leader.disk_stalls = True
    calls = [leader.put(bytes(1000)) for _ in range(30)]
    assert [call.settled[0].code for call in calls if call.settled] == [Code.BUSY] * 19
    leader.disk_stalls = False
    leader.drain()
    world.run(0.3)
    assert sum(call.outcome is Outcome.STORED for call in calls) == 11


def test_l11_a_follower_below_a_trimmed_head_is_not_flooded() -> None:
    world = World()
    leader = world.elect("a")
    for number in range(100):
        leader.propose(bytes(10_000) + b"%d" % number)
        world.pump()
    world.run(0.5)
    world["c"].kill()
    for member in world.alive:
        member.machine.saved = int(member.machine.applied_index)
        member.machine.needed = member.log.last_position
        member.group._wiring.applying._trim_at = 0.0
        member.log.trim_head(member.log.last_position, LogIndex(member.log.last_index - 1))
        member.drain()
    leader.put(b"more")
    world.run(0.5)
    assert leader.log.first_index > 10
    world["c"].wipe()
    world["c"].start()
    world.sent.clear()
    world.run(2.0)
    to_it = [message for source, target, message in world.sent if (source, target) == ("a", "c")]
    assert len(to_it) < 80
    assert world["c"].role is Role.QUARANTINED
    assert "refilled to entry 1 of" in world["c"].group.status().reason
    assert leader.group.status().peers[1].next_index < leader.log.first_index


def test_l12_a_lost_vote_is_given_again() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    term = leader.group.term
    leader.kill()
    world.until(lambda: any(member.group.term > term for member in world.alive), 3.0)
    for pair in (("b", "c"), ("c", "b")):
        kept = [each for each in world.waiting(*pair) if not isinstance(each, VoteAnswer)]
        assert len(kept) <= len(world.waiting(*pair))
    lost = 0
    world = World()
    world.elect("a")
    world.run(0.3)
    world.hold_all()
    candidate = world["c"]
    candidate.group._wiring.elections.campaign("test")
    candidate.drain()
    term = candidate.group.term
    for _ in range(3):
        world.deliver("c", "b")
        lost += sum(isinstance(each, VoteAnswer) for each in world.waiting("b", "c"))
        world.queues["b", "c"].clear()
        world.run(0.11)
    world.deliver("c", "b")
    world.deliver("b", "c")
    assert lost >= 2
    assert (candidate.role, candidate.group.term) == (Role.LEADER, term)


def test_l15_leadership_moves_under_load_without_a_failed_call() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    calls: list[Call] = []
    told: list[tuple[bool, str]] = []
    for number in range(60):
        calls += world["a"].propose(b"%d" % number)
        if number == 20:
            leader.group.transfer(None, lambda done, why: told.append((done, why)), world.now)
            leader.drain()
        world.run(0.01)
    world.run(1.0)
    assert [done for done, _ in told] == [True]
    assert world.leader is not leader
    outcomes = [call.settled[0] for call in calls]
    assert {each.outcome for each in outcomes} == {Outcome.STORED, Outcome.NOT_STORED}
    refused = [each for each in outcomes if each.outcome is Outcome.NOT_STORED]
    assert {each.code for each in refused} <= {Code.NOT_LEADER, Code.NO_LEADER}
    assert all(each.index == 0 for each in refused), "none of them was ever proposed"
    assert any(each.detail == world.leader.name for each in refused)


def test_l15_a_transfer_to_a_member_that_is_away_ends_and_admission_resumes() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    world.isolate("c")
    leader.put(b"one")
    world.run(0.2)
    told: list[tuple[bool, str]] = []
    leader.group.transfer(MemberId("c"), lambda done, why: told.append((done, why)), world.now)
    call = leader.put(b"two")
    world.run(0.5)
    assert call.outcome is None, "it waits"
    world.run(1.0)
    assert [done for done, _ in told] == [False]
    assert call.outcome is Outcome.STORED
    assert leader.role is Role.LEADER


def test_l15_leadership_is_not_handed_over_before_everything_is_drained() -> None:
    """The entry is on both followers; its caller must still hear of it from this member."""
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    leader.disk_stalls = True
    call = leader.put(b"one")
    world.run(0.2)
    leader.group.transfer(MemberId("b"), lambda _done, _why: None, world.now)
    world.run(0.4)
    assert call.outcome is None
    assert leader.role is Role.LEADER
    leader.disk_stalls = False
    leader.drain()
    world.run(0.5)
    assert call.outcome is Outcome.STORED
    assert world.leader is world["b"]


def test_transfer_refuses_what_makes_no_sense() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    told: list[str] = []
    for member, target in ((world["b"], None), (leader, MemberId("x"))):
        member.group.transfer(target, lambda _done, why: told.append(why), world.now)
    assert told[0] == "this member does not lead"
    assert "'x' is not one of" in told[1]


def test_transfer_to_who_leads_is_done_unless_it_hands_over_just_now() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    told: list[tuple[bool, str]] = []
    leader.group.transfer(MemberId("a"), lambda *outcome: told.append(outcome), world.now)
    assert told == [(True, "")]
    world.isolate("b")
    leader.group.transfer(MemberId("b"), lambda *_outcome: None, world.now)
    leader.group.transfer(MemberId("a"), lambda *outcome: told.append(outcome), world.now)
    assert told[1:] == [(False, "a transfer is under way")]


def test_l16_an_unknown_sender_is_ignored() -> None:
    world = World()
    member = world.elect("a")
    for _ in range(3):
        member.group.receive(MemberId("z"), TermNotice(99), world.now)
    assert member.group.term < 99
    assert [each["sender"] for each in member.trace.named("refused")] == ["z"]


def test_d17_a_silent_leader_is_replaced_within_its_timeouts() -> None:
    worst = 0.0
    for seed in range(10):
        world = World(seed=seed)
        leader = world.elect()
        world.run(0.3)
        leader.paused = True
        worst = max(worst, world.until_led(4.0, other_than=leader))
        leader.paused = False
        world.run(1.0)
        assert leader.role is Role.FOLLOWER
    assert worst <= 1.6


def test_d17_a_refused_redial_starts_an_election_at_once_and_votes_split_briefly() -> None:
    for seed in range(10):
        world = World("abcde", seed=seed)
        leader = world.elect()
        world.run(0.3)
        leader.kill()
        assert world.until_led(3.0) <= 0.6


@pytest.mark.parametrize("winner_dies", [False, True])
def test_d17_a_voter_helps_nobody_to_depose_the_winner(winner_dies: bool) -> None:
    world = World("abcde")
    world.elect("a").kill()
    world.hold_all()
    voter, winner = world["c"], world["b"]
    winner.group._wiring.elections.campaign("test")
    winner.drain()
    world.deliver("b", "c")
    assert voter.trace.named("vote")[-1]["candidate"] == "b"

    def would_vote(number: int, sender: str) -> bool:
        term, last = voter.group.term + 1, voter.log.last_index
        world.inject(sender, "c", PreVote(number, term, last, voter.log.last_term))
        answer = world.waiting("c", sender)[-1]
        assert isinstance(answer, PreVoteAnswer)
        assert answer.number == number
        return answer.granted

    assert not would_vote(1, "d")
    assert would_vote(2, "b"), "its own round was lost"
    if winner_dies:
        winner.kill()
    else:
        world.run(0.06)
    assert would_vote(3, "d"), "the winner did not speak"


def test_d17_one_broken_link_to_a_healthy_leader_changes_nothing() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    term = leader.group.term
    world.disconnect("a", "b")
    world.run(5.0)
    assert leader.role is Role.LEADER
    assert leader.group.term == term
    asked = [m for s, _, m in world.sent if s == "b" and isinstance(m, PreVote)]
    assert len(asked) < 30, "a lone member stays quiet"


def test_a_hanging_disk_hands_leadership_over_and_does_not_campaign() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    leader.disk_stalls = True
    call = leader.put(b"one")
    world.run(4.0)
    assert world.leader is not leader
    assert leader.trace.named("disk_hangs")
    assert world.leader.machine.values == [b"one"]
    assert call.outcome is Outcome.UNKNOWN
    assert "the disk hangs" in leader.group.status().reason
    world.leader.kill()
    world.run(5.0)
    assert not leader.trace.named("campaign")[1:]
    leader.disk_stalls = False
    leader.drain()
    world.run(3.0)
    assert world.leaders


def test_i16_a_write_that_failed_ends_the_member() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    world.hold_all()
    leader.fail_next = OSError(5, "I/O error")
    call = leader.put(b"one")
    assert leader.role is Role.STOPPED
    assert call.outcome is Outcome.UNKNOWN
    late = leader.put(b"two")
    assert (late.settled[0].code, late.outcome) == (Code.STORAGE_FAILED, Outcome.NOT_STORED)
    world.sent.clear()
    leader.group.tick(world.now + 10)
    leader.drain()
    assert world.sent == []


def test_d8_a_member_with_a_wrong_clock_says_so_and_lets_others_lead() -> None:
    for seed in range(5):
        world = World(seed=seed)
        world["b"].clock.wall_offset_ms = 5_000
        leader = world.elect()
        world.run(1.0)
        if leader is world["b"]:
            assert abs(leader.group.status().clock_offset_ms - 5_000) < 100
            continue
        status = world["b"].group.status()
        assert abs(status.clock_offset_ms - 5_000) < 100
        assert "off the majority's" in status.reason
        leader.kill()
        world.until_led(5.0)
        assert world.leader is not world["b"]


def test_d8_stamps_never_go_back() -> None:
    world = World()
    leader = world.elect("a")
    leader.put(b"one")
    world.run(0.2)
    before = leader.log.last_time_ms
    leader.clock.wall_offset_ms = -60_000
    leader.put(b"two")
    world.run(0.2)
    assert leader.log.last_time_ms == before


def test_l7_what_was_cut_is_told_when_its_member_leads_again_at_once() -> None:
    """Nothing more may ever come to the indexes that it had used, in an idle group."""
    world = World()
    leader = world.elect("a")
    world.isolate("a")
    calls = [leader.put(b"lost %d" % number) for number in range(6)]
    world.until_led(5.0, other_than=leader)
    world.heal()
    world.until(lambda: leader.role is Role.FOLLOWER, 2.0)
    world.run(0.15)
    world.leader.group.transfer(MemberId("a"), lambda _done, _why: None, world.now)
    world.leader.drain()
    world.until(lambda: leader.role is Role.LEADER, 2.0)
    world.run(1.0)
    assert all(call.outcome in (Outcome.NOT_STORED, Outcome.UNKNOWN) for call in calls)
    assert all(value not in leader.machine.values for value in (b"lost 0", b"lost 5"))
