"""The gate alone: what waits for the disk, what is let in, what is counted.

Goal: each rule of the module header, by a case in which the rule alone decides.
"""

import pytest

from dledger.raft.gate import (
    HELD_MAX,
    RETIRED_SESSIONS_MAX,
    Arrival,
    OutboundGate,
    PeerSession,
    VoteTally,
    proven_commit,
)
from dledger.raft.wire.messages import AppendAnswer, Message, TermNotice, VoteAnswer
from dledger.types import MemberId

A, B, C = MemberId("a"), MemberId("b"), MemberId("c")


def answer(number: int, match: int = 0, term: int = 1) -> AppendAnswer:
    return AppendAnswer(number, term, term, True, match, 0, 0, 0)


def vote(number: int = 1, term: int = 1) -> VoteAnswer:
    return VoteAnswer(number, term, term, True)


def test_a_vote_leaves_when_its_hard_state_is_on_disk() -> None:
    gate = OutboundGate()
    gate.hold(B, vote(), term=1, hard_version=4, log_index=0)
    assert gate.release(term=1, hard_version=3, log_index=99) == []
    assert [target for target, _ in gate.release(term=1, hard_version=4, log_index=0)] == [B]
    assert len(gate) == 0


def test_an_acknowledgement_needs_log_and_hard_state() -> None:
    gate = OutboundGate()
    gate.hold(B, answer(1, 10), term=1, hard_version=2, log_index=10)
    assert gate.release(term=1, hard_version=1, log_index=10) == []
    assert gate.release(term=1, hard_version=2, log_index=9) == []
    assert len(gate.release(term=1, hard_version=2, log_index=10)) == 1


def test_an_acknowledgement_of_an_older_term_never_leaves() -> None:
    """Its entry may be replaced: a sync of the replacement must not release it."""
    gate = OutboundGate()
    gate.hold(B, answer(1, 10), term=1, hard_version=0, log_index=10)
    assert gate.release(term=2, hard_version=9, log_index=10) == []
    assert gate.release(term=1, hard_version=9, log_index=10) == []


def test_an_acknowledgement_of_an_older_term_does_not_speak_in_a_newer_one() -> None:
    """The same leader, in a later reign: it may have lost what was acknowledged to it before."""
    gate = OutboundGate()
    gate.hold(B, answer(1, 10), term=1, hard_version=0, log_index=10)
    gate.hold(B, answer(7, 4, term=3), term=3, hard_version=1, log_index=4)
    released = gate.release(term=3, hard_version=1, log_index=4)
    assert [each for _, each in released] == [answer(7, 4, term=3)], "nor does it wait for more"
    assert gate.release(term=3, hard_version=1, log_index=10) == []


def test_of_several_acknowledgements_the_last_one_says_it_all() -> None:
    gate = OutboundGate()
    for number in range(1, 4):
        gate.hold(B, answer(number, number * 10), term=1, hard_version=0, log_index=number * 10)
    gate.hold(C, vote(), term=1, hard_version=0, log_index=0)
    released = gate.release(term=1, hard_version=0, log_index=25)
    assert [(target, message.describe()) for target, message in released] == [
        (B, "append-answer #2 term=1 match=20 own_term=1"),
        (C, "vote-answer #1 term=1 granted=True voter_term=1"),
    ]
    assert len(gate.release(term=1, hard_version=0, log_index=30)) == 1


def test_a_later_acknowledgement_of_less_waits_for_the_more_it_replaced() -> None:
    gate = OutboundGate()
    gate.hold(B, answer(1, 30), term=1, hard_version=0, log_index=30)
    gate.hold(B, answer(2, 30), term=1, hard_version=0, log_index=20)
    assert gate.release(term=1, hard_version=0, log_index=29) == []
    assert len(gate.release(term=1, hard_version=0, log_index=30)) == 1


def test_a_heartbeat_answer_takes_nothing_back_that_waits_for_the_disk() -> None:
    """It would make the leader wait for the next one, to hear of entries that are stored."""
    for version in (0, 1):  # merged while it waits, or when both leave
        gate = OutboundGate()
        gate.hold(B, answer(1, 10), term=1, hard_version=0, log_index=10)
        gate.hold(B, vote(), term=1, hard_version=0, log_index=0)
        gate.hold(B, answer(2, 4), term=1, hard_version=version, log_index=0)
        if version:
            gate.hold(B, answer(3, 4), term=1, hard_version=1, log_index=0)
        released = [
            message
            for _, message in gate.release(term=1, hard_version=1, log_index=10)
            if isinstance(message, AppendAnswer)
        ]
        assert [(each.number, each.match_index) for each in released] == [(2 + version, 10)]


def test_an_acknowledgement_says_nothing_to_another_peer() -> None:
    """Two leaders of one term there are not; two peers that each sent something there are."""
    gate = OutboundGate()
    gate.hold(B, answer(1, 30), term=1, hard_version=0, log_index=30)
    gate.hold(C, answer(2, 4), term=1, hard_version=0, log_index=4)
    assert gate.release(term=1, hard_version=0, log_index=4) == [(C, answer(2, 4))]
    assert gate.release(term=1, hard_version=0, log_index=30) == [(B, answer(1, 30))]


def test_a_vote_leaves_beside_an_acknowledgement() -> None:
    gate = OutboundGate()
    gate.hold(B, vote(), term=1, hard_version=1, log_index=0)
    gate.hold(B, answer(2, 4), term=1, hard_version=1, log_index=4)
    released = gate.release(term=1, hard_version=1, log_index=4)
    assert released == [(B, vote()), (B, answer(2, 4))]


def test_a_mismatch_is_not_made_an_acknowledgement() -> None:
    gate = OutboundGate()
    mismatch = AppendAnswer(2, 1, 1, False, 0, 7, 1, 0)
    gate.hold(B, answer(1, 10), term=1, hard_version=0, log_index=10)
    gate.hold(B, mismatch, term=1, hard_version=0, log_index=0)
    assert gate.release(term=1, hard_version=0, log_index=10) == [(B, mismatch)]


def test_what_waits_is_bounded() -> None:
    gate = OutboundGate()
    for number in range(3 * HELD_MAX):
        gate.hold(B, answer(number, number), term=1, hard_version=0, log_index=number)
    assert len(gate) <= HELD_MAX
    early = gate.release(term=1, hard_version=0, log_index=2 * HELD_MAX)
    assert all(isinstance(m, AppendAnswer) and m.match_index <= 2 * HELD_MAX for _, m in early)
    released = gate.release(term=1, hard_version=0, log_index=3 * HELD_MAX)
    assert [message.number for _, message in released if isinstance(message, AppendAnswer)] == [
        3 * HELD_MAX - 1
    ]


def test_a_broken_link_forgets_what_waited_for_it() -> None:
    gate = OutboundGate()
    gate.hold(B, vote(), term=1, hard_version=0, log_index=0)
    gate.hold(C, vote(), term=1, hard_version=0, log_index=0)
    gate.forget(B)
    assert [target for target, _ in gate.release(term=1, hard_version=0, log_index=0)] == [C]


def stamped(session: int, sequence: int) -> Message:
    return TermNotice(1, session=session, sequence=sequence)


def test_late_repeated_and_reordered_messages_are_told_apart() -> None:
    peer = PeerSession()
    assert peer.admit(stamped(7, 1)) is Arrival.UNKNOWN_SESSION
    peer.begin(7, 1)
    assert peer.admit(stamped(7, 1)) is Arrival.STALE
    assert peer.admit(stamped(7, 5)) is Arrival.FRESH
    assert peer.admit(stamped(7, 4)) is Arrival.STALE
    assert peer.admit(stamped(7, 6)) is Arrival.FRESH


def test_nobody_is_known_by_a_session_that_is_none() -> None:
    assert PeerSession().admit(stamped(0, 1)) is Arrival.UNKNOWN_SESSION


def test_a_process_that_says_hello_again_is_not_over() -> None:
    peer = PeerSession()
    peer.begin(7, 1)
    peer.begin(7, 5)
    assert not peer.is_retired(7)
    assert not peer.is_retired(0)
    assert peer.admit(stamped(7, 5)) is Arrival.STALE


def test_an_earlier_process_stays_out() -> None:
    peer = PeerSession()
    peer.begin(7, 1)
    peer.begin(8, 1)
    assert peer.admit(stamped(7, 100)) is Arrival.UNKNOWN_SESSION
    assert peer.is_retired(7)
    with pytest.raises(AssertionError):
        peer.begin(7, 1)


def test_remembered_processes_are_bounded() -> None:
    peer = PeerSession()
    for session in range(1, RETIRED_SESSIONS_MAX + 10):
        peer.begin(session, 1)
    assert not peer.is_retired(1)
    assert peer.is_retired(RETIRED_SESSIONS_MAX + 8)


def test_a_voter_counts_once() -> None:
    tally = VoteTally(1, A, 5)
    assert tally.add(B, granted=True)
    assert not tally.add(B, granted=True)
    assert not tally.won
    assert tally.add(C, granted=True)
    assert tally.won


def test_a_refusal_may_become_a_grant_but_not_back() -> None:
    tally = VoteTally(1, A, 3)
    assert not tally.add(B, granted=False)
    assert tally.hopeless({B}) is True
    assert tally.add(B, granted=True)
    assert not tally.add(B, granted=False)
    assert tally.won


@pytest.mark.parametrize(
    ("reachable", "refused", "hopeless"),
    [({B, C}, set(), False), ({B, C}, {B}, False), ({B, C}, {B, C}, True), ({B}, {B}, True)],
)
def test_a_round_without_hope_is_seen(
    reachable: set[MemberId], refused: set[MemberId], hopeless: bool
) -> None:
    tally = VoteTally(1, A, 3)
    for voter in refused:
        tally.add(voter, granted=False)
    assert tally.hopeless(reachable) is hopeless


@pytest.mark.parametrize(
    ("leader_commit", "prev", "last", "proven"),
    [(20, 5, None, 5), (20, 5, 9, 9), (7, 5, 9, 7), (3, 5, None, 3)],
)
def test_a_message_proves_commit_only_as_far_as_it_matched(
    leader_commit: int, prev: int, last: int | None, proven: int
) -> None:
    assert proven_commit(leader_commit, prev, last) == proven
