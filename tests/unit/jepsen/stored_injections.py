"""Anomalies of lookups, times, holds and exports, put into a valid history."""

from functools import partial
from typing import Any

from jepsen_tests.checkers.log.holds import owner_of
from jepsen_tests.history.events import Kind, Op
from tests.unit.jepsen.injections import Broken, names
from tests.unit.jepsen.stored_model import TTLS_MS

LOOKUPS = ("lookup", "lookup-key", "lookup-id")
kept = partial(names, with_kept=True)
LATE = 200
"""A process that only an injection has."""


def _found(b: Broken) -> Op | None:
    """Return a lookup by key or id of an acknowledged message above all trims."""
    acked = {op.asked[0]: op for op in b.acked()}
    found: Op | None = b.pick([
        op for op in b.of("lookup-key", "lookup-id")
        if op.is_ok and op.result and op.result[0][2] in acked
        and acked[op.result[0][2]].done < op.i
    ])  # fmt: skip
    return found


@kept("not-found")
def find_nothing(b: Broken) -> bool:
    op = _found(b)
    if op:
        b.row(op).v = []
    return bool(op)


@kept("found-other", may="real-time not-found held-unreadable")
def find_another(b: Broken) -> bool:
    op, other = _found(b), _found(b)
    if not op or not other or op.result[0][2] == other.result[0][2]:
        return False
    b.row(op).v = other.result
    return True


@kept("found-twice")
def find_two(b: Broken) -> bool:
    op = _found(b)
    if op:
        b.row(op).v = op.result * 2
    return bool(op)


def _stamps(b: Broken) -> Op | None:
    found: Op | None = b.pick([op for op in b.of("stamps") if len(op.result) > 2])
    return found


@kept("stamp-differs", may="stamp-back passed-over too-early hold-passed held-by-nobody")
def stamp_a_found_record_anew(b: Broken) -> bool:
    shown = {(op.k, row[0]) for op in b.of("stamps") for row in op.result}
    op = b.pick([op for op in b.of(*LOOKUPS) if op.is_ok and op.result
                 and tuple(op.result[0][:2]) in shown])  # fmt: skip
    if op:
        b.row(op).v = [[*op.result[0][:3], op.result[0][3] + 1]]
    return bool(op)


@kept("stamp-back", may="stamp-differs passed-over too-early hold-passed held-unreadable")
def let_store_times_fall(b: Broken) -> bool:
    op = _stamps(b)
    if op:
        b.row(op).v = [*op.result[:-1], [*op.result[-1][:2], 1]]
    return bool(op)


def _by_time(b: Broken) -> Op | None:
    """Return a call whose answer was followed by a message of a later time."""
    times = {(op.k, row[0]): row[2] for op in b.of("stamps") for row in op.result}
    found: Op | None = b.pick([
        op for op in b.of("by-time")
        if op.is_ok and op.done < b.final
        and times.get((op.k, op.result), -1) >= op.asked
        and times.get((op.k, op.result + 1), 0) > op.asked
    ])  # fmt: skip
    return found


@kept("passed-over", may="time-back")
def pass_a_record_over(b: Broken) -> bool:
    op = _by_time(b)
    if op:
        b.row(op).v = op.result + 1
    return bool(op)


@kept("too-early", may="time-back passed-over")
def tell_an_earlier_record(b: Broken) -> bool:
    times = {(op.k, row[0]): row[2] for op in b.of("stamps") for row in op.result}
    known = {(op.k, op.result[0]): op for op in b.acked()}
    op = b.pick([
        op for op in b.of("by-time")
        if op.is_ok and times.get((op.k, op.result - 1), op.asked) < op.asked
        and (op.k, op.result - 1) in known and known[op.k, op.result - 1].done < op.i
    ])  # fmt: skip
    if op:
        b.row(op).v = op.result - 1
    return bool(op)


@kept("beyond-end", may="time-back passed-over")
def tell_an_offset_beyond_the_end(b: Broken) -> bool:
    op = b.pick([op for op in b.of("by-time") if op.is_ok and op.done < b.final])
    if op:
        b.row(op).v = b.end(op.k) + 1
    return bool(op)


@kept("time-back", may="too-early passed-over")
def tell_less_for_a_later_time(b: Broken) -> bool:
    asked = [op for op in b.of("by-time") if op.is_ok and op.result > b.floor[op.k]]
    op = b.pick([
        later for later in asked for earlier in asked
        if earlier.k == later.k and earlier.done < later.i and earlier.asked <= later.asked
    ])  # fmt: skip
    if op:
        b.row(op).v = b.floor[op.k]
    return bool(op)


def _lasting(b: Broken, f: str) -> list[tuple[Op, Op]]:
    """Return holds of ten minutes with operations on their places before their owners went on."""
    changed = [op for op in b.of("hold", "release") if not op.is_failed]
    return [
        (hold, op)
        for hold in b.of("hold") if hold.is_ok and hold.asked["ttl_ms"] == max(TTLS_MS)
        for op in b.of(f) if op.is_ok and op.k == hold.k and hold.done < op.i
        and not any(
            each.k == hold.k and owner_of(each) == owner_of(hold) and hold.i < each.i < op.done
            for each in changed
        )
    ]  # fmt: skip


@kept("hold-passed", may="over-trimmed bounds-back poll-skip int-poll-skip high-bounds un-read")
def trim_what_is_held(b: Broken) -> bool:
    found = b.pick(_lasting(b, "trim"))
    if found:
        hold, op = found
        b.row(op).v = hold.asked["offset"] + 1
    return bool(found)


@kept("held-unreadable", may="not-found")
def hide_what_is_held(b: Broken) -> bool:
    known = {(op.k, op.result[0]): op for op in b.acked()}
    op = b.pick([
        op for hold, op in _lasting(b, "lookup")
        if hold.asked["offset"] <= op.asked
        and (op.k, op.asked) in known and known[op.k, op.asked].done < op.i
    ])  # fmt: skip
    if op:
        b.row(op).v = []
    return bool(op)


@kept("held-by-nobody")
def refuse_a_trim_for_nothing(b: Broken) -> bool:
    held = {op.k for op in b.of("hold")}
    place = b.pick([place for place in b.log if place not in held and b.end(place)])
    if not place or not held:
        return False
    b.story.invoke(LATE, "trim", place, 0).end(LATE, kind=Kind.FAIL, err="HELD: nobody")
    return True


def _exports(b: Broken) -> list[Op]:
    """Return the first rows of versions with something in them, in order of versions."""
    first: dict[int, Op] = {}
    for op in b.of("export"):
        if op.is_ok:
            first.setdefault(op.result["version"], op)
    return [first[number] for number in sorted(first)]


def _rewrite(b: Broken, version: int, **changed: object) -> bool:
    """Change each row that shows a version."""
    for op in b.of("export"):
        if op.is_ok and op.result["version"] == version:
            b.row(op).v = op.result | changed
    return True


def _with_rows(b: Broken) -> Op | None:
    found: Op | None = b.pick([
        op for op in _exports(b) if any(len(run[2]) > 1 for run in op.result["rows"])
    ])  # fmt: skip
    return found


def _split(op: Op) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return the rows of a version but one, and that one."""
    rows = [[k, at + n, [value]] for k, at, values in op.result["rows"]
            for n, value in enumerate(values)]  # fmt: skip
    return rows[:-1], rows[-1:]


@kept("export-differs", may="export-hole")
def show_a_version_in_two_ways(b: Broken) -> bool:
    shown: dict[int, Op] = {}
    for op in b.of("export"):
        if op.is_ok and op.result["rows"]:
            if op.result["version"] in shown:
                b.row(op).v = op.result | {"rows": []}
                return True
            shown[op.result["version"]] = op
    return False


@kept("export-not-next", may="export-twice export-hole export-gap")
def begin_a_version_too_late(b: Broken) -> bool:
    op = b.pick([
        op for op in _exports(b)
        if op.result["version"] and any(op.result["end"][k] > at for k, at in
                                        op.result["start"].items())
    ])  # fmt: skip
    if not op:
        return False
    start = dict(op.result["start"])
    place = next(k for k, at in start.items() if op.result["end"][k] > at)
    return _rewrite(b, op.result["version"], start=start | {place: start[place] + 1})


@kept("export-order")
def disorder_rows(b: Broken) -> bool:
    op = _with_rows(b)
    if not op:
        return False
    most, last = _split(op)
    if most[-1][0] != last[0][0]:
        return False
    return _rewrite(b, op.result["version"], rows=[*most[:-1], *last, most[-1]])


@kept("export-twice", "export-order")
def repeat_a_row(b: Broken) -> bool:
    op = _with_rows(b)
    if not op:
        return False
    most, last = _split(op)
    return _rewrite(b, op.result["version"], rows=[*most, *last, *last])


@kept("export-hole")
def leave_a_row_out(b: Broken) -> bool:
    op = _with_rows(b)
    return op is not None and _rewrite(b, op.result["version"], rows=_split(op)[0])


@kept("export-gap")
def pass_a_row_over(b: Broken) -> bool:
    op = _with_rows(b)
    if not op:
        return False
    most, [last] = _split(op)
    place, at, _ = last
    if at < b.floor[place]:
        return False
    gaps = [*op.result["gaps"], [place, at, at + 1]]
    return _rewrite(b, op.result["version"], rows=most, gaps=gaps)


@kept("export-held-trimmed")
def lose_what_was_planned(b: Broken) -> bool:
    op = _with_rows(b)
    if not op:
        return False
    place, at, _ = op.result["rows"][0]
    return _rewrite(b, op.result["version"], lost=[[place, at, at + 1]])


@kept("export-short")
def stop_before_what_was_acknowledged(b: Broken) -> bool:
    """The last version ends below a message that was acknowledged long before."""
    found = _exports(b)
    if not found:
        return False
    op = found[-1]
    acked = [each for each in b.acked() if each.done < op.i and each.k in op.result["end"]
             and each.result[0] == op.result["end"][each.k] - 1]  # fmt: skip
    rows = [run for run in op.result["rows"] if run[0] == acked[0].k] if acked else []
    if not rows:
        return False
    place = acked[0].k
    cut = [[k, at, values[:-1]] if k == place else [k, at, values]
           for k, at, values in op.result["rows"]]  # fmt: skip
    end = op.result["end"] | {place: op.result["end"][place] - 1}
    return _rewrite(b, op.result["version"], end=end, rows=[run for run in cut if run[2]])
