"""C23: an offset by time is the first record that was stored at or after that time."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.stamps import Stamp
from jepsen_tests.checkers.shared.view import View, grouped
from jepsen_tests.history.events import Op


def offsets_by_time(view: View) -> Judgement:
    """C23. The answer follows from the store times, whatever the members' clocks show.

    Everything below the answer was stored before that time, or is trimmed. A record
    that was known to stand at the answer was stored at or after that time. The answer is the end of
    the queue when nothing is; so it never lies above what final reads reach. A later call for the
    same time or a later one never gets a lower answer. Store times never fall within a queue, and a
    record has one.
    """
    judgement = Judgement("C23")
    for place, one, other in view.stamps.differing:
        judgement.add(
            "stamp-differs",
            f"{place}: offset {other.offset} was stored at {one.time_ms} ms and {other.time_ms} ms",
            (one.op.i, other.op.i),
        )
    for place, before, after in view.stamps.backward():
        judgement.add(
            "stamp-back",
            f"{place}: offset {before.end - 1} was stored at {before.time_ms} ms, and offset "
            f"{after.offset} at {after.time_ms} ms",
            (before.op.i, after.op.i),
        )
    asked = grouped((op for op in view.ops("by-time") if op.is_ok), lambda op: op.k)
    for ops in asked.values():
        for op in ops:
            _against_stamps(view, op, judgement)
        _never_back(ops, judgement)
        if not view.cut_short:
            _beyond(view, ops, judgement)
    judgement.facts |= {
        "looked_at": sum(map(len, asked.values())) + len(view.stamps),
        "stamps": len(view.stamps),
    }
    return judgement


def _against_stamps(view: View, op: Op, judgement: Judgement) -> None:
    below, floor = view.stamps.below(op.k, op.result), view.log.places[op.k].floor_at(op.done)
    highest = -1 if below is None else min(below.end, op.result) - 1
    if below is not None and below.time_ms >= op.asked and highest >= floor:
        _add(judgement, "passed-over", op, below, highest, "though")
    there = view.stamps.at(op.k, op.result)
    spot = view.log.places[op.k].spots.get(op.result)
    if there is None or spot is None or there.time_ms >= op.asked:
        return
    if min(spot.row, spot.read_row or spot.row) < op.i:
        _add(judgement, "too-early", op, there, op.result, "though, as was known before,")


def _add(judgement: Judgement, kind: str, op: Op, stamp: Stamp, offset: int, though: str) -> None:
    judgement.add(
        kind,
        f"{op.k}: the first offset stored from {op.asked} ms on was said to be {op.result}, "
        f"{though} offset {offset} was stored at {stamp.time_ms} ms",
        (op.i, op.done, stamp.op.i),
    )


def _beyond(view: View, ops: Iterable[Op], judgement: Judgement) -> None:
    for op in ops:
        place = view.log.places[op.k]
        end = max(place.final_end, place.floor)
        if place.final_end and op.done < place.finally_asked and op.result > end:
            judgement.add(
                "beyond-end",
                f"{op.k}: offset {op.result} was told for {op.asked} ms, but final reads end at "
                f"{end}",
                (op.i, op.done),
            )


def _never_back(ops: list[Op], judgement: Judgement) -> None:
    """Hold each call against the highest answer of all that ended before, for no later a time."""
    steps: list[tuple[int, int, Op]] = []
    """(time, answer, call): both growing, each the highest answer up to its time."""
    ended = sorted(ops, key=lambda op: op.done)
    at = 0
    for op in ops:
        while at < len(ended) and ended[at].done < op.i:
            _climb(steps, ended[at])
            at += 1
        before = bisect_right(steps, op.asked, key=lambda step: step[0])
        if before and steps[before - 1][1] > op.result:
            time_ms, answer, earlier = steps[before - 1]
            judgement.add(
                "time-back",
                f"{op.k}: offset {answer} was told for {time_ms} ms, and later {op.result} for "
                f"{op.asked} ms",
                (earlier.i, earlier.done, op.i, op.done),
            )


def _climb(steps: list[tuple[int, int, Op]], op: Op) -> None:
    at = bisect_right(steps, op.asked, key=lambda step: step[0])
    if at and steps[at - 1][1] >= op.result:
        return
    first = bisect_left(steps, op.asked, key=lambda step: step[0])
    last = first
    while last < len(steps) and steps[last][1] <= op.result:
        last += 1
    steps[first:last] = [(op.asked, op.result, op)]
