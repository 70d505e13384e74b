"""A follower's progress: what may be sent next after each kind of answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.raft.replication.progress import Pace, Progress
from dledger.types import DiskRoom, MemberId

WINDOW = 1000


def replicating(match: int = 10) -> Progress:
    progress = Progress(MemberId("b"))
    progress.begin_reign(match)
    number = progress.sent(None, 0)
    progress.matched(number, match)
    assert progress.pace is Pace.REPLICATE
    return progress


def test_a_probe_is_alone() -> None:
    progress = Progress(MemberId("b"))
    progress.begin_reign(10)
    assert progress.may_send(WINDOW)
    progress.sent(11, 100)
    assert not progress.may_send(WINDOW)
    assert progress.next == 11, "a probe moves nothing"


def test_requests_follow_each_other_up_to_the_window() -> None:
    progress = replicating()
    for last in (11, 12):
        assert progress.may_send(WINDOW)
        progress.sent(last, 600)
    assert not progress.may_send(WINDOW)
    assert progress.next == 13
    progress.matched(progress.number, 11)
    assert progress.inflight_bytes == 600
    assert progress.may_send(WINDOW)
    assert progress.next == 13, "an acknowledgement sends nothing again"


def test_a_heartbeats_answer_does_not_end_what_is_being_written() -> None:
    progress = replicating()
    progress.sent(20, 600)
    heartbeat = progress.sent(None, 0)
    assert not progress.matched(heartbeat, 10)
    assert progress.inflight_bytes == 600


def test_a_stale_mismatch_is_ignored() -> None:
    """F2: two heartbeats were in flight, both find the gap; only the first resets."""
    progress = replicating()
    progress.sent(20, 100)
    first = progress.sent(None, 0)
    second = progress.sent(None, 0)
    assert progress.mismatched(first, 11)
    assert progress.pace is Pace.PROBE
    progress.sent(20, 100)
    assert not progress.mismatched(second, 5), "older than the resend it asks for"
    assert progress.next == 11


def test_a_mismatch_never_goes_below_the_match() -> None:
    progress = replicating(10)
    assert progress.mismatched(progress.sent(None, 0), 3)
    assert progress.next == 11


def test_a_broken_link_loses_what_was_in_flight() -> None:
    progress = replicating(10)
    progress.sent(20, 600)
    progress.lost()
    assert (progress.next, progress.inflight_bytes, progress.pace) == (11, 0, Pace.PROBE)


def test_a_new_life_has_nothing() -> None:
    progress = replicating(10)
    progress.forget_data()
    assert (progress.match, progress.pace) == (0, Pace.PROBE)
    assert progress.mismatched(progress.sent(None, 0), 1)
    assert progress.next == 1


def test_a_broken_link_before_the_first_answer_does_not_mean_everything_is_missing() -> None:
    progress = Progress(MemberId("b"))
    progress.begin_reign(1_000_000)
    progress.sent(1_000_001, 100)
    progress.lost()
    assert progress.next == 1_000_001


def test_a_full_disk_gets_heartbeats_only() -> None:
    progress = replicating(10)
    progress.disk_room = DiskRoom.FULL
    assert not progress.may_send(WINDOW)
    number = progress.sent(None, 0)
    progress.matched(number, 10)
    assert not progress.may_send(WINDOW)


def test_an_unanswered_probe_is_repeated() -> None:
    progress = Progress(MemberId("b"))
    progress.begin_reign(10)
    progress.sent(11, 100)
    progress.retry_probe()
    assert progress.may_send(WINDOW)
    assert progress.inflight_bytes == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["send", "beat", "match", "mismatch", "lost", "life", "retry"]),
            st.integers(0, 40),
            st.integers(0, 40),
        )
    )
)
def test_the_invariants_hold_whatever_comes(steps: list[tuple[str, int, int]]) -> None:
    progress = Progress(MemberId("b"))
    progress.begin_reign(10)
    last = 30
    for what, one, other in steps:
        number = min(one, progress.number)
        if what == "send" and progress.next <= last and progress.may_send(WINDOW):
            progress.sent(min(last, progress.next + other), 100)
        elif what == "beat":
            progress.sent(None, 0)
        elif what == "match":
            progress.matched(number, min(other, last))
        elif what == "mismatch":
            progress.mismatched(number, min(other, last))
        elif what == "lost":
            progress.lost()
        elif what == "life":
            progress.forget_data()
        elif what == "retry":
            progress.retry_probe()
        assert progress.match < progress.next <= last + 1
        assert progress.inflight_bytes == sum(each.size for each in progress.inflight)
        assert all(each.last > progress.match for each in progress.inflight)


def test_window_is_a_bound_not_a_goal() -> None:
    progress = replicating()
    progress.sent(11, 10 * WINDOW)
    assert not progress.may_send(WINDOW)
    with pytest.raises(AssertionError):
        assert progress.inflight_bytes < WINDOW


def test_an_older_acknowledgement_takes_nothing_back() -> None:
    progress = Progress(MemberId("b"))
    progress.begin_reign(10)
    older, newer = progress.sent(None, 0), progress.sent(None, 0)
    assert progress.matched(newer, 11)
    assert not progress.matched(older, 8)
    assert (progress.match, progress.match_number, progress.next) == (11, newer, 12)


def test_an_acknowledgement_from_before_a_mismatch_ends_no_probe() -> None:
    """What was sent before may have been cut since: the place where the logs agree is open."""
    progress = Progress(MemberId("b"))
    progress.begin_reign(10)
    before = progress.sent(None, 0)
    assert progress.mismatched(progress.sent(None, 0), 5)
    progress.matched(before, 3)
    assert progress.pace.name == "PROBE"
    progress.matched(progress.sent(None, 0), 4)
    assert progress.pace is Pace.REPLICATE


def test_a_clock_counts_as_read_in_time_only_for_the_request_that_was_timed() -> None:
    progress = replicating()
    progress.ask_clock(10.0, 1.0)
    timed = progress.sent(None, 0)
    progress.ask_clock(10.5, 1.0)  # the timed request may still be answered in time
    assert not progress.clock_read_within(timed - 1, 10.6, 1.0)
    assert progress.clock_read_within(timed, 10.6, 1.0)
    assert not progress.clock_read_within(timed, 10.7, 1.0), "one answer for one timed request"
    progress.ask_clock(20.0, 1.0)
    assert not progress.clock_read_within(progress.sent(None, 0), 21.5, 1.0)
