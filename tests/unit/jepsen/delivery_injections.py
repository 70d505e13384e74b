"""Anomalies of delivery, put into a valid history."""

from functools import partial
from typing import Any

from jepsen_tests.history.events import Kind, Op
from tests.unit.jepsen.injections import Broken, names, without
from tests.unit.jepsen.stories import Story

kept = partial(names, with_kept=True)
LATE = 201
"""A process that only an injection has."""
FAR = 9_000
"""An offset of a retry topic that no group comes to."""


def _calls(b: Broken, said: str, *, again: bool | None = None) -> list[Op]:
    """Return calls that ended so; `again`: retries only, or first deliveries only."""
    return [
        op for op in b.of("handle")
        if op.is_ok and op.result[0] == said
        and again in (None, op.asked["read"][0].startswith("%RETRY%"))
    ]  # fmt: skip


def _of_record(b: Broken, op: Op) -> list[Op]:
    """Return the calls for the same record."""
    return [
        each for each in b.of("handle")
        if each.k == op.k and each.asked["offset"] == op.asked["offset"]
    ]  # fmt: skip


def _once(b: Broken, said: str) -> list[Op]:
    return [op for op in _calls(b, said) if len(_of_record(b, op)) == 1]


def _again(b: Broken, op: Op, **asked: Any) -> Story:
    """Call for a record once more, at the very end."""
    place = op.k.rpartition("@")[2]
    more = {**op.asked, "begun": b.story.now + 1, **asked}
    return b.story.invoke(LATE, "handle", f"{op.k.rpartition('@')[0]}@{place}", more).said(
        LATE, "done"
    )


def _change(b: Broken, op: Op, **asked: Any) -> bool:
    b.rows[op.i - 1].v = {**op.asked, **asked}
    return True


@kept("undelivered", may="unfinished out-of-order at-once")
def never_hear_of_the_only_call(b: Broken) -> bool:
    op = b.pick([
        op for op in _once(b, "done")
        if op.asked["offset"] >= b.floor[op.k.rpartition("@")[2]]
    ])  # fmt: skip
    if op:
        row = b.row(op)
        row.type, row.v, row.err = Kind.INFO, None, "CANCELLED"
    return bool(op)


def _unfinished(b: Broken) -> list[tuple[Op, str, int]]:
    """Return floors with the record at each, which was called for only later."""
    return [
        (floors, place, floor)
        for floors in b.of("floors")
        for place, floor in floors.result.items()
        for call in b.of("handle")
        if floor >= b.floor[place]
        and call.k == f"{floors.k}@{place}" and call.asked["read"] == [place, floor]
        and call.i > floors.done
        and all(each.i > floors.done for each in _of_record(b, call))
    ]  # fmt: skip


@kept("unfinished", may="delivered-again")
def tell_a_floor_too_high(b: Broken) -> bool:
    found = b.pick(_unfinished(b))
    if found:
        floors, place, floor = found
        b.row(floors).v = {place: floor + 1}
    return bool(found)


# The record may have failed before: then the second call is told of too few failures, too.
@kept("delivered-again", may="wrong-attempts")
def call_for_what_was_committed(b: Broken) -> bool:
    floors = {
        (op.k, place, floor)
        for op in b.of("floors") for place, floor in op.result.items()
    }  # fmt: skip
    op = b.pick([
        op for op in _calls(b, "done", again=False)
        if any(
            op.k == f"{group}@{place}" and op.asked["read"][1] < floor
            for group, place, floor in floors
        )
    ])  # fmt: skip
    if op:
        _again(b, op, epoch=op.asked["epoch"] + FAR)
    return bool(op)


@kept("misdelivered", may="out-of-order at-once")
def hand_out_another_message(b: Broken) -> bool:
    op = b.pick(_calls(b, "done"))
    other = b.pick(
        [each for each in b.of("handle") if op and each.asked["value"] != op.asked["value"]]
    )
    return bool(op and other) and _change(b, op, value=other.asked["value"])


@kept("stuck")
def let_a_group_come_to_no_end(b: Broken) -> bool:
    op = b.pick(b.of("caught-up"))
    if op:
        row = b.row(op)
        row.type, row.v, row.err = Kind.FAIL, None, "NOT_LEADER: it has not finished"
    return bool(op)


def _followed(b: Broken) -> list[tuple[Op, Op]]:
    """Return calls of ordered groups for a record, and for the next one of their chain."""
    calls = [
        op for op in _calls(b, "done", again=False) if op.asked["order"] == "queue"
    ]  # fmt: skip
    return [
        (op, later) for op in calls if len(_of_record(b, op)) == 1
        for later in calls if later.k == op.k and later.i > op.i
        and later.asked["offset"] == op.asked["offset"] + 1 and len(_of_record(b, later)) == 1
    ]  # fmt: skip


@kept("out-of-order", may="unfinished undelivered")
def go_on_after_a_failure(b: Broken) -> bool:
    found = b.pick(_followed(b))
    if found:
        b.row(found[0]).v = ["failed", found[0].result[1]]
    return bool(found)


@kept("at-once", may="out-of-order unfinished")
def begin_before_the_call_before_ended(b: Broken) -> bool:
    found = b.pick(_followed(b))
    if found:
        b.row(found[0]).v = ["done", found[1].asked["begun"] + 1]
    return bool(found)


@kept("two-holders")
def come_back_with_an_old_epoch(b: Broken) -> bool:
    found = b.pick(_followed(b))
    return bool(found) and _change(b, found[1], epoch=0)


@kept("wrong-attempts")
def count_what_did_not_fail(b: Broken) -> bool:
    op = b.pick(_once(b, "done"))
    return bool(op) and _change(b, op, attempts=5)


@kept("retried-twice")
def retry_twice_after_one_failure(b: Broken) -> bool:
    op = b.pick([
        op for op in _calls(b, "done", again=True)
        if op.asked["attempts"] and op.asked["order"] == "concurrent"
        and not any(_is_sent_again(each) for each in _of_record(b, op))
    ])  # fmt: skip
    if op:
        _again(b, op, read=[op.asked["read"][0], FAR])
    return bool(op)


def _is_sent_again(op: Op) -> bool:
    return op.asked["read"][0].startswith("%RETRY%") and not op.asked["attempts"]


@kept("resent-twice")
def send_a_dead_letter_again_twice(b: Broken) -> bool:
    op = b.pick([op for op in b.of("handle") if _is_sent_again(op)])
    if op:
        _again(b, op, read=[op.asked["read"][0], FAR])
    return bool(op)


def _with_letters(b: Broken) -> Op | None:
    found: Op | None = b.pick([op for op in b.of("letters") if op.result])
    return found


@kept("died-twice")
def tell_a_dead_letter_twice(b: Broken) -> bool:
    op = _with_letters(b)
    if op:
        b.row(op).v = [*op.result, op.result[0]]
    return bool(op)


@kept("died-early")
def let_a_record_die_that_did_not_fail(b: Broken) -> bool:
    op = b.pick(b.of("letters"))
    call = b.pick([each for each in _once(b, "done") if op and each.k.startswith(f"{op.k}@")])
    if call:
        b.row(op).v = [*op.result, [call.k.rpartition("@")[2], call.asked["offset"], 1, 0]]
    return bool(call)


def _delayed(b: Broken) -> Op | None:
    """Return a message that came, and that nobody may have taken back."""
    read = {value for log in b.log.values() for value in log.values()}
    found: Op | None = b.pick([op for op in b.of("delay") if op.asked[0] in read])
    return found


@kept("fired-early")
def let_a_message_come_before_its_time(b: Broken) -> bool:
    op = _delayed(b)
    if op:
        b.row(op).v = 10 * b.story.now
    return bool(op)


_OF_LOSS = "gap poll-skip int-poll-skip misdelivered not-live lost lost-write un-read unseen"


@kept("not-fired", may=_OF_LOSS)
def lose_a_delayed_message(b: Broken) -> bool:
    op = _delayed(b)
    if op:
        b.rewrite(b.reads(), without(op.asked[0]))
    return bool(op)


@kept("fired-after-recall")
def take_back_what_came(b: Broken) -> bool:
    op = _delayed(b)
    if op:
        b.story.op(LATE, "recall", op.k, op.asked[0])
    return bool(op)
