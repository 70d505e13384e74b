"""Delayed batches, timers, references and pins (D7, D23, S40, S105, S106)."""

import pytest

from dledger.state.counted_time import COUNTED_AT_ONCE_MAX_MS
from dledger.state.queues.references import ORIGIN_ERROR_SIZE_MAX
from dledger.state.queues.table import NO_POSITION
from dledger.state.queues.trim import Trim
from dledger.state.results import (
    Appended,
    Refused,
    Result,
    TimerRecalled,
    TimersFired,
    TopicsForgotten,
)
from dledger.state.tables import Table
from dledger.state.timers import commands, table
from dledger.state.timers.commands import FireTimers, RecallTimer
from dledger.state.topics.commands import DeleteTopic, ForgetTopics
from dledger.state.values import Origin, Reference
from dledger_proto.errors import Code
from dledger_proto.keyhash import key_hash
from dledger_proto.limits import DELAY_MS_MAX, TIMERS_FOR_RETRIES
from tests.unit.state.kit import (
    LIFE,
    PRODUCER,
    TOPIC,
    Driven,
    batch,
    code_of,
    delayed,
    offset_of,
    started,
)

ALL = 1_000_000


def fire(driven: Driven, at_ms: int, at_most: int = ALL) -> TimersFired:
    result = driven.one(FireTimers(at_ms, at_most), time_ms=at_ms)
    assert isinstance(result, TimersFired), result
    return result


def offsets(driven: Driven, queue: int = 0) -> tuple[int, int]:
    return driven.machine.queries.queue_bounds(TOPIC, queue)


def rows_of(driven: Driven, *tables: Table) -> list[bytes]:
    return [key for key in driven.rows() if key[0] in tables]


def with_producer() -> Driven:
    driven = started()
    driven.register(life=LIFE)
    return driven


def test_a_delayed_batch_is_in_no_queue_until_its_time() -> None:
    driven = started()
    assert driven.append(delayed(5_000, 3), batch(), time_ms=2_000) == [
        Appended(-1, 3),
        Appended(0, 1),
    ]
    assert offsets(driven) == (0, 1)
    assert driven.machine.queries.next_due_ms == 5_000
    assert fire(driven, 4_999) == TimersFired(0, more=False)
    assert offsets(driven) == (0, 1)
    assert fire(driven, 5_000) == TimersFired(1, more=False)
    assert offsets(driven) == (0, 4)
    _, span = driven.machine.queries.spans(TOPIC, 0, 0, ALL)
    assert (span.base_offset, span.record_count, span.store_time_ms) == (1, 3, 5_000)
    assert span.is_reference
    assert span.position == driven.log.entries[1].starts[0]
    assert driven.machine.queries.next_due_ms is None


def test_a_command_never_fires_before_the_stamp_of_its_entry() -> None:
    driven = started()
    driven.append(delayed(5_000), time_ms=2_000)
    result = driven.one(FireTimers(9_000, ALL), time_ms=4_999)
    assert result == TimersFired(0, more=False)
    assert offsets(driven) == (0, 0)


def test_a_command_that_is_proposed_twice_fires_once() -> None:
    driven = started()
    driven.append(delayed(5_000), time_ms=2_000)
    command = FireTimers(5_000, ALL)
    assert driven.run(command, command, time_ms=5_000) == [
        TimersFired(1, more=False),
        TimersFired(0, more=False),
    ]
    assert offsets(driven) == (0, 1)


def test_timers_fire_by_time_and_then_in_the_order_of_the_log() -> None:
    driven = started()
    sizes = (5, 2, 3, 4)
    for due_ms, count in zip((6_000, 5_000, 5_000, 5_000), sizes, strict=True):
        driven.append(delayed(due_ms, count), time_ms=2_000)
    assert fire(driven, 9_000, 2) == TimersFired(2, more=True)
    assert fire(driven, 9_000, 2) == TimersFired(2, more=False)
    spans = driven.machine.queries.spans(TOPIC, 0, 0, ALL)
    assert [span.record_count for span in spans] == [2, 3, 4, 5]


def test_a_time_that_is_past_is_delivered_at_once() -> None:
    driven = started()
    assert offset_of(driven.append(delayed(2_000), time_ms=2_000)[0]) == 0
    assert not rows_of(driven, Table.TIMER, Table.PIN, Table.ORIGIN)


def test_a_time_too_far_ahead_is_refused_with_the_limit() -> None:
    driven = started()
    latest = 2_000 + DELAY_MS_MAX
    refused, stored = driven.append(delayed(latest + 1), delayed(latest), time_ms=2_000)
    assert code_of(refused) is Code.MESSAGE_ILLEGAL
    assert isinstance(refused, Refused)
    assert f"delivery_time_ms {latest + 1}, at most {latest}" in refused.detail
    assert stored == Appended(-1, 1)


def test_no_more_timers_wait_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "TIMERS_MAX", 2 + TIMERS_FOR_RETRIES)
    driven = started()
    results = driven.append(*[delayed(9_000)] * 3, time_ms=2_000)
    assert code_of(results[2]) is Code.TOO_MANY_TIMERS
    fire(driven, 9_000)
    assert driven.append(delayed(19_000)) == [Appended(-1, 1)]


def test_a_recall_that_would_leave_more_timers_than_may_wait_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table, "TIMERS_MAX", 1 + TIMERS_FOR_RETRIES)
    driven = with_producer()
    driven.append(delayed(9_000, 3, sequence=0), time_ms=2_000)
    before = driven.rows()
    assert code_of(driven.one(RecallTimer(PRODUCER, 1))) is Code.TOO_MANY_TIMERS
    changed = {key for key, value in driven.rows().items() if before.get(key) != value}
    assert not {key for key in changed if key[0] >= Table.TIMER}
    assert isinstance(driven.one(RecallTimer(PRODUCER, 2)), TimerRecalled)


def test_a_repeat_of_a_delayed_batch_is_a_duplicate() -> None:
    driven = with_producer()
    first = delayed(5_000, 2, sequence=0)
    assert driven.append(first, time_ms=2_000) == [Appended(-1, 2)]
    assert driven.append(first) == [Appended(-1, 2, duplicate=True)]
    fire(driven, 5_000)
    assert driven.append(first) == [Appended(-1, 2, duplicate=True)]
    assert offsets(driven) == (0, 2)
    assert driven.append(batch(sequence=2)) == [Appended(2, 1)], "the sequence goes on"


def test_ids_and_keys_find_a_delayed_message_when_it_is_delivered() -> None:
    driven = with_producer()
    queries = driven.machine.queries
    driven.append(batch(4), time_ms=2_000)
    driven.append(delayed(5_000, 3, sequence=0, number=7, keys=("k",)), time_ms=3_000)

    def by_key(begin_ms: int = 0, end_ms: int = 0) -> list[int]:
        found = queries.lookup_key(TOPIC, key_hash(b"k"), begin_ms, end_ms, 10)
        return [hit.span.base_offset for hit in found.hits]

    assert queries.lookup_message_id(PRODUCER, 8) is None
    assert by_key() == []
    fire(driven, 5_000)
    hit = queries.lookup_message_id(PRODUCER, 8)
    assert hit is not None
    assert (hit.offset, hit.record) == (5, 1)
    assert by_key() == [4]
    assert by_key(3_000, 3_000) == [4], "the window means the time when the batch came"
    assert by_key(5_000) == []
    driven.one(Trim(TOPIC, 0, 6))
    assert by_key() == [4], "its last record is there"
    driven.one(Trim(TOPIC, 0, 7))
    assert by_key() == []
    assert queries.lookup_message_id(PRODUCER, 8) is None


def recall(driven: Driven, number: int) -> Result:
    return driven.one(RecallTimer(PRODUCER, number))


def test_a_recalled_message_is_never_delivered_and_others_of_its_batch_are() -> None:
    driven = with_producer()
    driven.append(delayed(5_000, 4, sequence=0, number=7), time_ms=2_000)
    assert code_of(recall(driven, 11)) is Code.NOT_FOUND
    assert recall(driven, 8) == TimerRecalled(5_000)
    assert code_of(recall(driven, 8)) is Code.NOT_FOUND
    assert recall(driven, 10) == TimerRecalled(5_000)
    assert driven.machine.queries.timers_waiting == 2
    fire(driven, 5_000)
    spans = driven.machine.queries.spans(TOPIC, 0, 0, ALL)
    assert [(span.first_record, span.record_count) for span in spans] == [(0, 1), (2, 1)]
    hit = driven.machine.queries.lookup_message_id(PRODUCER, 9)
    assert hit is not None
    assert (hit.offset, hit.record) == (1, 2)
    assert code_of(recall(driven, 9)) is Code.NOT_FOUND, "it was delivered"
    assert offsets(driven) == (0, 2)


def test_a_recall_leaves_the_order_of_its_time() -> None:
    driven = with_producer()
    driven.append(delayed(5_000, 3, sequence=0, number=7), delayed(5_000, 5), time_ms=2_000)
    recall(driven, 7)
    fire(driven, 5_000)
    spans = driven.machine.queries.spans(TOPIC, 0, 0, ALL)
    assert [span.record_count for span in spans] == [2, 5]


def head_of(driven: Driven) -> int:
    driven.idle(3)
    driven.save()
    return driven.machine.head_needed()


def test_the_log_stays_while_a_timer_or_a_reference_needs_it() -> None:
    driven = with_producer()
    driven.append(batch(2), time_ms=2_000)
    driven.append(delayed(5_000, 3, sequence=0, number=7))
    place = driven.log.entries[-1].starts[0]
    driven.append(batch(2))
    driven.one(Trim(TOPIC, 0, 4))
    assert head_of(driven) == place
    recall(driven, 8)
    assert head_of(driven) == place, "two of three wait"
    fire(driven, 5_000)
    driven.append(batch(1))
    driven.one(Trim(TOPIC, 0, 5))
    assert head_of(driven) == place, "the second is in the queue"
    driven.one(Trim(TOPIC, 0, 6))
    assert head_of(driven) > place
    assert not rows_of(driven, Table.PIN, Table.ORIGIN, Table.REFERENCE_AT)
    (span,) = driven.machine.queries.spans(TOPIC, 0, 6, ALL)
    assert head_of(driven) == span.position


def test_a_recall_of_all_lets_the_log_go() -> None:
    driven = with_producer()
    driven.append(batch(2), delayed(5_000, sequence=0, number=7), time_ms=2_000)
    driven.one(Trim(TOPIC, 0, 2))
    recall(driven, 7)
    assert head_of(driven) == driven.log.position
    assert not rows_of(driven, Table.PIN, Table.TIMER, Table.TIMER_BY_ID)


def test_a_trim_within_a_reference_keeps_its_origin() -> None:
    driven = started()
    driven.append(delayed(5_000, 3), delayed(5_000, 3), time_ms=2_000)
    fire(driven, 5_000)
    driven.one(Trim(TOPIC, 0, 4))
    driven.idle(3)
    assert len(rows_of(driven, Table.ORIGIN)) == len(rows_of(driven, Table.PIN)) == 1
    driven.one(Trim(TOPIC, 0, 5))
    driven.one(Trim(TOPIC, 0, 6))
    driven.idle(3)
    assert not rows_of(driven, Table.ORIGIN, Table.PIN)


def test_batches_and_references_share_a_queue() -> None:
    driven = started()
    for at in range(300):
        driven.append(delayed(10_000 + at), time_ms=2_000 + at)
    for at in range(300):
        fire(driven, 10_000 + at)
        driven.append(batch(2), time_ms=10_000 + at)
    queries = driven.machine.queries
    for offset in range(900):
        span = queries.lookup_offset(TOPIC, 0, offset)
        assert span.base_offset == offset - (offset % 3 == 2)
        assert span.is_reference == (offset % 3 == 0)
        assert queries.offset_by_time(TOPIC, 0, span.store_time_ms) == offset - offset % 3
    for minimum in (1, 3, 300, 301, 302, 601, 899, 900):
        driven.one(Trim(TOPIC, 0, minimum))
        driven.idle(20)
        live = [queries.lookup_offset(TOPIC, 0, at) for at in range(minimum, 900)]
        assert head_of(driven) <= min([span.position for span in live] or [driven.log.position])
        assert len(rows_of(driven, Table.PIN)) == len(
            {span.base_offset for span in live if span.is_reference}
        )
    assert head_of(driven) == driven.log.position


def test_an_origin_goes_with_its_reference() -> None:
    driven = started()
    driven.append(batch(5), time_ms=2_000)
    state = driven.machine._state
    source, target = state.queue(TOPIC, 0), state.queue(TOPIC, 1)
    reference = state.references.record_at(source, 3)
    assert reference == Reference(driven.log.entries[-1].starts[0], 3, 1, reference.size)
    origin = Origin(TOPIC, 0, 3, 2, "é" * ORIGIN_ERROR_SIZE_MAX)
    state.timers.add(4_000, TOPIC, 1, reference, origin, 2_000)
    assert state.references.append(target, reference, origin._replace(error="no"),
                                   driven.log.entries[-1]) == 0  # fmt: skip
    driven.idle()
    fire(driven, 4_000)
    assert state.references.origin_at(target, 0) == origin._replace(error="no")
    cut = state.references.origin_at(target, 1)
    assert cut == origin._replace(error="é" * (ORIGIN_ERROR_SIZE_MAX // 2))
    assert state.references.origin_at(source, 3) is None
    driven.one(Trim(TOPIC, 0, 5))
    assert head_of(driven) <= reference.position, "both references need it"


def test_timers_of_a_deleted_topic_go_and_never_fire_into_another() -> None:
    driven = with_producer()
    many = 1_000
    for at in range(many):
        driven.append(delayed(5_000 + at, sequence=at, number=at), time_ms=2_000)
    fire(driven, 5_000)
    driven.one(DeleteTopic(TOPIC))
    driven.count_time(3 * COUNTED_AT_ONCE_MAX_MS)
    while not driven.machine._state.garbage.is_empty:
        driven.idle()
    assert driven.machine.queries.timers_waiting
    forget = ForgetTopics(0, 1 << 60)
    assert driven.one(forget) == TopicsForgotten((), more=False), "timers wait"
    driven.idle(many // 32)
    assert driven.machine.queries.timers_waiting == 0
    assert driven.one(forget) == TopicsForgotten((TOPIC,), more=False)
    tables = (Table.TIMER, Table.TIMER_BY_ID, Table.PIN, Table.ORIGIN, Table.REFERENCE_AT)
    assert not rows_of(driven, *tables)
    assert fire(driven, 9_000) == TimersFired(0, more=False)


def test_a_due_timer_of_a_deleted_topic_is_dropped() -> None:
    driven = started()
    driven.append(*[delayed(5_000)] * 200, time_ms=2_000)
    driven.one(DeleteTopic(TOPIC))
    assert fire(driven, 5_000).count == 0
    assert not rows_of(driven, Table.TIMER, Table.PIN)


def test_a_restart_goes_on_where_the_state_was() -> None:
    driven = with_producer()
    driven.append(
        *[delayed(5_000 + at, sequence=at, number=at, keys=("k",)) for at in range(10)],
        time_ms=2_000,
    )
    fire(driven, 5_004)
    driven.save()
    before = driven.rows()
    again = Driven(driven.store, driven.log)
    assert again.machine.digest == driven.machine.digest
    assert again.machine.queries.timers_waiting == 5
    assert fire(again, 9_000).count == 5
    assert again.rows() != before
    replayed = Driven()
    for entry in driven.log.entries:
        replayed.machine.apply(entry)
    assert replayed.machine.digest == again.machine.digest


def test_timers_are_listed_by_time_in_pages() -> None:
    driven = started()
    driven.append(*[delayed(5_000 + at) for at in (3, 1, 2, 0)], time_ms=2_000)
    queries = driven.machine.queries
    first, cursor = queries.timers(5_001, 1 << 50, b"", 2)
    rest, end = queries.timers(5_001, 1 << 50, cursor, 2)
    assert [timer.due_ms for timer in (*first, *rest)] == [5_001, 5_002, 5_003]
    assert end == b""


def test_readers_of_a_queue_are_told_when_a_timer_fires() -> None:
    driven = started()
    driven.append(delayed(5_000, 2), time_ms=2_000)
    heard: list[list[tuple[int, int]]] = []
    driven.machine.events.subscribe(
        lambda applied: heard.append([(queue.id[1], queue.maximum) for queue in applied.grown])
    )
    fire(driven, 4_000)
    fire(driven, 5_000)
    driven.idle()
    assert heard == [[], [(0, 2)], []]


def test_a_command_fires_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "FIRED_AT_ONCE_MAX", 3)
    driven = started()
    driven.append(*[delayed(5_000)] * 7, time_ms=2_000)
    assert fire(driven, 5_000) == TimersFired(3, more=True)
    assert fire(driven, 5_000, 2) == TimersFired(2, more=True)
    assert fire(driven, 5_000) == TimersFired(2, more=False)


def test_an_empty_group_has_no_rows_of_timers() -> None:
    driven = with_producer()
    driven.append(batch(3, sequence=0, keys=("k",)))
    driven.one(Trim(TOPIC, 0, 2))
    driven.idle(5)
    assert not [key for key in driven.rows() if key[0] >= Table.TIMER]
    assert driven.machine._state.references.head == NO_POSITION


def test_a_timer_that_is_set_later_and_due_earlier_fires_first() -> None:
    driven = started()
    driven.append(delayed(9_000, 2), time_ms=2_000)
    assert driven.machine.queries.next_due_ms == 9_000
    driven.append(delayed(5_000, 3))
    assert driven.machine.queries.next_due_ms == 5_000
    assert fire(driven, 5_000) == TimersFired(1, more=False)
    assert offsets(driven) == (0, 3)
