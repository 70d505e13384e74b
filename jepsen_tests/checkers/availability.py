"""C17, C18: how long nobody could write, and whether all is well again in the end."""

import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from jepsen_tests.checkers.judgement import Judgement
from jepsen_tests.checkers.view import View, seconds
from jepsen_tests.history import Fault, Op, Row

MAY_END: Final = (
    "failing-sync", "hung-sync", "full-disk", "power-cut", "next-quorum", "bit-flips", "truncation",
    "deletion", "stale-blocks", "starve",
)  # fmt: skip
"""How faults begin after which a member may rightly end: its disk or memory failed it."""


def recovery_time(view: View) -> Judgement:
    """C17. After a fault begins, a write invoked after it is acknowledged within the budget.

    One budget in seconds per fault class, `notes["budgets"]` of the header; without, figures only.
    Faults that were in force together have all their budgets together, and when one begins before
    the group recovered from another, the clock starts anew for both. A fault after which nobody
    wrote again tells nothing. Figures: median and worst per class, and the longest time without an
    acknowledged send, per place and overall.
    """
    judgement = Judgement("C17")
    budgets: dict[str, float] = view.header.notes.get("budgets", {})
    times: defaultdict[str, list[float]] = defaultdict(list)
    for fault, start, ended, first in recoveries(view):
        took = seconds(ended - start)
        times[fault.name].append(took)
        together = [o.name for o in view.faults if o.start < fault.end and fault.start < o.end]
        budget = sum(budgets.get(name, 0.0) for name in together)
        if fault.name in budgets and took > budget:
            judgement.add(
                "too-slow",
                f"{fault.name} {fault.targets}: no write that began later was acknowledged for "
                f"{took} s; the budget is {budget} s",
                (fault.row, first.i, first.done) if first else (fault.row,),
            )
    judgement.facts["looked_at"] = sum(map(len, times.values()))
    for name, each in sorted(times.items()):
        judgement.facts[f"{name}_count"] = len(each)
        judgement.facts[f"{name}_p50_s"] = statistics.median(each)
        judgement.facts[f"{name}_max_s"] = max(each)
    _gaps(view, judgement)
    return judgement


def recoveries(view: View) -> Iterator[tuple[Fault, int, int, Op | None]]:
    """Yield fault, since when, when the first write begun since was acknowledged, and that write.

    That is since it began, or since the last one began of those that came before the group had
    recovered. The end of the history stands for a write that never came; when a run was broken off
    the beginning of the last one does: nobody tried any longer.
    """
    begins = [op.began for op in view.writes]
    never = begins[-1] if begins and view.interrupted else view.history.ended
    earliest: list[Op | None] = [None] * (len(begins) + 1)
    for at in range(len(begins) - 1, -1, -1):
        op, later = view.writes[at], earliest[at + 1]
        is_earlier = op.is_ok and (later is None or op.ended < later.ended)
        earliest[at] = op if is_earlier else later
    starts = sorted(fault.start for fault in view.faults)
    for fault in view.faults:
        start = fault.start
        while True:
            at = bisect_right(begins, start)
            first = earliest[at]
            ended = first.ended if first else never
            next_start = bisect_right(starts, start)
            if next_start == len(starts) or starts[next_start] >= ended:
                break
            start = starts[next_start]
        if at < len(begins):
            yield fault, start, ended, first


def _gaps(view: View, judgement: Judgement) -> None:
    ends: defaultdict[str, list[int]] = defaultdict(list)
    for op in view.sends:
        if op.is_ok:
            ends[op.k].append(op.ended)
    if not ends:
        return
    judgement.facts["longest_gap_s"] = _longest(end for each in ends.values() for end in each)
    for place, each in sorted(ends.items()):
        judgement.facts[f"longest_gap_s {place}"] = _longest(each)


def _longest(ends: Iterable[int]) -> float:
    ordered = sorted(ends)
    return seconds(max((b - a for a, b in pairwise(ordered)), default=0))


def liveness(view: View) -> Judgement:
    """C18. In the final phase every place takes writes and can be read, and all members agree.

    Their last statuses show one leader and followers, of one term, that have committed and applied
    the same; each gave up what it holds of every place (drains). No member ended by itself, unless
    a fault that may end it had hit it before ("died"). Not judged: places to which nobody tried to
    send in that phase (unknown), members when nobody asked any.
    """
    judgement = Judgement("C18")
    for row in view.history.faults:
        if row.f == "died" and not _may_have_ended(view, row):
            judgement.add("died", f"{row.k} ended by itself: {row.err}", (row.i,))
    places = _by_place(view.sends)
    asked = view.ops("status", "entries")
    judgement.facts["looked_at"] = len(places) + len({op.node for op in asked})
    if not judgement.facts["looked_at"]:
        return judgement
    if view.final_row is None or view.cut_short:
        judgement.unknown(view.cut_short)
        return judgement
    tried = _by_place(view.sends[bisect_right(view.sends, view.final_row, key=lambda op: op.i) :])
    bounds = _by_place(op for op in view.ops("bounds") if view.is_final(op))
    for place in sorted(places):
        _is_live(place, tried[place], judgement)
        _is_readable(place, bounds[place], judgement)
    if asked:
        _is_converged(view, judgement)
    _is_drained(view, judgement)
    return judgement


def _may_have_ended(view: View, died: Row) -> bool:
    return any(
        fault.start < died.t
        and fault.name.startswith(MAY_END)
        and fault.hits(died.k, view.header.nodes)
        for fault in view.faults
    )


def _by_place(sends: Iterable[Op]) -> defaultdict[str, list[Op]]:
    grouped: defaultdict[str, list[Op]] = defaultdict(list)
    for op in sends:
        grouped[op.k].append(op)
    return grouped


def _is_live(place: str, tried: list[Op], judgement: Judgement) -> None:
    if not tried:
        judgement.unknown(f"nobody sent to {place} in the final phase")
    elif not any(op.is_ok for op in tried):
        judgement.add(
            "not-live",
            f"{place}: none of {len(tried)} sends in the final phase was acknowledged: "
            f"{tried[-1].err or 'no answer'}",
            (op.i for op in tried),
        )


def _is_readable(place: str, asked: list[Op], judgement: Judgement) -> None:
    if asked and not any(op.is_ok for op in asked):
        judgement.add(
            "not-live",
            f"{place}: minimum and maximum could not be read in the final phase: "
            f"{asked[-1].err or 'no answer'}",
            (op.i for op in asked),
        )


def _is_converged(view: View, judgement: Judgement) -> None:
    answers = view.final("status", "entries")
    silent = sorted(set(view.header.nodes) - {op.node for op in answers})
    if silent:
        judgement.add("not-converged", f"no answer in the final phase from {', '.join(silent)}")
    last: dict[str, Op] = {}
    for op in sorted(view.final("status"), key=lambda op: op.done):
        last[op.node] = op
    if not last:
        return
    found = {node: op.result for node, op in sorted(last.items())}
    roles = sorted(each["role"] for each in found.values())
    ends = {(each["term"], each["commit"]) for each in found.values()}
    is_applied = all(each["applied"] == each["commit"] for each in found.values())
    if roles != [*["follower"] * (len(roles) - 1), "leader"] or len(ends) > 1 or not is_applied:
        judgement.add(
            "not-converged",
            "in the end: "
            + "; ".join(
                f"{node} {each['role']}, term {each['term']}, commit {each['commit']}, applied "
                f"{each['applied']}"
                for node, each in found.items()
            ),
            (op.done for op in last.values()),
        )


def _is_drained(view: View, judgement: Judgement) -> None:
    """Each member that was asked for what it holds of a place has told it."""
    asked: dict[tuple[str, str], list[Op]] = {}
    for op in view.ops("drain"):
        if view.is_final(op):
            asked.setdefault((op.node, op.k), []).append(op)
    for (node, place), ops in sorted(asked.items()):
        if not any(op.is_ok for op in ops):
            judgement.add(
                "not-converged",
                f"{node} did not tell what it holds of {place}: {ops[-1].err or 'no answer'}",
                (op.i for op in ops),
            )
