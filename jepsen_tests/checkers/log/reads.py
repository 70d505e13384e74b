"""C10, C11: readers get each value once and in order, and a value that was read stays."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from operator import itemgetter

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.log_view import FINAL, READ, PlaceLog
from jepsen_tests.checkers.shared.readers import Jump
from jepsen_tests.checkers.shared.realtime import high_water
from jepsen_tests.checkers.shared.view import View, grouped
from jepsen_tests.history.events import Kind, Op


def polls(view: View) -> Judgement:
    """C10. A reader continues where it stood: it skips no known value and does not go back.

    Jepsen's kafka workload (poll-skip, nonmonotonic-poll, and int- inside one poll). After an
    assign with an offset the first poll begins there, or at the minimum when that is higher.
    """
    judgement = Judgement("C10")
    for jump in view.readers.jumps:
        place = view.log.places[jump.place]
        if jump.offset < jump.expected:
            what, kind = "went back", "nonmonotonic-poll"
        elif (skipped := _skipped(place, jump)) is not None:
            what, kind = f"skipped the known value at offset {skipped}", "poll-skip"
        else:
            continue
        judgement.add(
            f"int-{kind}" if jump.internal else kind,
            f"{jump.place}: process {jump.op.p} stood at offset {jump.expected} and got offset "
            f"{jump.offset}: it {what}",
            (jump.before, jump.op.i, jump.op.done) if jump.before else (jump.op.i, jump.op.done),
        )
    judgement.facts["looked_at"] = len(view.ops("poll"))
    return judgement


def _skipped(place: PlaceLog, jump: Jump) -> int | None:
    """Return the first skipped offset that is known to hold a value."""
    known = place.known()
    at = bisect_left(known, max(jump.expected, place.floor_at(jump.op.done)))
    return known[at] if at < len(known) and known[at] < jump.offset else None


def committed_visibility(view: View) -> Judgement:
    """C11. A value that was read stays readable, bounds never go back, no trim takes too much.

    A poll shows committed values only, so a later leader cannot lose them. A maximum that a quorum
    confirmed lies above all values that were acknowledged or read before the call. A minimum lies
    at most where somebody asked for a trim: values above it stay. A maximum is not above the number
    of values whose sends had begun, and not above what final reads reach.
    """
    judgement = Judgement("C11")
    looked_at = 0
    for place in view.log.places.values():
        looked_at += len(place.spots)
        _unread(place, judgement)
    bounds = grouped((op for op in view.ops("bounds") if op.is_ok), lambda op: op.k)
    for name, ops in bounds.items():
        _going_back(name, ops, judgement)
    _stale(view, bounds, judgement)
    _over_trimmed(view, judgement)
    _too_high(view, bounds, judgement)
    judgement.facts |= {"looked_at": looked_at, "bounds": sum(map(len, bounds.values()))}
    return judgement


def _unread(place: PlaceLog, judgement: Judgement) -> None:
    replaced = {offset for (offset, _), spot in place.others.items() if spot.seen & FINAL}
    for offset, spot in place.spots.items():
        if spot.seen & FINAL or not spot.seen & READ:
            continue
        if offset in replaced or offset in place.corrupt or offset not in place.finally_read:
            continue
        judgement.add(
            "un-read",
            f"{place.name}: {spot.value} was read at offset {offset}, but the final reads, which "
            f"reach {place.final_end}, do not show it",
            (spot.row, spot.read_row),
        )


def _going_back(name: str, ops: list[Op], judgement: Judgement) -> None:
    for index, what in enumerate(("minimum", "maximum")):
        completed = ((op.done, op.result[index], op) for op in ops)
        for later, highest, earlier in high_water(completed, ((op.i, op) for op in ops)):
            if later.result[index] < highest:
                judgement.add(
                    "bounds-back",
                    f"{name}: the {what} was {highest} and later {later.result[index]}",
                    (earlier.i, earlier.done, later.i, later.done),
                )


def _stale(view: View, bounds: dict[str, list[Op]], judgement: Judgement) -> None:
    shown: defaultdict[str, list[tuple[int, int, Op]]] = defaultdict(list)
    for place, offset, op in _highest_shown(view) if bounds else ():
        points = shown[place]
        if place in bounds and not (points and _says_less(op.done, offset, points[-1])):
            points.append((op.done, offset, op))
    for place, ops in bounds.items():
        for asked, offset, op in high_water(shown[place], ((op.i, op) for op in ops)):
            if asked.result[1] <= offset:
                judgement.add(
                    "stale-bounds",
                    f"{place}: a member told the maximum {asked.result[1]} after offset {offset} "
                    f"had been {'read' if op.f in ('poll', 'drain') else 'acknowledged'}",
                    (op.i, op.done, asked.i, asked.done),
                )


def _over_trimmed(view: View, judgement: Judgement) -> None:
    asked: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for op in view.ops("trim"):
        if not op.is_failed:
            most = max(op.asked, asked[op.k][-1][1]) if asked[op.k] else op.asked
            asked[op.k].append((op.i, most))  # by row, with the highest offset asked so far
    for op in view.ops("trim", "bounds"):
        if not op.is_ok:
            continue
        minimum = op.result if op.f == "trim" else op.result[0]
        begun = bisect_left(asked[op.k], op.done, key=itemgetter(0))
        most = asked[op.k][begun - 1][1] if begun else 0
        if minimum > most:
            judgement.add(
                "over-trimmed",
                f"{op.k}: the minimum is {minimum}, though no trim that had begun asked for more "
                f"than {most}",
                (op.i, op.done),
            )


def _too_high(view: View, bounds: dict[str, list[Op]], judgement: Judgement) -> None:
    sent: defaultdict[str, list[int]] = defaultdict(list)
    for each in view.log.sent.values() if bounds else ():
        if each.read_row or each.outcome is not Kind.FAIL:
            sent[each.place.name].append(each.op.i)
    for name, ops in bounds.items():
        begun = sorted(sent[name])
        place = view.log.places[name]
        for op in ops:
            most = bisect_left(begun, op.done)
            if op.result[1] > most and op.result[1] > most + _strangers(place):
                judgement.add(
                    "high-bounds",
                    f"{name}: a member told the maximum {op.result[1]} when sends of only {most} "
                    "values had begun",
                    (op.i, op.done),
                )
        if not view.cut_short:
            _unreached(place, ops, judgement)


def _strangers(place: PlaceLog) -> int:
    """Count values read that are second copies or were never sent: other checkers name these."""
    return sum(
        spot.read_row > 0 and (spot.sent is None or offset != spot.sent.first)
        for offset, spot in place.spots.items()
    )


def _unreached(place: PlaceLog, ops: list[Op], judgement: Judgement) -> None:
    """Name a maximum told before the final reads that lies above every value they can show."""
    before = [op for op in ops if op.done < place.finally_asked]
    highest = max(before, key=lambda op: op.result[1], default=None)
    if highest is None or not place.final_end:
        return
    end = max(place.final_end, place.floor)
    known = place.known()
    at = bisect_left(known, end)
    is_loss = at < len(known) and known[at] < highest.result[1]  # for C3 to name
    if highest.result[1] > end and not is_loss:
        judgement.add(
            "high-bounds",
            f"{place.name}: a member told the maximum {highest.result[1]}, but final reads end at "
            f"{end}",
            (highest.i, highest.done),
        )


def _says_less(row: int, offset: int, point: tuple[int, int, Op]) -> bool:
    """Say whether a known point is earlier and higher. Dropping such points saves most memory."""
    return point[0] <= row and point[1] >= offset


def _highest_shown(view: View) -> Iterator[tuple[str, int, Op]]:
    """Yield place, highest offset and operation for each operation that shows an offset."""
    for op in view.sends:
        if op.is_ok and op.result[0] is not None:
            yield op.k, op.result[0] + len(op.asked) - 1, op
    for op in view.ops("poll", "drain"):
        if op.is_ok:
            for place, offset, values in op.result:
                yield place, offset + len(values) - 1, op
