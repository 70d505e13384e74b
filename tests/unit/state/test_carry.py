"""Old batches are carried forward: their segments go, their names and offsets stay (D7)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from dledger.state.queues import carry as carrying
from dledger.state.queues.carry import END, Copy
from dledger.state.queues.copies import FIRST
from dledger.state.queues.trim import Trim
from dledger.state.results import Trimmed
from dledger.state.tables import Table
from dledger.state.timers.commands import FireTimers, RecallTimer
from dledger.state.topics.commands import DeleteTopic
from dledger.state.values import QueueSpan
from dledger_offline.state import describe_row
from dledger_proto.errors import Code
from dledger_proto.keyhash import key_hash
from tests.unit.state.carry_kit import bytes_at, carried, carry, end_of, stretch
from tests.unit.state.kit import LIFE, PRODUCER, TOPIC, Driven, batch, code_of, delayed, started

OLD = batch(2, queue=1, body=b"old", keys=("k",))


def span_of(driven: Driven, offset: int, queue: int = 1) -> QueueSpan:
    return driven.machine.queries.spans(TOPIC, queue, offset, 1)[0]


def head_of(driven: Driven) -> int:
    """Return what the state needs of the log, once it is saved."""
    driven.save()
    return driven.machine.head_needed()


def copies_in(driven: Driven) -> list[bytes]:
    driven.idle(2)  # the garbage goes with entries
    return [key for key in driven.rows() if key[0] in (Table.COPY, Table.COPY_PLACE)]


def with_an_old_record() -> Driven:
    """Return a group whose head only one batch keeps, that of queue 1."""
    driven = started()
    driven.append(OLD)
    for _ in range(20):
        driven.append(batch(8))
    assert driven.one(Trim(TOPIC, 0, 160)) == Trimmed(160)
    assert head_of(driven) == span_of(driven, 0).position
    return driven


def test_an_old_batch_lies_at_the_end_of_the_log_under_its_old_name() -> None:
    driven = with_an_old_record()
    before, target = span_of(driven, 0), end_of(driven)
    assert carry(driven, target) == 1
    span = span_of(driven, 0)
    assert span._replace(copy=None) == before, "offset, position and time stay"
    assert target < span.place < end_of(driven)
    assert bytes_at(driven, span.place, span.size) == OLD
    assert head_of(driven) == target
    assert driven.machine.queries.carried == (target, 0, FIRST)
    rows = driven.rows()
    shown = {row: describe_row(Table(row[0]), row, rows[row]) for row in copies_in(driven)}
    assert [each.value for each in shown.values()] == [
        {"copy": span.place},
        {"position": span.position},
    ]
    assert driven.machine.queries.lookup_offset(TOPIC, 1, 1) == span
    (hit,) = driven.machine.queries.lookup_key(TOPIC, key_hash(b"k"), 0, 0, 9).hits
    assert hit.span == span


def test_a_batch_that_was_trimmed_in_its_middle_is_carried() -> None:
    driven = with_an_old_record()
    driven.one(Trim(TOPIC, 1, 1))
    target = end_of(driven)
    carry(driven, target)
    span = span_of(driven, 1)
    assert span.place > target
    assert bytes_at(driven, span.place, span.size) == OLD


def test_a_stretch_that_leaves_a_batch_out_is_refused() -> None:
    driven = with_an_old_record()
    before, target = driven.rows(), end_of(driven)
    command = replace(stretch(driven, target), copies=())
    assert code_of(driven.one(command)) is Code.BUSY
    assert driven.machine.queries.carried == (0, 0, FIRST)
    assert {key: row for key, row in driven.rows().items() if key[0]} == {
        key: row for key, row in before.items() if key[0]
    }


def test_a_damaged_copy_is_refused() -> None:
    driven = with_an_old_record()
    command = stretch(driven, end_of(driven))
    (copy,) = command.copies
    wrong = replace(command, copies=(Copy(copy.position, copy.batch[:-1] + b"!"),))
    assert code_of(driven.one(wrong)) is Code.CORRUPT_BATCH


@pytest.mark.parametrize(
    "changed",
    [
        lambda data: data[:-1],
        lambda data: batch(2, queue=2, body=b"old", keys=("k",)),
        lambda data: batch(2, queue=1, body=b"older", keys=("k",)),
        lambda data: b"",
    ],
)
def test_bytes_that_are_not_the_batch_are_refused(changed: Callable[[bytes], bytes]) -> None:
    driven = with_an_old_record()
    command = stretch(driven, end_of(driven))
    (copy,) = command.copies
    wrong = replace(command, copies=(Copy(copy.position, changed(copy.batch)),))
    assert code_of(driven.one(wrong)) is Code.CORRUPT_BATCH
    assert driven.machine.queries.carried == (0, 0, FIRST)
    carried(driven.one(command))


def test_only_the_next_stretch_of_the_pass_is_taken() -> None:
    driven = with_an_old_record()
    for _ in range(3):
        driven.append(batch(queue=2))
    target = end_of(driven)
    first = stretch(driven, target, limit=2)
    second = stretch(driven, target, first.until)
    assert code_of(driven.one(second)) is Code.BUSY, "the pass has not begun"
    assert carried(driven.one(first)) == 2
    assert head_of(driven) == span_of(driven, 0).position, "half a pass lets nothing go"
    assert code_of(driven.one(replace(second, target=target - 1))) is Code.BUSY
    assert carried(driven.one(second)) == 2
    assert code_of(driven.one(second)) is Code.INVALID_ARGUMENT, "the pass has ended"
    assert head_of(driven) == target


def test_a_pass_goes_on_after_a_restart() -> None:
    driven = with_an_old_record()
    driven.append(batch(queue=2))
    target = end_of(driven)
    driven.one(stretch(driven, target, limit=1))
    driven.save()
    again = Driven(driven.store, driven.log)
    assert again.machine.queries.carried == driven.machine.queries.carried
    assert carry(again, target) == 1
    assert bytes_at(again, span_of(again, 0).place, len(OLD)) == OLD


@pytest.mark.parametrize(
    ("target", "until"),
    [(0, END), (1 << 50, END), (None, FIRST), (None, b"\1"), (None, b"\3" * 37), (None, b"\xff\0")],
)
def test_a_stretch_without_sense_is_refused(target: int | None, until: bytes) -> None:
    driven = with_an_old_record()
    command = stretch(driven, end_of(driven))
    wrong = replace(command, target=command.target if target is None else target, until=until)
    assert code_of(driven.one(wrong)) is Code.INVALID_ARGUMENT
    assert driven.machine.queries.carried == (0, 0, FIRST)


def test_what_a_timer_holds_is_carried_and_fires() -> None:
    driven = started()
    late = delayed(9_000, 2, queue=3)
    driven.append(late)
    driven.append(batch(8), batch(8))
    driven.one(Trim(TOPIC, 0, 16))
    target = end_of(driven)
    assert carry(driven, target) == 1
    assert head_of(driven) == target
    driven.one(FireTimers(9_000, 9), time_ms=9_000)
    span = span_of(driven, 0, 3)
    assert bytes_at(driven, span.place, span.size) == late
    assert head_of(driven) == target, "the reference keeps the copy"


def test_a_batch_that_several_name_is_copied_once() -> None:
    driven = started()
    driven.register(life=LIFE)
    driven.append(delayed(9_000, 3, queue=3, sequence=0))
    driven.one(RecallTimer(PRODUCER, 1))  # two timers are left, of one batch
    driven.append(batch(8))
    command = stretch(driven, end_of(driven))
    assert len(command.copies) == 2
    assert carried(driven.one(command)) == 2


def test_a_second_pass_carries_the_copies_and_drops_those_that_nobody_needs() -> None:
    driven = with_an_old_record()
    driven.append(batch(queue=2, body=b"also old"))
    carry(driven, end_of(driven))
    assert len(copies_in(driven)) == 4
    driven.one(Trim(TOPIC, 2, 1))
    driven.append(batch(8), batch(8))
    driven.one(Trim(TOPIC, 0, 176))
    target = end_of(driven)
    assert carry(driven, target) == 1
    span = span_of(driven, 0)
    assert span.place > target
    assert bytes_at(driven, span.place, span.size) == OLD
    assert head_of(driven) == target
    assert len(copies_in(driven)) == 2
    driven.one(DeleteTopic(TOPIC))
    carry(driven, end_of(driven))
    assert copies_in(driven) == []


def test_what_is_new_is_not_copied() -> None:
    driven = with_an_old_record()
    target = end_of(driven)
    driven.append(batch(queue=2))
    command = stretch(driven, target)
    assert [copy.position for copy in command.copies] == [span_of(driven, 0).position]
    carried(driven.one(command))
    carry(driven, end_of(driven))
    assert span_of(driven, 0, 2).place > target


def test_a_stretch_with_too_many_roots_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = with_an_old_record()
    for _ in range(5):
        driven.append(batch(queue=2))
    command = stretch(driven, end_of(driven))
    monkeypatch.setattr(carrying, "ROOTS_IN_STRETCH_MAX", 5)
    assert code_of(driven.one(command)) is Code.BUSY
    monkeypatch.setattr(carrying, "ROOTS_IN_STRETCH_MAX", 6)
    assert carried(driven.one(command)) == 6


def test_commands_of_one_entry_know_their_own_bytes() -> None:
    driven = with_an_old_record()
    nothing, target = Trim(TOPIC, 0, 0), end_of(driven)
    _, result, _ = driven.run(nothing, stretch(driven, target), nothing)
    assert carried(result) == 1
    span = span_of(driven, 0)
    assert span.place > target
    assert bytes_at(driven, span.place, span.size) == OLD


def test_a_position_that_occurs_twice_is_refused() -> None:
    driven = with_an_old_record()
    command = stretch(driven, end_of(driven))
    (copy,) = command.copies
    twice = replace(command, copies=(Copy(copy.position, bytes(len(copy.batch))), copy))
    assert code_of(driven.one(twice)) is Code.INVALID_ARGUMENT


def test_rows_of_references_are_counted_and_need_nothing() -> None:
    driven = started()
    late = delayed(9_000, 2, queue=1)
    for _ in range(6):
        driven.append(late)
    driven.one(FireTimers(9_000, 9), time_ms=9_000)
    driven.append(batch(queue=1, body=b"behind"))
    target = end_of(driven)
    roots = driven.machine.queries.roots(FIRST, target, 100)
    assert [root.size > 0 for root in roots] == [False] * 6 + [True] + [False] * 6
    assert carry(driven, target, limit=2) == 7
    for offset in range(0, 12, 2):
        span = span_of(driven, offset)
        assert span.place > target
        assert bytes_at(driven, span.place, span.size) == late
    assert head_of(driven) == target


def test_a_copy_of_a_pass_under_way_is_found() -> None:
    driven = with_an_old_record()
    driven.append(batch(queue=2))
    target = end_of(driven)
    driven.one(stretch(driven, target, limit=1))
    assert span_of(driven, 0).place > target
    assert driven.machine.queries.carried.horizon == 0
