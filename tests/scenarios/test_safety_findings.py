"""The safety findings F1-F12 of docs/raft-findings.md as scripts against our group.

Each docstring says what the unmodified library does in this interleaving. The stage checks every
invariant after every step; `finish` demands convergence and every acknowledged put on all members.
"""

from typing import NoReturn

import pytest

from dledger.raft.api import Role
from dledger.raft.wire import message_codec, messages
from dledger_proto.errors import Outcome
from tests.scenarios.stage import Stage


def _is_append(message: messages.Message) -> bool:
    return isinstance(message, messages.AppendRequest)


def test_f1_a_deposed_leader_never_commits_its_own_suffix() -> None:
    """F1: a message that proves nothing raised the commit index to the end of a stale suffix."""
    stage = Stage("abc").formed()
    stage.put("a", "base")
    stage.settle()
    stage.isolate("a")
    lost = stage.put_all("a", ["lost0", "lost1", "lost2"])
    stage.elect("b")
    won = stage.put_all("b", [f"new{i}" for i in range(8)])
    stage.settle()
    assert all(put.stored for put in won)
    # Entries are dropped, so prev matches and the suffix stays.
    stage.members["a"].disk.leave(0)
    stage.members["a"].poll_disk()
    stage.stop("b", "a")
    stage.join("a")
    stage.run_for(0.8)
    while stage.deliver("b", "a", 1):  # one by one: each is a chance to commit too far
        stage.run_for(0.002)
    stage.flow("b", "a")
    stage.run_for(0.8)
    stage.make_room("a")
    stage.finish()
    assert not any(put.stored for put in lost)


def test_f2_a_range_sent_twice_cuts_nothing() -> None:
    """F2: two answers 'start over' in flight made the leader send twice; the second copy cut."""
    stage = Stage("abc").formed()
    stage.isolate("c")
    stage.stop("a", "b")
    stage.put_all("a", [f"v{i}" for i in range(6)])
    stage.run_for(0.35)  # several heartbeats, all in flight
    first = list(stage.stopped["a", "b"])
    stage.deliver("a", "b")
    stage.run_for(0.05)
    stage.stopped["a", "b"] += first  # the whole range again, as from a broken stream
    stage.deliver("a", "b")
    stage.run_for(0.05)
    for data in first[:3]:
        stage.members["b"].deliver("a", data)
    stage.flow("a", "b")
    stage.settle()
    assert all(put.stored for put in stage.puts)
    stage.members["a"].kill()
    stage.join("c")
    stage.elect("b")
    stage.put("b", "after")
    stage.settle()
    stage.join()
    stage.start_member("a")
    stage.finish()


def test_f3_an_acknowledgement_of_an_older_reign_counts_nothing() -> None:
    """F3: an answer without a term, delayed over two leader changes, made a false match index.

    a (term 1) holds a private suffix; c (term 2, vote of b) a private entry. a (term 3) replicates
    part of its suffix to b, whose acknowledgement is delayed. c (term 4, its last term beats b's)
    overwrites a, and hands over. a (term 5) appends; then b's old acknowledgement arrives.
    """
    stage = Stage("abc").formed()

    def campaign_of_b(source: str, _target: str, message: messages.Message) -> bool:
        return source == "b" and isinstance(message, messages.PreVote | messages.VoteRequest)

    stage.filters.append(campaign_of_b)
    stage.filters.append(
        lambda source, target, message: (source, target) == ("c", "b") and _is_append(message)
    )
    stage.isolate("a")
    for number in range(20):
        stage.put("a", f"old{number}", 100_000)
        stage.run_for(0.005)
    stage.elect("c")
    stage.filters.remove(campaign_of_b)
    stage.isolate("c")
    stage.cut("a", "c")
    stage.join_pair("a", "b")
    stale: list[bytes] = []

    def delay(source: str, target: str, message: messages.Message) -> bool:
        if (source, target) != ("b", "a") or not isinstance(message, messages.AppendAnswer):
            return False
        if message.matched:
            stale.append(b"".join(message_codec.encode(message)))
        return message.matched

    stage.filters.append(delay)
    stage.elect("a")
    stage.run_until(lambda: bool(stale), 3.0, "b acknowledges part of the suffix")
    stage.filters.remove(delay)
    stage.cut("a", "b")
    stage.join_pair("b", "c")
    stage.elect("c")
    stage.cut("b", "c")
    stage.join_pair("a", "c")
    stage.run_until(lambda: stage.log_end("a") == stage.log_end("c"), 5.0, "c overwrites a")
    stage.members["c"].transfer("a")
    stage.run_until(lambda: stage.leads("a"), 3.0, "a leads again")
    stage.cut("a", "c")
    puts = [stage.put("a", "new0")]
    while stage.log_end("a")[0] <= 15:  # an entry each, up to what b acknowledged
        stage.run_for(0.005)
        puts.append(stage.put("a", f"new{len(puts)}"))
    for data in stale:
        stage.members["a"].deliver("b", data)
    stage.run_for(0.1)
    assert not any(put.stored for put in puts)
    stage.finish()


def test_figure_8_entries_of_earlier_terms_are_not_committed_by_counting() -> None:
    """Raft 5.4.2: an old entry on a majority may still be overwritten by another leader."""
    stage = Stage("abc").formed()
    stage.isolate("a")
    stage.put("a", "x", 1_200_000)  # a message of its own
    stage.run_for(0.01)
    stage.filters.append(
        lambda source, target, message: (source, target) == ("b", "c") and _is_append(message)
    )
    stage.elect("b")  # a private entry of term 2 on b
    stage.isolate("b")
    stage.cut("a", "b")
    stage.join_pair("a", "c")
    last = stage.log_end("a")[0]

    def no_later(source: str, target: str, message: messages.Message) -> bool:
        if (source, target) != ("a", "c") or not stage.carries_beyond(message, last):
            return False
        # Its first try does not match, and tells it that c needs x.
        assert isinstance(message, messages.AppendRequest)
        return message.prev_index <= stage.log_end("c")[0]

    stage.filters.append(no_later)
    stage.elect("a")
    stage.run_until(lambda: stage.log_end("c")[0] == last, 3.0, "x is on a majority")
    stage.run_for(0.3)
    stage.members["a"].kill()
    stage.filters.clear()
    stage.join()
    stage.elect("b")
    stage.put("b", "y")
    stage.settle()
    stage.start_member("a")
    stage.finish()


def test_f4_f5_a_refilled_follower_acknowledges_only_what_it_holds() -> None:
    """F4, F5: a lost or repeated piece of a refill was acknowledged, or wiped newer entries.

    Here a late member is refilled by ordinary replication; pieces are lost and repeated.
    """
    stage = Stage("abc").formed()
    stage.isolate("c")
    stage.put_all("a", [f"v{i}" for i in range(40)])
    stage.settle()
    stage.stop("a", "c")
    stage.join("c")
    stage.run_for(0.5)
    kept = stage.stopped["a", "c"]
    appends = [data for data in kept if _is_append(message_codec.decode(data))]
    for place, data in enumerate(list(kept)):
        if place % 3 != 1:  # every third piece is lost while the stream stays up
            stage.members["c"].deliver("a", data)
    for data in appends[:2]:
        stage.members["c"].deliver("a", data)
    kept.clear()
    stage.flow("a", "c")
    stage.settle()
    stage.isolate("b")
    puts = stage.put_all("a", [f"acked{i}" for i in range(4)])
    stage.settle()
    assert all(put.stored for put in puts)
    stage.members["a"].kill()
    stage.join("b")
    stage.run_until(lambda: bool(stage.leader), 10.0, "somebody leads")
    stage.start_member("a")
    stage.finish()


def test_f6_a_kill_between_state_save_and_log_keeps_what_was_acknowledged() -> None:
    """F6: at start the journal was thrown away when it did not begin where the dump ended."""
    stage = Stage("abc").formed()
    stage.isolate("c")
    puts = stage.put_all("a", [f"v{i}" for i in range(5)])
    stage.settle()  # b has applied and saved these
    stage.stop("a", "b")
    late = stage.put_all("a", [f"w{i}" for i in range(5)])
    stage.run_for(0.02)
    stage.deliver("a", "b")
    stage.run_for(0.02)  # b has them on disk, does not know that they are committed
    assert all(put.stored for put in [*puts, *late])
    stage.members["b"].kill()
    stage.members["a"].kill()
    stage.flow("a", "b", deliver=False)
    stage.start_member("b")
    stage.join("c")
    stage.elect("b")
    stage.put("b", "z")
    stage.settle()
    assert stage.stored_values("b")[-6:] == [*(f"w{i}" for i in range(5)), "z"]
    stage.start_member("a")
    stage.finish()


def test_f8_a_vote_counts_once() -> None:
    """F8: votes were counted, not voters: a repeated answer made two leaders of one term."""
    stage = Stage("abcde").formed()
    leader = stage.leader
    one, two, *voters = [name for name in stage.names if name != leader]
    repeated: list[tuple[str, str]] = []

    def watch(source: str, target: str, message: messages.Message) -> bool:
        if isinstance(message, messages.PreVoteAnswer | messages.VoteAnswer) and message.granted:
            repeated.append((source, target))
            data = b"".join(message_codec.encode(message))
            for _ in range(3):
                stage.repeat(source, target, data)
        return False

    stage.filters.append(watch)
    stage.isolate(leader)
    for voter in voters[1:]:
        stage.cut(one, voter)
        stage.cut(two, voter)
    stage.cut(one, two)
    stage.run_for(5.0)  # one and two reach one voter each: two of five is nobody's majority
    assert repeated, "votes were answered"
    assert not any(stage.leads(name) for name in (one, two))
    stage.filters.clear()
    stage.join()
    stage.finish()


def test_f8_an_answer_to_a_repeated_request_counts_once() -> None:
    """F8 with answers that are not copies: a request is repeated while its answer is late."""
    stage = Stage("abcde").formed()
    leader = stage.leader
    candidate, voter, *_ = [name for name in stage.names if name != leader]
    late: list[bytes] = []

    def only_one_voter(source: str, target: str, message: messages.Message) -> bool:
        if isinstance(message, messages.PreVote | messages.VoteRequest) and source != candidate:
            return True
        if isinstance(message, messages.VoteRequest):
            return target != voter
        if isinstance(message, messages.VoteAnswer) and source == voter and message.granted:
            late.append(b"".join(message_codec.encode(message)))
            return True
        return False

    stage.filters.append(only_one_voter)
    stage.isolate(leader)
    stage.run_until(lambda: len(late) >= 3, 5.0, "the request is repeated")
    for data in late:
        stage.members[candidate].deliver(voter, data)
    assert not stage.leads(candidate), "two voters of five are no majority"
    stage.finish()


def test_f9_an_unknown_command_stops_the_member_and_is_never_skipped() -> None:
    """F9: an entry of an unsupported version was skipped; later ones met the wrong index."""
    from dledger.state.commands.registry import UnknownCommand

    stage = Stage("abc").formed()
    member = stage.members["b"]
    process = member.process
    assert process is not None
    member.expected_stop = (UnknownCommand,)
    applied = process.machine.applied_index

    def refuse(entry: object) -> NoReturn:
        raise UnknownCommand("command 99 is not known at format level 1")

    process.machine.apply = refuse  # type: ignore[method-assign]
    put = stage.put("a", "v0")
    stage.settle()
    assert put.stored
    assert process.group.role is Role.STOPPED
    assert process.machine.applied_index == applied
    assert member.process is None
    stage.start_member("b")
    stage.finish()


def test_f10_f11_an_acknowledgement_survives_the_power_cut_of_all() -> None:
    """F10, F11: nothing was ever synced: 50 acknowledged writes, no fsync."""
    stage = Stage("abc").formed()
    puts = stage.put_all("a", [f"v{i}" for i in range(50)])
    stage.run_until(lambda: all(put.stored for put in puts), 2.0, "all are acknowledged")
    for member in stage.members.values():
        member.power_cut()
    for name in stage.names:
        stage.start_member(name)
    stage.finish()


def test_f12_an_answer_to_a_dead_process_reaches_nobody() -> None:
    """F12: numbers began at 1 after a restart, so a late answer was bound to another request."""
    stage = Stage("abc").formed()
    stage.put("a", "first")
    stage.settle()
    stage.stop("a", "b")
    stage.put("a", "second")
    stage.run_for(0.3)
    held = list(stage.stopped["a", "b"])
    assert held
    stage.members["b"].kill()
    stage.flow("a", "b", deliver=False)
    stage.start_member("b")
    stage.run_for(0.05)
    for data in held:  # of the stream to the process before
        stage.members["b"].deliver("a", data)
    stage.run_for(0.05)
    for data in held:
        stage.members["b"].deliver("a", data)
    stage.settle()
    stage.finish()


def test_f13_a_leader_counts_itself_only_when_its_disk_holds_the_entry() -> None:
    """F13: the leader counted its own memory: one follower and no disk of its own were a quorum."""
    stage = Stage("abc").formed()
    stage.isolate("c")
    stage.members["a"].disk.hang()
    put = stage.put("a", "v0")
    stage.run_for(0.3)
    assert not put.stored
    stage.members["a"].power_cut()
    stage.members["a"].disk.quick()
    stage.join("c")
    stage.start_member("a")
    stage.finish()


@pytest.mark.parametrize("name", ["a", "b"])
def test_f16_a_stale_leader_confirms_no_read(name: str) -> None:
    """F16: an isolated leader answered reads for up to its fallback timeout, 30 s."""
    stage = Stage("abc").formed()
    stage.isolate("a")
    stage.elect("b")
    stage.put("b", "new")
    stage.run_for(0.1)
    process = stage.members["a"].process
    assert process is not None
    answers: list[int | None] = []
    now = stage.members["a"].clock.monotonic()
    stage.members["a"].input(
        process.group.read_barrier, lambda index, reason: answers.append(index), now
    )
    stage.run_for(5.0)
    assert answers in ([None], []), "a deposed leader confirmed a read"
    if name == "b":
        stage.join()
        stage.finish()


def test_f17_content_that_apply_refuses_is_void_and_stops_nobody() -> None:
    """F17: an exception in apply left the tick and the entry was retried for ever."""
    stage = Stage("abc").formed()
    stage.plan.queues  # noqa: B018 - the queue below does not exist
    put = stage.put("a", "good")
    stage.settle()
    assert put.outcome is Outcome.STORED
    process = stage.members["a"].process
    assert process is not None
    outcomes: list[object] = []
    from dledger.types import EntryKind
    from dledger_proto.batch.codec import Record, encode_batch

    bad = encode_batch(
        [Record(b"x")], topic_id=b"\x09" * 16, queue=7, stamp=None, base_number=1, base_time_ms=1
    )
    stage.members["a"].input(process.group.propose, EntryKind.BATCHES, [bad], outcomes.append)
    stage.settle()
    assert len(outcomes) == 1
    stage.put("a", "after")
    stage.settle()
    stage.finish()


def test_a_cut_below_the_checkpoint_survives_a_power_cut() -> None:
    """A checkpoint must not claim a suffix that was cut: the next start would miss it."""
    stage = Stage("abc", checkpoint_bytes=1024).formed()
    stage.isolate("a")
    for number in range(20):
        stage.put("a", f"old{number}", 500)
        stage.run_for(0.01)
    stage.run_until(lambda: stage.leader in ("b", "c"), 5.0, "another leads")
    leader = stage.leader
    stage.join()
    stage.run_until(lambda: stage.log_end("a") == stage.log_end(leader), 5.0, "a follows")
    stage.run_for(0.02)
    stage.members["a"].power_cut()
    stage.start_member("a")
    stage.finish()
