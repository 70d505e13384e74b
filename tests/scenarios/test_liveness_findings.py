"""The liveness findings L1-L12 of docs/raft-findings.md as scripts, with default timeouts.

Bounds are virtual seconds; what the unmodified library needed stands in each docstring.
"""

import pytest

from dledger.log.hard_state import load_hard_state, store_hard_state
from dledger.raft.commit.gathering import GATHER_SECONDS
from dledger.raft.wire import messages
from dledger.types import Term
from dledger_proto.errors import Code, Outcome
from tests.scenarios.stage import Put, Stage
from tests.sim.clients.requests import TrimQueue
from tests.sim.faults.damage import FOLDER
from tests.sim.member.convinced import Convinced
from tests.sim.world.plan import KIB


def _is_append(message: messages.Message) -> bool:
    return isinstance(message, messages.AppendRequest)


def _probe(stage: Stage, seconds: int) -> list[Put]:
    """Put one record each second at whoever leads."""
    puts: list[Put] = []
    for number in range(seconds):
        stage.run_for(1.0)
        if stage.leader:
            puts.append(stage.put(stage.leader, f"probe{number}"))
    stage.run_for(1.0)
    return puts


def test_l1_a_member_that_only_sends_disturbs_nobody() -> None:
    """L1: term +62 and 62 leader changes in 60 s; now none."""
    stage = Stage("abc").formed()
    term = stage.term("a")
    stage.filters.append(lambda source, target, message: target == "c")
    puts = _probe(stage, 60)
    assert stage.leader == "a"
    assert stage.term("a") == term
    assert all(put.stored for put in puts)
    assert len(puts) == 60
    stage.finish()


def test_l1_a_member_that_misses_only_the_leader_disturbs_nobody() -> None:
    """A complete log is no reason for a vote while the leader is heard (stickiness)."""
    stage = Stage("abc").formed()
    term = stage.term("a")
    stage.filters.append(lambda source, target, message: (source, target) == ("a", "c"))
    stage.run_for(20.0)
    assert stage.leader == "a"
    assert stage.term("a") == term
    stage.finish()


@pytest.mark.parametrize("seed", range(10))
def test_l2_a_resumed_follower_deposes_nobody(seed: int) -> None:
    """L2: 20 of 20 runs elected anew after a follower was stopped for 3 s; now none."""
    stage = Stage("abc", seed).formed()
    term = stage.term("a")
    stage.members["b"].pause()
    stage.run_for(3.0)
    stage.members["b"].resume()
    stage.run_for(3.0)
    assert stage.leader == "a"
    assert stage.term("a") == term


@pytest.mark.parametrize("seed", range(10))
def test_l2_a_pause_of_all_followers_deposes_nobody(seed: int) -> None:
    """L2 where stickiness does not help: neither follower has heard a leader for long."""
    stage = Stage("abc", seed).formed()
    term = stage.term("a")
    for name in "bc":
        stage.members[name].pause()
    stage.filters.append(lambda source, target, message: source == "a")  # still on its way
    stage.run_for(0.75)  # less than what a leader bears, more than a follower
    stage.filters.clear()
    for name in "bc":
        stage.members[name].resume()
    stage.run_for(3.0)
    assert stage.leader == "a"
    assert stage.term("a") == term


def test_l3_an_isolated_leader_steps_down_soon() -> None:
    """L3: two members called themselves leader for 28.8 s; now for less than two timeouts."""
    stage = Stage("abc").formed()
    stage.filters.append(lambda source, target, message: "a" in (source, target))  # unnoticed
    both = 0.0
    for _ in range(1_000):
        stage.run_for(0.01)
        both += 0.01 * (stage.leads("a") and (stage.leads("b") or stage.leads("c")))
    assert not stage.leads("a")
    assert both < 2.0, f"two leaders for {both:.2f} s"
    stage.finish()


def test_l4_a_deposed_leader_rejoins_at_once() -> None:
    """L4: one index per heartbeat: 80 s for 800 uncommitted entries; now less than 2 s."""
    stage = Stage("abc").formed()
    stage.isolate("a")
    for number in range(400):
        stage.put("a", f"x{number}")
        stage.run_for(0.0005)
    stage.run_until(lambda: stage.leader in ("b", "c"), 5.0, "another leads")
    leader = stage.leader
    for number in range(400):
        stage.put(leader, f"y{number}")
        stage.run_for(0.0005)
    stage.run_for(1.0)
    other = "c" if leader == "b" else "b"
    stage.members[leader].transfer(other)  # whose view of the deposed one begins at its own end
    stage.run_until(lambda: stage.leads(other), 3.0, "leadership moves on")
    process = stage.members[other].process
    assert process is not None
    stage.keep_sent = True
    stage.join()

    def rejoined() -> bool:
        other = stage.members["a"].process
        return other is not None and other.machine.applied_index >= process.machine.applied_index

    took = stage.run_until(rejoined, 20.0, "the deposed leader rejoins")
    assert took < 2.5, f"{took:.2f} s (the link's own back-off is up to 1 s)"
    tries = sum(target == "a" for _, _, target, message in stage.sent if _is_append(message))
    assert tries < 20, f"{tries} append messages to find where the logs agree"
    stage.finish()


def test_l5_a_refused_batch_does_not_stop_the_group() -> None:
    """L5: one raising command: 2,044 exceptions, no later write succeeded."""
    stage = Stage("abc").formed()
    from dledger.types import EntryKind
    from dledger_proto.batch.codec import Record, encode_batch

    poison = encode_batch(
        [Record(b"x")], topic_id=b"\x01" * 16, queue=1, stamp=None, base_number=1, base_time_ms=1
    )
    process = stage.members["a"].process
    assert process is not None
    ignored = lambda outcome: None  # noqa: E731
    stage.members["a"].input(process.group.propose, EntryKind.BATCHES, [poison], ignored)
    puts = _probe(stage, 10)
    assert len(puts) == 10
    assert all(put.stored for put in puts)
    stage.finish()


@pytest.mark.parametrize("size", [70_000, 400_000, 1_500_000])
def test_l6_big_entries_travel_whole(size: int) -> None:
    """L6: a binary entry above the batch size failed to unpickle 12 times."""
    stage = Stage("abc", segment_size=4 << 20).formed()
    put = stage.put("a", "big", size)
    took = stage.run_until(lambda: put.outcome is not None, 5.0, "the big entry is settled")
    assert put.stored
    assert took < 1.0
    stage.finish()


def test_l7_every_proposal_is_settled() -> None:
    """L7: after 120 s neither success nor failure; now unknown, when the leader steps down."""
    stage = Stage("abc").formed()
    stage.isolate("a")
    put = stage.put("a", "q")
    stage.run_until(lambda: put.outcome is not None, 5.0, "the proposal is settled")
    assert put.outcome is Outcome.UNKNOWN
    stage.finish()


def test_l8_latency_is_not_clocked_by_the_heartbeat() -> None:
    """L8: 98 ms for a write on a zero-latency network; now round trip and two syncs."""
    stage = Stage("abc").formed()
    for number in range(20):
        put = stage.put("a", f"v{number}")
        took = stage.run_until(lambda put=put: put.stored, 1.0, "the put is stored")  # type: ignore[misc]
        assert took < 0.03, f"{took * 1e3:.0f} ms"


def test_what_a_quiet_leader_begins_to_say_is_repeated_after_a_heartbeat() -> None:
    """Heartbeats are slow while there is nothing to say; an entry that is lost ends that."""
    stage = Stage("abc").formed()
    stage.run_for(3.0)
    stage.keep_sent = True
    stage.run_until(lambda: bool(stage.sent), 1.0, "a heartbeat leaves: the next is far")
    losing = [True]
    stage.filters.append(lambda source, target, message: losing[0] and source == "a")
    began = stage.scheduler.now
    put = stage.put("a", "v")
    stage.run_for(0.01)
    losing[0] = False
    stage.run_until(lambda: put.stored, 1.0, "the put is stored")
    took = stage.scheduler.now - began
    assert took < 1.5 * stage.plan.heartbeat, f"{took * 1e3:.0f} ms"
    stage.finish()


def test_l9_a_member_of_a_higher_term_is_heard() -> None:
    """L9: a member with a higher term got 0 entries in 60 s; now the group follows its term."""
    stage = Stage("abc").formed()
    stage.members["c"].kill()
    fs = stage.members["c"].fs
    from dataclasses import replace

    state = load_hard_state(fs, FOLDER)
    store_hard_state(fs, FOLDER, replace(state, term=Term(state.term + 5), vote=None))
    stage.start_member("c")
    stage.run_until(
        lambda: (
            bool(stage.leader) and stage.term(stage.leader) >= state.term + 5 and stage._converged()
        ),
        10.0,
        "all follow the higher term",
    )
    put = stage.put(stage.leader, "w")
    stage.settle()
    assert put.stored
    stage.finish()


def test_l10_the_uncommitted_tail_is_bounded() -> None:
    """L10: an isolated leader accepted 50,002 entries in 2 s."""
    stage = Stage("abc", segment_size=16 << 20).formed()
    stage.filters.append(lambda source, target, message: "a" in (source, target))
    refused: list[Put] = []
    for number in range(300):
        put = stage.put("a", f"x{number}", 1_000_000)
        stage.run_for(0.0005)  # it becomes an entry: what waits is bounded by itself
        if put.settled is not None and put.settled.code is Code.BUSY:
            refused.append(put)
            break
    assert refused, "300 MB were accepted without a quorum"
    assert refused[0].outcome is Outcome.NOT_STORED
    stage.finish()


def test_l11_a_late_follower_is_not_flooded() -> None:
    """L11: 36,000 empty messages per second to one follower."""
    stage = Stage("abc").formed()
    stage.isolate("c")
    stage.put_all("a", [f"v{i}" for i in range(50)])
    stage.run_for(1.0)
    stage.join()
    stage.filters.append(lambda source, target, message: source == "c")  # it never answers
    stage.keep_sent = True
    stage.run_for(3.0)
    count = sum(target == "c" for _, source, target, _ in stage.sent if source == "a")
    assert count < 100, f"{count} messages in 3 s"
    stage.finish()


def test_l12_a_lost_vote_is_asked_for_again() -> None:
    """L12: a vote lost in transit was never granted again in that term."""
    stage = Stage("abc").formed()
    lost: list[messages.Message] = []

    def lose_first(source: str, target: str, message: messages.Message) -> bool:
        if isinstance(message, messages.VoteAnswer) and len(lost) < 1:
            lost.append(message)
            return True
        return False

    stage.filters.append(lose_first)
    stage.isolate("a")
    stage.run_until(lambda: bool(lost), 3.0, "a vote is lost")
    took = stage.run_until(lambda: stage.leader in ("b", "c"), 3.0, "another leads")
    assert took < 0.25, f"{took:.3f} s; the request is repeated after a heartbeat, 0.1 s"
    stage.finish()


def test_the_head_is_kept_for_a_late_member() -> None:
    """No head is trimmed past the slowest member's match index."""
    stage = Stage("abc", segment_size=16 << 10).formed()
    stage.isolate("c")
    for number in range(60):
        stage.put("a", f"v{number}", 1_000)
        stage.run_for(0.01)
    answers: list[Code] = []
    queue = stage.plan.queues[0]
    stage.oracle.minimums[queue] = 50
    stage.ask("a", TrimQueue(queue, 50), answers.append)
    for number in range(60, 80):
        stage.put("a", f"v{number}", 1_000)
        stage.run_for(0.2)
    assert answers == [Code.OK]
    stage.join()
    stage.run_until(stage._converged, 10.0, "the late member is filled")
    assert not stage.counts["started anew"], "it had to be refilled"
    process = stage.members["a"].process
    assert process is not None
    stage.run_until(lambda: process.log.first_index > 1, 10.0, "then the head is trimmed")


def test_a_broken_connection_elects_within_a_fraction_of_the_timeout() -> None:
    """D17: a killed leader is replaced without waiting for the election timer."""
    stage = Stage("abc").formed()
    stage.members["a"].kill()
    took = stage.run_until(lambda: stage.leader in ("b", "c"), 3.0, "another leads")
    assert took < 0.4, f"{took:.3f} s"
    stage.start_member("a")
    stage.finish()


def test_a_transfer_succeeds_under_load_and_fails_no_write() -> None:
    """L15: transfers were refused under load; now the leader drains and hands over."""
    stage = Stage("abc").formed()
    puts: list[Put] = []
    stage.members["a"].transfer("b")
    while not stage.leads("b"):
        puts.append(stage.put("a", f"v{len(puts)}"))
        stage.run_for(0.001)
        assert len(puts) < 500, "leadership is not handed over"
    stage.settle()
    assert all(put.outcome in (Outcome.STORED, Outcome.NOT_STORED) for put in puts)
    stage.finish()


def test_a_caller_who_stays_away_keeps_nobody_waiting() -> None:
    """Eight were outstanding, one comes back: it is stored when the bound on the wait is over."""
    stage = Stage("abc", gather_bytes=64 * KIB).formed()
    process = stage.members["a"].process
    assert process is not None
    process.group._wiring.proposals._gathering._trial = Convinced()
    puts = [stage.put("a", f"v{number}") for number in range(8)]
    stage.run_until(lambda: all(put.stored for put in puts), 1.0, "eight are stored")
    before = process.log.last_index
    alone = stage.put("a", "alone")
    stage.run_for(GATHER_SECONDS / 2)
    assert process.log.last_index == before, "it waits for the others"
    took = stage.run_until(lambda: alone.stored, 1.0, "it is stored")
    assert took < 2 * GATHER_SECONDS, f"{took:.3f} s"
    stage.finish()
