"""C17, C18: how long nobody could write, and whether the group works in the end."""

import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate, groupby, pairwise
from operator import attrgetter
from typing import Final, NamedTuple

from jepsen_tests.checkers.cluster.deaths import unexcused_deaths
from jepsen_tests.checkers.cluster.majority import time_within, without_majority
from jepsen_tests.checkers.cluster.replicas import TOO_LONG
from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.view import NS, View, grouped, seconds
from jepsen_tests.history.events import Op
from jepsen_tests.history.faults import FaultInForce

BY_PLACE: Final = attrgetter("k")
FAULTS_SHOWN: Final = 6
"""So many faults of a chain are in the rows of its anomaly."""


class Recovery(NamedTuple):
    """A fault, and the longest wait for a write, from some moment while the fault began."""

    fault: FaultInForce
    since: int
    """That moment, in ns."""
    ended: int
    """When the first write that began after that moment was acknowledged, in ns."""
    first: Op | None
    """That write. None: no write was acknowledged until `ended`."""

    @property
    def took(self) -> float:
        """The length of the wait in seconds, whatever else began meanwhile."""
        return seconds(self.ended - self.since)


def recovery_time(view: View) -> Judgement:
    """C17. After a fault, a write that was invoked after it is acknowledged within the budget.

    The longest wait counts, from any moment while the fault began: a write that is acknowledged
    while the nemesis still looks for its target shows no recovery. `notes["budgets"]` of the header
    has one budget in seconds for each class of faults. Without budgets there are figures only.

    Faults that begin before the group recovered from the first form a chain. The chain is measured
    from the longest wait of its first fault. The budgets of its faults are added, with the budgets
    of faults that were in force, or not recovered from, when that wait began. Quiet times, with no
    fault in force, count only up to the largest of these budgets: the next fault must not excuse a
    group that never recovers.

    Time in which only several faults together took the majority away does not count. A fault after
    which nobody wrote tells nothing. Figures: median and worst for each class, and the longest time
    without an acknowledged send, for each place and overall.
    """
    judgement = Judgement("C17")
    found = recoveries(view)
    times: defaultdict[str, list[float]] = defaultdict(list)
    for each in found:
        times[each.fault.name].append(each.took)
    _judge_chains(view, found, judgement)
    judgement.facts["looked_at"] = len(found)
    for name, took in sorted(times.items()):
        judgement.facts[f"{name}_count"] = len(took)
        judgement.facts[f"{name}_p50_s"] = statistics.median(took)
        judgement.facts[f"{name}_max_s"] = max(took)
    _gaps(view, judgement)
    return judgement


def recoveries(view: View) -> list[Recovery]:
    """Return how the group recovered from each fault after which somebody wrote, in their order.

    When no write was acknowledged, the wait ends with the history. When a signal ended the run, the
    wait ends with the beginning of the last write: after that nobody tried.
    """
    begins = [op.began for op in view.writes]
    never = begins[-1] if begins and view.interrupted else view.history.ended
    earliest: list[Op | None] = [None] * (len(begins) + 1)
    for at in range(len(begins) - 1, -1, -1):
        op, later = view.writes[at], earliest[at + 1]
        is_earlier = op.is_ok and (later is None or op.ended < later.ended)
        earliest[at] = op if is_earlier else later
    found: list[Recovery] = []
    for fault in sorted(view.faults, key=lambda fault: fault.start):
        low, high = (bisect_right(begins, at) for at in (fault.start, fault.done))
        # The wait is longest at the fault's start or right after a write begins.
        moments = [(fault.start, low), *((begins[at], at + 1) for at in range(low, high))]
        waits = [
            Recovery(fault, since, first.ended if (first := earliest[at]) else never, first)
            for since, at in moments if at < len(begins)
        ]  # fmt: skip
        if waits:
            found.append(max(waits, key=lambda each: each.ended - each.since))
    return found


def _judge_chains(view: View, found: list[Recovery], judgement: Judgement) -> None:
    budgets: dict[str, float] = view.header.notes.get("budgets", {})
    lost = without_majority(view)
    faults = sorted(view.faults, key=lambda fault: fault.start)
    # `until`: when each fault was healed and the group had recovered from it. `reach`: the same of
    # it and all faults before it. Faults after which nobody wrote come last.
    recovered = [each.ended for each in found] + [0] * (len(faults) - len(found))
    until = [max(fault.end, ended) for fault, ended in zip(faults, recovered, strict=True)]
    reach = list(accumulate(until, max))
    for _, chain in groupby(found, key=lambda each: each.ended):
        head = next(chain)
        low = bisect_right(reach, head.since)
        high = bisect_left(faults, head.ended, key=lambda fault: fault.start)
        places = [at for at in range(low, high) if until[at] > head.since]
        together = [faults[at] for at in places]
        if not all(fault.name in budgets for fault in together):
            continue
        away = time_within(lost, head.since, head.ended)
        budget = _budget(together, head, budgets, away)
        if round(head.took - away / NS, 3) > budget:
            more = f" and {len(together) - 1} more of its chain" if len(together) > 1 else ""
            beside = f", not counting {seconds(away)} s without a majority" if away else ""
            rows = [fault.row for fault in together[:FAULTS_SHOWN]]
            judgement.add(
                "too-slow",
                f"{head.fault.name} {head.fault.targets}{more}: for {head.took} s no write that "
                f"began after it was acknowledged; the budget is {budget} s{beside}",
                (*rows, head.first.i, head.first.done) if head.first else rows,
            )


def _budget(
    together: list[FaultInForce], head: Recovery, budgets: dict[str, float], away: int
) -> float:
    """Return the budget of a chain: the sum, or the time with faults in force plus the largest.

    `away`: the nanoseconds without a majority. They need no budget.
    """
    each = [budgets[fault.name] for fault in together]
    in_force, at = -away, head.since
    for fault in together:
        end = min(fault.end, head.ended)
        in_force += max(0, end - max(at, fault.start))
        at = max(at, end)
    return round(min(sum(each), in_force / NS + max(each)), 3)


def _gaps(view: View, judgement: Judgement) -> None:
    stored = [op for op in view.sends if op.is_ok]
    if stored:
        judgement.facts["longest_gap_s"] = _longest(stored)
    for place, ops in sorted(grouped(stored, BY_PLACE).items()):
        judgement.facts[f"longest_gap_s {place}"] = _longest(ops)


def _longest(ops: Iterable[Op]) -> float:
    ordered = sorted(op.ended for op in ops)
    return seconds(max((b - a for a, b in pairwise(ordered)), default=0))


def liveness(view: View) -> Judgement:
    """C18. In the final phase each place takes writes and can be read, and all members agree.

    Consumers read each place up to the maximum that a member told in that phase. The last statuses
    of the members show one leader and followers of one term, which have committed and applied the
    same. Each member shows what it holds of each place (drains) and its log (entries), unless the
    log is too long for one answer. No member ended by itself without a fault that excuses its end
    ("died", see `deaths`). The verdict is unknown for a place to which nobody sent in that phase,
    and for members that nobody asked.
    """
    judgement = Judgement("C18")
    for row in unexcused_deaths(view):
        judgement.add("died", f"{row.k} ended by itself: {row.err}", (row.i,))
    places = {op.k for op in view.sends}
    asked = view.ops("status", "entries")
    judgement.facts["looked_at"] = len(places) + len({op.node for op in asked})
    if not judgement.facts["looked_at"]:
        return judgement
    if view.final_row is None or view.cut_short:
        judgement.unknown(view.cut_short)
        return judgement
    tried = grouped(filter(view.is_final, view.sends), BY_PLACE)
    bounds = grouped(filter(view.is_final, view.ops("bounds")), BY_PLACE)
    for place in sorted(places):
        if not tried[place]:
            judgement.unknown(f"nobody sent to {place} in the final phase")
        sends = f"none of {len(tried[place])} sends in the final phase was acknowledged"
        judgement.none_succeeded("not-live", f"{place}: {sends}", tried[place])
        told = f"{place}: no member told minimum and maximum in the final phase"
        judgement.none_succeeded("not-live", told, bounds[place])
    _is_read(view, bounds, judgement)
    if asked:
        _is_converged(view, judgement)
    else:
        judgement.unknown("nobody asked the members for their status")
    _is_told(view, judgement)
    _is_drained(view, judgement)
    return judgement


def _is_read(view: View, bounds: Mapping[str, list[Op]], judgement: Judgement) -> None:
    """Judge whether readers of each place came to its end: the lowest maximum that was told."""
    assigns = [op for op in view.ops("assign") if view.is_final(op)]
    reached: defaultdict[str, int] = defaultdict(int)
    for op in view.final("poll"):
        for place, first, values in op.result:
            reached[place] = max(reached[place], first + len(values))
    for place, asked in sorted(bounds.items()):
        told = [op.result for op in asked if op.is_ok]
        minimum, maximum = min(told, key=lambda each: each[1], default=(0, 0))
        ops = [op for op in assigns if op.asked.get(place, maximum) < maximum]
        if ops and minimum < maximum and reached[place] < maximum:
            judgement.add(
                "not-live",
                f"{place}: in the final phase consumers read up to offset {reached[place]}, though "
                f"the maximum was {maximum}",
                (op.i for op in (*asked, *ops)),
            )


def _is_converged(view: View, judgement: Judgement) -> None:
    # A member's entries do not replace its status, and a member with a long log does not tell them.
    f = "status" if view.ops("status") else "entries"
    asked = {op.node: op for op in view.ops(f) if view.is_final(op)}  # the last time
    silent = [node for node in view.header.nodes if node not in asked or not asked[node].is_ok]
    if silent:
        judgement.add("not-converged", f"in the end {', '.join(silent)} told no {f}")
    last: dict[str, Op] = {}
    for op in sorted(view.final("status"), key=lambda op: op.done):
        last[op.node] = op
    if not last:
        return
    found = {node: op.result for node, op in sorted(last.items())}
    roles = sorted(each["role"] for each in found.values())
    if roles != [*["follower"] * (len(roles) - 1), "leader"] or not _ends_agree(view, last):
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


def _ends_agree(view: View, last: Mapping[str, Op]) -> bool:
    """Say whether all members are of one term and have applied the same.

    Where other clients write too (`notes["others_write"]`), each member must have applied what any
    member had committed when the last look at the members began.
    """
    found = [op.result for op in last.values()]
    if view.header.notes.get("others_write"):
        began = min(op.i for op in last.values())
        before = (op.result["commit"] for op in view.final("status") if op.done < began)
        ends, applied = {each["term"] for each in found}, max(before, default=0)
        return len(ends) == 1 and all(each["applied"] >= applied for each in found)
    is_applied = all(each["applied"] == each["commit"] for each in found)
    return is_applied and len({(each["term"], each["commit"]) for each in found}) == 1


def _is_told(view: View, judgement: Judgement) -> None:
    """Judge whether each member that was asked for its log told it, or has a log too long."""
    asked = grouped(filter(view.is_final, view.ops("entries")), attrgetter("node"))
    for node, ops in sorted(asked.items()):
        if not any(op.err.endswith(TOO_LONG) for op in ops):
            judgement.none_succeeded("not-converged", f"{node} did not tell its log entries", ops)


def _is_drained(view: View, judgement: Judgement) -> None:
    """Judge whether each member told what it holds of each place that it was asked for."""
    asked = grouped(filter(view.is_final, view.ops("drain")), lambda op: (op.node, op.k))
    for (node, place), ops in sorted(asked.items()):
        what = f"{node} did not tell what it holds of {place}"
        judgement.none_succeeded("not-converged", what, ops)
