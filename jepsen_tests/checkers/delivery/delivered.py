"""C27: each group finishes with each message, and with no message again."""

from collections.abc import Mapping
from typing import Any

from jepsen_tests.checkers.delivery.calls import (
    CONCURRENT,
    DONE,
    Call,
    Queue,
    by_queue,
    by_record,
    calls_of,
)
from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.view import View, grouped
from jepsen_tests.history.events import Op


def delivered(view: View) -> Judgement:
    """C27. A group finishes with each message once it is there, and does not get it again.

    A floor says that the group has finished with all below. So somebody must have finished with
    each of these records before the floor was told, and nobody gets one after that. In a concurrent
    group a consumer that has lost its queue may still hand out what it has in hand. In the end each
    message was done, or is in the dead letters; and what was handed out is what was sent.
    """
    judgement = Judgement("C27")
    calls = calls_of(view)
    queues = by_queue(calls)
    floors = [op for op in view.ops("floors") if op.is_ok]
    judgement.facts |= {"looked_at": len(calls), "floors": len(floors)}
    _misdelivered(view, judgement, calls)
    _unfinished(view, judgement, floors, queues)
    _again(judgement, floors, queues)
    if view.cut_short:
        if calls:
            judgement.unknown(view.cut_short)
        return judgement
    for group, ops in grouped(view.ops("caught-up"), lambda op: op.k).items():
        judgement.none_succeeded("stuck", f"{group} does not come to the end", ops)
    _undelivered(view, judgement, calls)
    return judgement


def _misdelivered(view: View, judgement: Judgement, calls: list[Call]) -> None:
    for call in calls:
        spot = view.log.places[call.origin].spots.get(call.offset)
        known = spot.value if spot is not None else ""
        if call.value not in view.log.sent or known not in ("", call.value):
            stands = f"{known} stands there" if known else "nobody sent it"
            rows = (*call.rows, *((spot.row,) if spot is not None else ()))
            judgement.add("misdelivered", f"{call.text}: got {call.value}, but {stands}", rows)


def _unfinished(
    view: View, judgement: Judgement, floors: list[Op], queues: Mapping[Queue, list[Call]]
) -> None:
    """Look for records below a floor with which nobody had finished."""
    finished: dict[Queue, dict[int, int]] = {}
    for queue, calls in queues.items():
        first = finished[queue] = {}
        for call in calls:
            if call.finishes:
                first[call.read_offset] = min(call.ended, first.get(call.read_offset, call.ended))
    passed: dict[Queue, int] = {}
    trimmed = {place.name: place.floor for place in view.log.places.values()}
    for op in floors:
        for place, floor in op.result.items():
            queue = op.k, place
            when = finished.get(queue, {})
            for offset in range(passed.get(queue, trimmed.get(place, 0)), floor):
                if when.get(offset, op.ended) >= op.ended:
                    judgement.add(
                        "unfinished",
                        f"{op.k}: the floor of {place} is {floor}, and nobody had finished with "
                        f"offset {offset}",
                        (op.i, op.done),
                    )
            passed[queue] = max(floor, passed.get(queue, 0))


def _again(judgement: Judgement, floors: list[Op], queues: Mapping[Queue, list[Call]]) -> None:
    """Look for calls for records below a floor that was told before they began."""
    told: dict[Queue, list[tuple[int, int, Op]]] = {}
    for op in sorted(floors, key=lambda op: op.ended):
        for place, floor in op.result.items():
            mine = told.setdefault((op.k, place), [])
            if floor and (not mine or floor > mine[-1][1]):
                mine.append((op.ended, floor, op))
    for queue, calls in queues.items():
        known, at, highest = told.get(queue, []), 0, -1
        for call in calls:
            while at < len(known) and known[at][0] < call.begun:
                at += 1
            is_late = call.order == CONCURRENT and call.epoch < highest
            highest = max(highest, call.epoch)
            if at and call.read_offset < known[at - 1][1] and not is_late:
                _, floor, op = known[at - 1]
                judgement.add(
                    "delivered-again",
                    f"{queue[0]}: {call.text} was handed out when the floor was {floor} already",
                    (*call.rows, op.i, op.done),
                )


def _undelivered(view: View, judgement: Judgement, calls: list[Call]) -> None:
    ends: dict[str, Op] = {op.k: op for op in view.ops("caught-up") if op.is_ok}
    letters: dict[str, Op] = {op.k: op for op in view.ops("letters") if op.is_ok}
    done = {
        record for record, mine in by_record(calls).items() if any(c.said == DONE for c in mine)
    }
    looked_at = 0
    for group, op in ends.items():
        listed: list[Any] = letters[group].result if group in letters else []
        dead = {(row[0], row[1]) for row in listed}
        for place, end in op.result.items():
            log = view.log.places[place]
            for offset, spot in log.spots.items():
                looked_at += 1
                is_finished = (group, place, offset) in done or (place, offset) in dead
                if is_finished or not log.floor <= offset < end:
                    continue
                judgement.add(
                    "undelivered",
                    f"{group} has finished, but never with {spot.value} at {place} offset {offset},"
                    " which is not in its dead letters",
                    (spot.row, op.i, op.done),
                )
    judgement.facts["messages"] = looked_at
    groups = {call.group for call in calls}
    if missing := sorted(groups - set(ends)):
        judgement.unknown(f"nobody knows whether {', '.join(missing)} came to the end")
