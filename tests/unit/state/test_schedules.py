"""Schedules: which occurrence is stored, what a command may set, what deletion leaves (D23)."""

import pytest

from dledger.state.results import Appended, Refused, ScheduleDeleted, ScheduleSet
from dledger.state.tables import Table
from dledger.state.timers.schedules import DeleteSchedule, SetSchedule
from dledger.state.topics.commands import DeleteTopic
from dledger.state.values import Schedule
from dledger_broker.timers.sending import occurrence
from dledger_proto.batch.codec import (
    MESSAGE_ID_SIZE,
    Compression,
    Record,
    encode_batch,
    message_id,
    parse_header,
)
from dledger_proto.errors import Code
from dledger_proto.limits import (
    SCHEDULE_SIZE_MAX,
    SCHEDULE_TEXT_SIZE_MAX,
    SCHEDULES_PER_TOPIC_MAX,
)
from tests.unit.state.kit import OTHER_TOPIC, TOPIC, Driven, batch, code_of, offset_of, started

SET_MS = 5_000
COMPRESSED = encode_batch(
    [Record(b"0" * 1_000)], topic_id=TOPIC, queue=1, stamp=None, base_number=0, base_time_ms=1,
    compression=Compression.ZSTD,
)  # fmt: skip


def daily(name: str = "daily", message: bytes = b"", cron: str = "0 0 * * *") -> SetSchedule:
    return SetSchedule(name, cron, "UTC", message or batch(queue=1))


def with_schedule() -> tuple[Driven, Schedule]:
    driven = started()
    result = driven.one(daily(), SET_MS)
    assert isinstance(result, ScheduleSet)
    assert not result.replaced
    return driven, found(driven)


def found(driven: Driven, name: str = "daily") -> Schedule:
    schedule = driven.machine.queries.schedule(TOPIC, name)
    assert schedule is not None
    return schedule


def rows(driven: Driven) -> list[bytes]:
    return [key for key in driven.rows() if key[0] in (Table.SCHEDULE, Table.SCHEDULE_DUE)]


def test_an_occurrence_is_stored_once_however_often_it_is_proposed() -> None:
    driven, schedule = with_schedule()
    due = occurrence(schedule, 9_000)
    first, second = driven.append(due, due, time_ms=9_000)
    assert offset_of(first) == 0
    assert code_of(second) is Code.DUPLICATE
    assert code_of(driven.append(due, time_ms=9_500)[0]) is Code.DUPLICATE
    assert driven.machine.queries.queue_bounds(TOPIC, 1) == (0, 1)
    assert found(driven).last_due_ms == 9_000
    assert offset_of(driven.append(occurrence(schedule, 9_600), time_ms=9_600)[0]) == 1


def test_an_occurrence_is_not_stored_before_its_time() -> None:
    driven, schedule = with_schedule()
    early = occurrence(schedule, 9_000)
    assert code_of(driven.append(early, time_ms=8_999)[0]) is Code.MESSAGE_ILLEGAL
    assert found(driven).last_due_ms == SET_MS
    assert offset_of(driven.append(early, time_ms=9_000)[0]) == 0


def test_nothing_is_sent_for_the_time_before_a_schedule_was_set() -> None:
    driven, schedule = with_schedule()
    for due_ms in (SET_MS - 1, SET_MS):
        result = driven.append(occurrence(schedule, due_ms), time_ms=9_000)[0]
        assert code_of(result) is Code.DUPLICATE


def test_occurrences_are_found_by_their_ids_and_have_their_time() -> None:
    driven, schedule = with_schedule()
    sent = occurrence(schedule, 9_000)
    header = parse_header(sent)
    assert (header.base_time_ms, header.base_number) == (9_000, 9_000)
    driven.append(sent, time_ms=9_001)
    hit = driven.machine.queries.lookup_message_id(schedule.schedule_id, 9_000)
    assert hit is not None
    assert (hit.topic_id, hit.queue, hit.offset) == (TOPIC, 1, 0)
    assert len(message_id(schedule.schedule_id, 9_000)) == MESSAGE_ID_SIZE


def test_a_schedule_that_is_replaced_sends_nothing_a_second_time() -> None:
    driven, schedule = with_schedule()
    driven.append(occurrence(schedule, 9_000), time_ms=9_000)
    result = driven.one(daily(cron="5 0 * * *", message=batch(queue=2)), 9_500)
    assert isinstance(result, ScheduleSet)
    assert result.replaced
    changed = found(driven)
    assert (changed.cron, changed.last_due_ms) == ("5 0 * * *", 9_500)
    assert changed.schedule_id == schedule.schedule_id
    assert code_of(driven.append(occurrence(changed, 9_000))[0]) is Code.DUPLICATE
    assert offset_of(driven.append(occurrence(changed, 9_600), time_ms=9_600)[0]) == 0


def test_a_deleted_schedule_sends_no_more() -> None:
    driven, schedule = with_schedule()
    driven.append(occurrence(schedule, 9_000), time_ms=9_000)
    deleted = ScheduleDeleted(schedule.schedule_id, 9_000)
    assert driven.one(DeleteSchedule(TOPIC, "daily")) == deleted
    assert code_of(driven.append(occurrence(schedule, 9_500), time_ms=9_500)[0]) is Code.NOT_FOUND
    assert code_of(driven.one(DeleteSchedule(TOPIC, "daily"))) is Code.NOT_FOUND
    assert driven.machine.queries.queue_bounds(TOPIC, 1) == (0, 1)
    assert not rows(driven)


def test_the_schedules_of_a_deleted_topic_go_with_it() -> None:
    driven, schedule = with_schedule()
    driven.one(DeleteTopic(TOPIC))
    driven.idle(20)
    assert not rows(driven)
    refused = driven.append(occurrence(schedule, 9_000), time_ms=9_000)[0]
    assert code_of(refused) is Code.TOPIC_NOT_FOUND


def test_an_occurrence_that_its_queue_does_not_take_is_not_counted_as_sent() -> None:
    driven, schedule = with_schedule()
    lost = occurrence(schedule._replace(batch=batch(queue=9)), 9_000)
    assert isinstance(driven.append(lost, time_ms=9_000)[0], Refused)
    assert found(driven).last_due_ms == SET_MS
    assert driven.append(occurrence(schedule, 9_000)) == [Appended(0, 1)]


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (daily(""), Code.INVALID_ARGUMENT, "name of 0 bytes"),
        (daily("n" * (SCHEDULE_TEXT_SIZE_MAX + 1)), Code.INVALID_ARGUMENT, "1 to 127"),
        (daily(cron="*" * 128), Code.INVALID_ARGUMENT, "cron of 128 bytes"),
        (daily(message=batch(2)), Code.INVALID_ARGUMENT, "one record"),
        (daily(message=batch(sequence=0)), Code.INVALID_ARGUMENT, "without a producer"),
        (daily(message=COMPRESSED), Code.INVALID_ARGUMENT, "not be compressed"),
        (daily(message=batch() + b"x"), Code.INVALID_ARGUMENT, "one record"),
        (daily(message=b"nonsense"), Code.CORRUPT_BATCH, "8 bytes"),
        (daily(message=batch(topic=OTHER_TOPIC)), Code.TOPIC_NOT_FOUND, OTHER_TOPIC.hex()),
        (daily(message=batch(queue=4)), Code.QUEUE_NOT_FOUND, "no queue 4"),
        (daily(message=batch(body=b"b" * SCHEDULE_SIZE_MAX)), Code.INVALID_ARGUMENT, "at most"),
    ],
)
def test_what_cannot_be_set_changes_nothing(command: SetSchedule, code: Code, words: str) -> None:
    driven = started()
    result = driven.one(command)
    assert isinstance(result, Refused)
    assert result.code is code
    assert words in result.detail
    assert not rows(driven)


def test_a_topic_has_a_bounded_number_of_schedules() -> None:
    driven = started()
    for number in range(SCHEDULES_PER_TOPIC_MAX):
        assert isinstance(driven.one(daily(f"s{number}")), ScheduleSet)
    assert code_of(driven.one(daily("more"))) is Code.TOO_MANY_TIMERS
    assert isinstance(driven.one(daily("s7")), ScheduleSet), "replaced, not added"
    driven.one(DeleteSchedule(TOPIC, "s7"))
    assert isinstance(driven.one(daily("more")), ScheduleSet)


def test_schedules_are_listed_in_pages() -> None:
    driven = started()
    for number in range(5):
        driven.one(daily(f"s{number}"))
    queries = driven.machine.queries
    names: list[str] = []
    cursor = b""
    while True:
        page, cursor = queries.schedules(TOPIC, cursor, 2)
        names += [each.name for each in page]
        if not cursor:
            break
    assert sorted(names) == [f"s{number}" for number in range(5)]
    assert queries.schedules(OTHER_TOPIC, b"", 10) == ([], b"")
    assert len(queries.schedules(b"", b"", 10)[0]) == 5
