"""Disks that do not hold what they held: damage met while refilling, older copies put back."""

import pytest

from dledger.raft.api import PeerStatus, Role
from dledger.raft.wire import messages
from dledger.types import MemberId
from dledger_proto.errors import Code, Outcome
from dledger_proto.exit_codes import Exit
from tests.scenarios.stage import LOW_WATER_BYTES, Stage
from tests.sim.clients.requests import ReadBounds, TrimQueue


def test_damage_met_while_filling_another_member_is_mended() -> None:
    """Older damage is found on read (I15): the leader sends no damaged byte, and leads on.

    Else the late member never gets it, while the leader believes that it is being filled.
    """
    stage = Stage("abc", tail_cache_bytes=0).formed()
    stage.isolate("c")
    for number in range(40):
        stage.put("a", f"v{number}", 500)
        stage.run_for(0.01)
    member = stage.members["a"]
    ref = stage.group.facts.members["a"].log[10]
    place = member.view.place(ref)
    assert place is not None
    member.flip(place[0], place[1] + ref.size - 20)
    member.damaged = "entry 10"
    stage.join()
    stage.run_until(lambda: member.view.holds(ref), 10.0, "a peer mends the leader's damage")
    member.note_mended()
    assert stage.leads("a")
    stage.finish()


# An old copy of a data folder: it has forgotten what it acknowledged, and its votes.


def _peer(stage: Stage, name: str, peer: str) -> PeerStatus:
    process = stage.members[name].process
    assert process is not None, f"{name} does not run"
    return next(each for each in process.group.status().peers if each.member == MemberId(peer))


def _life(stage: Stage, name: str) -> str:
    process = stage.members[name].process
    assert process is not None, f"{name} does not run"
    return process.group.status().incarnation


def _trusted(stage: Stage, name: str) -> bool:
    return stage.members[name].role in (Role.FOLLOWER, Role.LEADER)


@pytest.mark.parametrize("while_away", [0, 5])
def test_an_old_copy_under_a_steady_leader_begins_a_new_life(while_away: int) -> None:
    """The leader knows what it acknowledged in this reign; it was never refilled before."""
    stage = Stage("abc").formed()
    old = stage.copy_disk("b")
    life = _life(stage, "b")
    stage.put_all("a", [f"v{number}" for number in range(10)])
    stage.settle()
    stage.members["b"].kill()
    stage.put_all("a", [f"w{number}" for number in range(while_away)])
    stage.settle()
    stage.put_back("b", old)
    stage.isolate("c")  # so that b's quarantine lasts
    stage.start_member("b")
    stage.run_until(lambda: stage.members["b"].role is Role.QUARANTINED, 2.0, "b is told")
    stage.run_for(0.1)
    assert stage.counts["event forgotten"] == stage.counts["event life_renewed"] == 1
    assert _life(stage, "b") != life
    stage.join()
    stage.run_until(lambda: _trusted(stage, "b"), 10.0, "it is refilled and trusted again")
    assert not _peer(stage, stage.leader, "b").refused
    assert stage.counts["event forgotten"] == 1
    stage.finish()


def test_a_member_of_an_old_copy_counts_no_more_and_says_why() -> None:
    """At once, not when it has been told: nothing of what it acknowledged holds."""
    stage = Stage("abc").formed()
    old = stage.copy_disk("b")
    stage.put_all("a", [f"v{number}" for number in range(10)])
    stage.settle()
    matched = _peer(stage, "a", "b").match_index
    stage.put_back("b", old)
    # b hears nothing of what a says of it, only hellos that say nothing of it.
    stage.filters.append(
        lambda _source, target, message: (
            target == "b" and isinstance(message, messages.Hello) and message.forgotten
        )
    )
    stage.start_member("b")
    stage.run_until(lambda: bool(_peer(stage, "a", "b").refused), 2.0, "a notices")
    status = _peer(stage, "a", "b")
    assert status.match_index == 0
    assert status.refused.startswith(f"an old copy of its data: it acknowledged entry {matched},")
    process = stage.members["a"].process
    assert process is not None
    assert process.group._wiring.replication.trim_floor() == 0
    stage.isolate("c")
    put = stage.put("a", "x")
    stage.run_for(5.0)
    assert not put.stored, "a and the old copy are no majority"
    assert not stage.leads("a"), "nor does it hear one"
    stage.filters.clear()
    stage.join()
    stage.run_until(lambda: _trusted(stage, "b"), 15.0, "b begins a new life in the end")
    stage.finish()


def test_an_old_copy_elects_nobody_who_misses_its_commits() -> None:
    """a commits e with b alone, b's disk is put back from before, a goes away: c misses e, and b
    has forgotten it. Together they must not lead.
    """
    stage = Stage("abc").formed()
    old = stage.copy_disk("b")
    stage.isolate("c")
    put = stage.put("a", "e")
    stage.run_until(lambda: put.stored, 1.0, "e is committed with b alone")
    stage.put_back("b", old)
    stage.start_member("b")
    stage.run_until(lambda: stage.members["b"].role is Role.QUARANTINED, 2.0, "b is told")
    stage.isolate("a")
    stage.join_pair("b", "c")
    stage.run_for(8.0)
    assert stage.leader in ("", "a")
    stage.join()
    stage.run_until(lambda: _trusted(stage, "b"), 15.0, "b is trusted again")
    stage.finish()


def test_an_old_copy_of_an_earlier_term_is_noticed_by_whoever_heard_the_later_one() -> None:
    """After a change of leader: b followed in a later term, said so to c, and knows only the
    earlier one. a, who leads, is not reached; c tells b.
    """
    stage = Stage("abc").formed()
    stage.elect("c")
    stage.join()
    stage.settle()
    old = stage.copy_disk("b")
    term = stage.term("b")
    stage.elect("a")
    stage.join()
    stage.settle()
    assert stage.term("b") > term
    stage.cut("b", "c")
    stage.join_pair("b", "c")  # b says hello to c: in which term it is
    stage.settle()
    assert stage.leads("a")
    stage.put_back("b", old)
    stage.cut("a", "b")
    stage.start_member("b")
    stage.run_until(lambda: stage.members["b"].role is Role.QUARANTINED, 2.0, "c tells b")
    assert any("event c forgotten" in line and "promised term" in line for line in stage.lines)
    stage.join()
    stage.run_until(lambda: _trusted(stage, "b"), 15.0, "b is trusted again")
    stage.finish()


@pytest.mark.parametrize("seed", range(1, 5))
def test_an_old_copy_that_leads_steps_down_when_it_is_told(seed: int) -> None:
    """b knows what a has forgotten and cannot say so; c, restarted, does not know, and makes a the
    leader once it is filled again. As soon as b is heard, a must lead no more.
    """
    stage = Stage("abc", seed).formed()
    old = stage.copy_disk("a")
    stage.elect("b")
    stage.join()
    stage.settle()
    stage.put_back("a", old)
    for stop in (stage.members["c"].kill, stage.members["c"].start):
        stop()

    def tells(source: str, target: str, message: messages.Message) -> bool:
        is_told = isinstance(message, messages.Hello) and message.forgotten
        return is_told and (source, target) == ("b", "a")

    stage.filters.append(tells)
    stage.start_member("a")
    stage.run_until(lambda: bool(stage.counts["event forgotten"]), 2.0, "b notices")
    stage.elect("c")
    stage.settle()
    stage.members["c"].transfer("a")
    stage.run_until(lambda: stage.leads("a"), 5.0, "a leads")
    stage.filters.remove(tells)
    stage.join()
    stage.run_until(lambda: stage.counts["event life_renewed"] == 1, 5.0, "b tells a")
    stage.run_until(lambda: stage.leader in ("b", "c"), 5.0, "another one leads")
    stage.run_until(lambda: _trusted(stage, "a"), 15.0, "a is trusted again")
    stage.finish()


def test_an_old_copy_forgets_no_vote_of_the_present_term() -> None:
    """b votes for a in a new term and its disk is put back. a hears of it, and b, who has
    forgotten, must not vote for c in the same term.
    """
    stage = Stage("abc").formed()
    old = stage.copy_disk("b")
    term = stage.term("b")
    stage.elect("c")
    stage.join()
    stage.settle()
    stage.elect("a")
    stage.join()
    stage.settle()
    assert stage.term("a") > term + 1
    stage.put_back("b", old)
    stage.cut("b", "c")
    stage.start_member("b")
    stage.run_until(lambda: stage.members["b"].role is Role.QUARANTINED, 2.0, "a tells b")
    stage.isolate("a")
    stage.join_pair("b", "c")
    stage.run_for(5.0)
    assert not stage.leads("c"), "b is not trusted"
    stage.join()
    stage.run_until(lambda: _trusted(stage, "b"), 15.0, "b is trusted again")
    stage.finish()


def test_an_old_copy_heeds_who_began_a_new_life_since() -> None:
    """b's copy knows c by the life before c's disk was lost, so it refuses c: but what c says of b
    is true whoever c is. Else b and a, who was restarted and knows of nothing, would be a majority.
    """
    stage = Stage("abc").formed()
    old = stage.copy_disk("b")
    stage.members["c"].power_cut()
    stage.group.wipe("c")
    stage.start_member("c")
    stage.run_until(lambda: _trusted(stage, "c"), 15.0, "c is trusted in a new life")
    stage.elect("c")
    stage.join()
    stage.settle()
    stage.put_back("b", old)
    stage.cut("a", "b")
    stage.start_member("b")
    stage.run_until(lambda: stage.members["b"].role is Role.QUARANTINED, 2.0, "c tells b")
    stage.join()
    stage.run_until(lambda: _trusted(stage, "b"), 15.0, "b is trusted again")
    stage.finish()


def test_a_copy_from_before_the_group_formed_is_not_adopted_as_new() -> None:
    """It has the life that the first entry lists, and no data: an honest newcomer looks alike."""
    stage = Stage("abc", start="ab")
    stage.start_member("c")
    stage.run_until(lambda: stage.members["c"].running, 1.0, "c starts")
    old = stage.copy_disk("c")
    assert stage.members["c"].view.hard_state() is not None
    life = _life(stage, "c")
    stage.formed()
    stage.put("a", "v")
    stage.settle()
    stage.put_back("c", old)
    stage.start_member("c")
    stage.run_until(lambda: stage.members["c"].running, 1.0, "c starts again")
    assert _life(stage, "c") == life
    stage.isolate("b")
    stage.run_for(2.0)
    assert not _trusted(stage, "c")
    stage.join()
    stage.run_until(lambda: _trusted(stage, "c"), 15.0, "c is trusted in a new life")
    assert _life(stage, "c") != life
    stage.finish()


def test_a_copy_from_before_the_group_formed_is_told_while_it_is_being_adopted() -> None:
    """b, who was restarted, takes it for new, and its disk is slow; then a says what it promised.
    It took part in its old life until a had said so once more: it could have voted.
    """
    stage = Stage("abc", start="ab")
    stage.start_member("c")
    stage.run_until(lambda: stage.members["c"].running, 1.0, "c starts")
    old = stage.copy_disk("c")
    life = _life(stage, "c")
    stage.formed()
    stage.put("a", "v")
    stage.settle()
    stage.put_back("c", old)
    stage.members["b"].kill()
    stage.start_member("b")
    stage.settle()
    stage.cut("a", "c")
    stage.members["c"].disk.hang()
    stage.start_member("c")
    stage.settle()
    stage.join_pair("a", "c")
    stage.run_until(lambda: stage.counts["event forgotten"] > 0, 2.0, "a notices")
    stage.settle()
    stage.members["c"].disk.quick()
    roles = set[Role]()

    def noted() -> bool:
        roles.add(stage.members["c"].role)
        return Role.QUARANTINED in roles

    stage.run_until(noted, 2.0, "c takes part, in quarantine")
    assert Role.FOLLOWER not in roles
    assert stage.counts["event life_renewed"] == 1
    assert _life(stage, "c") != life
    stage.join()
    stage.run_until(lambda: _trusted(stage, "c"), 15.0, "c is trusted in a new life")
    stage.finish()


def test_a_renewed_life_is_on_disk_and_the_one_before_is_refused() -> None:
    """A restart goes on with the new life; the copy put back once more is of an earlier one."""
    stage = Stage("abc").formed()
    old, older = stage.copy_disk("b"), stage.copy_disk("b")
    stage.put_all("a", [f"v{number}" for number in range(10)])
    stage.settle()
    stage.put_back("b", old)
    stage.isolate("c")
    stage.start_member("b")
    stage.run_until(lambda: stage.members["b"].role is Role.QUARANTINED, 2.0, "b is told")
    stage.run_for(0.2)
    life = _life(stage, "b")
    stage.members["b"].power_cut()
    stage.start_member("b")
    stage.run_for(0.2)
    assert _life(stage, "b") == life
    assert stage.members["b"].role is Role.QUARANTINED
    stage.join()
    stage.run_until(lambda: _trusted(stage, "b"), 15.0, "b is trusted again")
    stage.put_back("b", older)
    stage.start_member("b")
    stage.run_for(3.0)
    assert _peer(stage, "a", "b").refused.endswith("is of an earlier life")
    stage.members["b"].power_cut()
    stage.group.wipe("b")
    stage.finish()


# Disks with little room (I16).


def _leave(stage: Stage, names: str, bytes_left: int | None) -> None:
    for name in names:
        member = stage.members[name]
        if bytes_left is None:
            stage.make_room(name)
        else:
            member.disk.leave(bytes_left)
            member.poll_disk()
    stage.run_for(0.3)


def _ask(stage: Stage, name: str, request: object) -> Code:
    """Let a member answer a request; return the code."""
    codes: list[Code] = []
    stage.ask(name, request, codes.append)
    stage.run_until(lambda: bool(codes), 5.0, f"{request} is answered")
    return codes[0]


def test_a_group_without_room_for_writes_elects_serves_and_takes_a_trim() -> None:
    """Below the mark for writes a new leader's first entry was dropped by all: no read was
    confirmed any more, and no trim could make room.
    """
    stage = Stage("abc").formed()
    stage.put_all("a", ["v0", "v1"])
    stage.settle()
    low = LOW_WATER_BYTES // 4 * 3
    _leave(stage, "abc", low)
    stage.elect("b")
    refused = stage.put("b", "more")
    stage.settle()
    assert refused.outcome is Outcome.NOT_STORED
    queue = stage.plan.queues[0]
    assert _ask(stage, "b", ReadBounds(queue)) is Code.OK
    assert _ask(stage, "b", TrimQueue(queue, 0)) is Code.OK  # all values are compared below
    _leave(stage, "abc", None)
    stage.join()
    stage.finish()


def test_nothing_is_taken_that_only_members_without_room_could_store() -> None:
    """It would be undecided for its whole deadline; a refusal is definite."""
    stage = Stage("abc").formed()
    stage.put("a", "v0")
    stage.settle()
    _leave(stage, "bc", LOW_WATER_BYTES // 4 * 3)
    refused = stage.put("a", "v1")
    stage.settle()
    assert refused.outcome is Outcome.NOT_STORED
    _leave(stage, "c", None)
    taken = stage.put("a", "v2")
    stage.settle()
    assert taken.stored
    _leave(stage, "b", None)
    stage.finish()


def test_a_disk_that_fails_at_the_very_end_is_told_by_the_exit_code() -> None:
    """Sim seed 133: closing the log raised past the drain, and other groups were not closed."""
    stage = Stage("abc").formed()
    stage.put("a", "v")
    stage.settle()
    member = stage.members["b"]
    member.disk.fail("write")
    member.stop()
    stage.run_until(lambda: not member.running, 10.0, "b ends")
    assert any(f"exit b code {int(Exit.STORAGE)}" in line for line in stage.lines)
    member.disk.repair()
    stage.finish()
