"""Failures of consumers: retries, suspensions, dead letters, waves (D22, D25, S107-S111)."""

from dataclasses import replace

import pytest

from dledger.state.consumers.settings import RETRIES_MAX, ConsumeOrder, GroupSettings, StartFrom
from dledger.state.offsets import CommitOffset
from dledger.state.progress.claims import ClaimQueues, WantedQueue
from dledger.state.progress.commits import CommitOffsets
from dledger.state.progress.dead_letters import SettleDeadLetters
from dledger.state.progress.failures import DEAD_NOW, FailedRecord, FailRecords
from dledger.state.progress.ranges import RANGES_MAX
from dledger.state.progress.row import Progress
from dledger.state.progress.wave import WINDOW_MS, ResumeGroup
from dledger.state.queues.trim import Trim
from dledger.state.results import (
    Appended,
    Claimed,
    DeadLettersSettled,
    FailuresStored,
    FailureStored,
    GroupResumed,
    OffsetsCommitted,
    QueuesClaimed,
)
from dledger.state.timers import table
from dledger.state.timers.commands import FireTimers
from dledger.state.values import Origin
from dledger_proto.errors import Code
from dledger_proto.limits import TIMERS_FOR_RETRIES
from tests.unit.state.groups_kit import BILLING, DEAD_LETTERS, SETTINGS, with_group
from tests.unit.state.kit import TOPIC, Driven, batch, code_of, delayed

FIRST = replace(SETTINGS, start=StartFrom.FIRST, retries_max=2, retry_delays_ms=(100, 1_000))
ORDERED = replace(FIRST, order=ConsumeOrder.QUEUE)
NOW = 1_000
"""The stamp of the first entries."""


def claim(
    driven: Driven, topic: bytes = TOPIC, epoch: int = 5, member: str = "a", over: int = 0
) -> Claimed:
    result = driven.one(ClaimQueues("billing", member, (WantedQueue(topic, 0, epoch, over),)))
    assert isinstance(result, QueuesClaimed), result
    return result.rows[0]


def progress(driven: Driven, topic: bytes = TOPIC) -> Progress:
    row = driven.machine.queries.progress("billing", topic, 0).row
    assert row is not None
    return row


def fail(
    driven: Driven,
    offset: int,
    attempts: int = 0,
    *,
    topic: bytes = TOPIC,
    delay_ms: int = -1,
    epoch: int = 5,
    member: str = "a",
    resets: int = 0,
    time_ms: int | None = None,
    error: str = "bad",
) -> FailureStored:
    failed = FailedRecord(topic, 0, epoch, resets, offset, attempts, delay_ms, error)
    result = driven.one(FailRecords("billing", member, (failed,)), time_ms)
    assert isinstance(result, FailuresStored), result
    return result.rows[0]


def ready(settings: GroupSettings = FIRST, records: int = 10) -> Driven:
    driven = with_group(settings)
    driven.append(batch(records))
    assert claim(driven).code is Code.OK
    assert claim(driven, BILLING).code is Code.OK
    return driven


def fire(driven: Driven, time_ms: int) -> None:
    driven.one(FireTimers(time_ms, 100), time_ms)


def bounds(driven: Driven, topic: bytes) -> tuple[int, int]:
    return driven.machine.queries.queue_bounds(topic, 0)


def origins(driven: Driven, topic: bytes) -> list[Origin | None]:
    state = driven.machine._state
    queue = state.queues.find((topic, 0))
    return [
        state.references.origin_at(queue, offset) for offset in range(queue.minimum, queue.maximum)
    ]


def where_is(driven: Driven, offset: int) -> tuple[bool, int, int, int]:
    """Return whether a record is done in its queue, and how often it waits, retries, is dead."""
    state = driven.machine._state
    timers = [
        timer for timer in state.timers.listed(0, 1 << 40, b"", 1_000)[0]
        if timer.origin is not None and timer.origin.offset == offset
    ]  # fmt: skip
    retries = [origin for origin in origins(driven, BILLING) if origin and origin.offset == offset]
    dead = [
        origin for origin in origins(driven, DEAD_LETTERS) if origin and origin.offset == offset
    ]
    return progress(driven).is_done(offset), len(timers), len(retries), len(dead)


def test_a_failure_is_tried_again_after_the_delays_of_its_group() -> None:
    """Done in its queue, then a reference in the retry topic; attempts travel with it (S107)."""
    driven = ready()
    row = fail(driven, 0)
    assert row == FailureStored(Code.OK, "", 1, due_ms=NOW + 100)
    assert where_is(driven, 0) == (True, 1, 0, 0)
    assert progress(driven).floor == 1
    fire(driven, NOW + 99)
    assert bounds(driven, BILLING) == (0, 0)
    fire(driven, NOW + 100)
    assert origins(driven, BILLING) == [Origin(TOPIC, 0, 0, 1, "bad")]
    row = fail(driven, 0, 1, topic=BILLING, error="worse")
    assert row == FailureStored(Code.OK, "", 2, due_ms=NOW + 100 + 1_000)
    fire(driven, NOW + 1_100)
    row = fail(driven, 1, 2, topic=BILLING, error="worst")
    assert row == FailureStored(Code.OK, "", 3, is_dead=True)
    assert origins(driven, DEAD_LETTERS) == [Origin(TOPIC, 0, 0, 3, "worst")]
    assert progress(driven, BILLING).floor == 2


def test_a_failure_out_of_order_leaves_its_neighbours_alone() -> None:
    """A poison record costs its neighbours no attempt (trap 4)."""
    driven = ready()
    fail(driven, 3)
    row = progress(driven)
    assert (row.floor, row.done, row.suspended) == (0, [(3, 4)], {})
    assert [fail(driven, offset).attempts for offset in (2, 4)] == [1, 1]


def test_a_failure_that_is_told_twice_counts_once() -> None:
    driven = ready()
    fail(driven, 0)
    again = fail(driven, 0)
    assert (again.code, again.attempts) == (Code.OK, 1)
    assert where_is(driven, 0) == (True, 1, 0, 0)
    fire(driven, NOW + 100)
    fail(driven, 0)
    assert where_is(driven, 0) == (True, 0, 1, 0)
    fail(driven, 0, 1, topic=BILLING)
    fail(driven, 0, 1, topic=BILLING)
    assert where_is(driven, 0) == (True, 1, 1, 0)


def test_what_was_committed_does_not_fail_any_more() -> None:
    """An acknowledged record never comes back (trap 9)."""
    driven = ready()
    driven.one(CommitOffsets("billing", (CommitOffset(TOPIC, 0, 4, "", 5),), member_id="a"))
    assert fail(driven, 2).code is Code.OK
    assert where_is(driven, 2) == (True, 0, 0, 0)


def test_attempts_other_than_the_records_are_refused() -> None:
    driven = ready()
    assert fail(driven, 0, 3).code is Code.INVALID_ARGUMENT
    assert fail(driven, 0, delay_ms=-3).code is Code.INVALID_ARGUMENT
    assert fail(driven, 0, delay_ms=1 << 50).code is Code.INVALID_ARGUMENT
    assert where_is(driven, 0) == (False, 0, 0, 0)


def test_an_old_owner_cannot_fail_a_record() -> None:
    """Neither by its epoch nor after a reset; nor can one that never claimed (trap 5)."""
    driven = ready()
    assert fail(driven, 0, epoch=0).code is Code.FENCED
    assert fail(driven, 0, member="b").code is Code.FENCED
    assert claim(driven, epoch=7, member="b").code is Code.OK
    assert fail(driven, 0).code is Code.FENCED
    reset = CommitOffsets("billing", (CommitOffset(TOPIC, 0, 0),), reset=True)
    driven.one(reset)
    assert fail(driven, 0, epoch=7, member="b").code is Code.OFFSET_RESET
    assert where_is(driven, 0) == (False, 0, 0, 0)


def test_a_record_can_be_dead_at_once_or_wait_its_own_time() -> None:
    driven = ready()
    assert fail(driven, 0, delay_ms=DEAD_NOW).is_dead
    assert where_is(driven, 0) == (True, 0, 0, 1)
    assert fail(driven, 1, delay_ms=7).due_ms == NOW + 7
    assert fail(driven, 2, delay_ms=0).due_ms == NOW


def test_without_dead_letters_the_last_failure_drops_the_record() -> None:
    driven = ready(replace(FIRST, dead_letters=False, retries_max=0))
    assert fail(driven, 0).is_dead
    assert where_is(driven, 0) == (True, 0, 0, 0)
    assert progress(driven).floor == 1


def test_the_default_delays_are_those_of_rocketmq() -> None:
    """Levels 3 to 18, the 17th failure is dead (S110, S111)."""
    driven = ready(replace(SETTINGS, start=StartFrom.FIRST))
    due: list[int] = []
    time_ms, offset, topic = NOW, 0, TOPIC
    for attempts in range(16):
        row = fail(driven, offset, attempts, topic=topic, time_ms=time_ms)
        due.append((row.due_ms - time_ms) // 1_000)
        time_ms = row.due_ms
        fire(driven, time_ms)
        topic, offset = BILLING, attempts
    minutes = [60 * minute for minute in range(1, 11)]
    assert due == [10, 30, *minutes, 1_200, 1_800, 3_600, 7_200]
    assert fail(driven, offset, 16, topic=BILLING).is_dead
    assert where_is(driven, 0) == (True, 0, 16, 1)


def test_a_failure_at_the_limit_of_ranges_is_refused_and_changes_nothing() -> None:
    driven = ready(replace(FIRST, pause_failures=0), records=1_000)
    for offset in range(1, 2 * RANGES_MAX, 2):
        assert fail(driven, offset).code is Code.OK
    assert fail(driven, 2 * RANGES_MAX + 1).code is Code.TOO_MANY_RANGES
    assert where_is(driven, 2 * RANGES_MAX + 1) == (False, 0, 0, 0)


def test_an_ordered_record_stays_suspended_until_it_is_dead() -> None:
    """It is tried in its place; after the last failure the queue goes on (S46)."""
    driven = ready(ORDERED)
    assert fail(driven, 0) == FailureStored(Code.OK, "", 1, due_ms=NOW + 100)
    assert where_is(driven, 0) == (False, 0, 0, 0)
    assert fail(driven, 0) == FailureStored(Code.OK, "", 1, due_ms=NOW + 100)  # told twice
    assert fail(driven, 0, 1, time_ms=2_000) == FailureStored(Code.OK, "", 2, due_ms=3_000)
    taken = claim(driven)
    assert taken.row is not None
    assert dict(taken.row.suspended) == {0: (2, 3_000)}
    assert fail(driven, 0, 2) == FailureStored(Code.OK, "", 3, is_dead=True)
    # The consumer tells it again when the answer was lost, and must not wait for a try.
    assert fail(driven, 0, 2) == FailureStored(Code.OK, "", 3, is_dead=True)
    assert where_is(driven, 0) == (True, 0, 0, 1)
    row = progress(driven)
    assert (row.floor, row.suspended) == (1, {})


def test_attempts_of_an_ordered_record_survive_a_change_of_its_consumer() -> None:
    driven = ready(ORDERED)
    fail(driven, 0, time_ms=2_000)
    over = progress(driven).leased_at
    taken = claim(driven, epoch=9, member="b", over=over)
    assert taken.row is not None
    assert taken.row.suspended[0].attempts == 1
    assert fail(driven, 0, 0, epoch=9, member="b").attempts == 1
    assert fail(driven, 0, 1, epoch=9, member="b").attempts == 2


def test_a_commit_and_a_reset_end_a_suspension() -> None:
    """A reset is not ignored by ordered consumers (trap 12)."""
    driven = ready(ORDERED)
    fail(driven, 0)
    driven.one(CommitOffsets("billing", (CommitOffset(TOPIC, 0, 1, "", 5),), member_id="a"))
    assert progress(driven).suspended == {}
    fail(driven, 1)
    driven.one(CommitOffsets("billing", (CommitOffset(TOPIC, 0, 0),), reset=True))
    row = progress(driven)
    assert (row.floor, row.suspended) == (0, {})


def test_the_retries_keep_their_bytes_when_the_topic_is_trimmed() -> None:
    driven = ready()
    fail(driven, 0)
    driven.one(Trim(TOPIC, 0, 10))
    fire(driven, NOW + 100)
    span = driven.machine.queries.lookup_offset(BILLING, 0, 0)
    assert (span.first_record, span.record_count) == (0, 1)


def test_a_record_that_was_trimmed_cannot_be_tried_again() -> None:
    driven = ready()
    driven.one(Trim(TOPIC, 0, 4))
    assert fail(driven, 2).code is Code.OFFSET_OUT_OF_RANGE
    assert fail(driven, 10).code is Code.OFFSET_OUT_OF_RANGE


WAVE = replace(FIRST, pause_failures=3, pause_share=50)


def test_a_wave_of_failures_pauses_the_group() -> None:
    """No claim, no failure is taken until somebody resumes it; commits and renewals go on."""
    driven = ready(WAVE)
    for offset in range(3):
        assert fail(driven, offset).code is Code.OK
    refused = fail(driven, 3)
    assert refused.code is Code.GROUP_PAUSED
    assert "3 of 3 records failed within 0.0 seconds" in refused.detail
    assert where_is(driven, 3) == (False, 0, 0, 0)
    assert claim(driven).code is Code.OK
    assert claim(driven, epoch=9).code is Code.GROUP_PAUSED
    assert driven.one(ResumeGroup("billing")) == GroupResumed(
        "3 of 3 records failed within 0.0 seconds"
    )
    assert driven.one(ResumeGroup("billing")) == GroupResumed("")
    assert fail(driven, 3).code is Code.OK


def test_failures_among_many_that_are_done_pause_nothing() -> None:
    driven = ready(WAVE, records=100)
    assert fail(driven, 50).code is Code.OK
    driven.one(CommitOffsets("billing", (CommitOffset(TOPIC, 0, 4, "", 5),), member_id="a"))
    for offset in (60, 70):
        assert fail(driven, offset).code is Code.OK
    assert driven.machine.queries.pause_of("billing") is None  # 3 of 7
    fail(driven, 80)
    assert driven.machine.queries.pause_of("billing") is not None  # 4 of 8


def test_failures_far_apart_pause_nothing() -> None:
    driven = ready(WAVE)
    for offset in range(2):
        fail(driven, offset)
    fail(driven, 2, time_ms=NOW + WINDOW_MS)
    assert driven.machine.queries.pause_of("billing") is None


def settle(
    driven: Driven, *offsets: int, resend: bool = True, resent_max: int = 0
) -> tuple[Code, ...]:
    result = driven.one(SettleDeadLetters("billing", 0, offsets, resend, resent_max))
    assert isinstance(result, DeadLettersSettled), result
    return result.codes


def dead(settings: GroupSettings = FIRST, count: int = 4) -> Driven:
    driven = ready(settings)
    for offset in range(count):
        assert fail(driven, offset, delay_ms=DEAD_NOW).is_dead
    return driven


def test_a_dead_letter_is_sent_again_once() -> None:
    """Whoever repeats the command, and however much of it overlaps."""
    driven = dead()
    assert settle(driven, 0, 1) == (Code.OK, Code.OK)
    assert settle(driven, 1, 2, 9) == (Code.NOT_FOUND, Code.OK, Code.OFFSET_OUT_OF_RANGE)
    again = [Origin(TOPIC, 0, offset, 0, "bad", 1) for offset in range(3)]
    assert origins(driven, BILLING) == again
    assert bounds(driven, DEAD_LETTERS) == (3, 4)  # what is settled goes


def test_dead_letters_can_be_dropped_here_and_there() -> None:
    driven = dead()
    assert settle(driven, 2, resend=False) == (Code.OK,)
    assert bounds(driven, DEAD_LETTERS) == (0, 4)
    assert settle(driven, 0, 1, 2, 3) == (Code.OK, Code.OK, Code.NOT_FOUND, Code.OK)
    assert [origin.offset for origin in origins(driven, BILLING) if origin] == [0, 1, 3]
    assert bounds(driven, DEAD_LETTERS) == (4, 4)


def test_the_guard_ends_loops() -> None:
    """A record that dies again and again is sent so many times, and no more (trap 20)."""
    driven = dead(count=1)
    for _ in range(2):
        letter = bounds(driven, DEAD_LETTERS)[1] - 1
        assert settle(driven, letter, resent_max=2) == (Code.OK,)
        retry = bounds(driven, BILLING)[1] - 1
        assert fail(driven, retry, topic=BILLING, delay_ms=DEAD_NOW).is_dead
    letter = bounds(driven, DEAD_LETTERS)[1] - 1
    assert settle(driven, letter, resent_max=2) == (Code.HELD,)
    assert settle(driven, letter) == (Code.OK,)


@pytest.mark.parametrize("settings", [FIRST, ORDERED])
def test_a_record_sent_again_has_all_its_tries(settings: GroupSettings) -> None:
    driven = dead(settings, count=1)
    settle(driven, 0)
    assert fail(driven, 0, topic=BILLING) == FailureStored(Code.OK, "", 1, due_ms=NOW + 100)


def test_offsets_of_dead_letters_are_not_committed() -> None:
    """Or a letter could be sent again twice, or be hidden for good."""
    driven = dead()
    for reset in (False, True):
        offsets = (CommitOffset(DEAD_LETTERS, 0, 1),)
        result = driven.one(CommitOffsets("billing", offsets, reset))
        assert isinstance(result, OffsetsCommitted)
        assert result.codes == (Code.INVALID_ARGUMENT,)
    assert settle(driven, 0) == (Code.OK,)


def test_producers_leave_timers_for_failures() -> None:
    """Delayed messages alone never keep a record that failed from its retry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "TIMERS_MAX", TIMERS_FOR_RETRIES + 1)
        driven = ready()
        late = delayed(9_000)
        assert driven.append(late) == [Appended(-1, 1)]
        assert code_of(driven.append(late)[0]) is Code.TOO_MANY_TIMERS
        assert fail(driven, 0).code is Code.OK
        patch.setattr(table, "TIMERS_MAX", 2)
        row = fail(driven, 1)
    assert row.code is Code.TOO_MANY_TIMERS
    assert not progress(driven).is_done(1)


def test_more_attempts_than_a_group_may_have_are_refused() -> None:
    driven = ready()
    fail(driven, 0)
    assert fail(driven, 0, (1 << 32) - 1).code is Code.INVALID_ARGUMENT
    assert fail(driven, 1, RETRIES_MAX + 1).code is Code.INVALID_ARGUMENT
