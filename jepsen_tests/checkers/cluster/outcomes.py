"""C19, C20: errors are known, enough operations succeed, members give resources back."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from jepsen_tests.checkers.shared.judgement import Judgement
from jepsen_tests.checkers.shared.view import View
from jepsen_tests.errors import allowed_errors
from jepsen_tests.history.events import NEVER, Kind, Op

MIB: Final = 1 << 20
UNKNOWN_SHARE: Final = 0.5
"""At most this share of all operations may have an unknown outcome."""


def errors(view: View) -> Judgement:
    """C19. Each error begins with a known name, and enough operations succeed.

    `notes["errors"]` of the header lists the names. Without this list errors are not judged. Each
    function of a workload may meet only some of these (`errors.allowed_errors`).
    `notes["least_ok"]` says for each function how many operations must be ok, and which share. A
    run proves little when most operations failed or are unknown, when none of its faults was done,
    or when a signal ended it. Figures: the shares of the outcomes, also for each class of faults.
    """
    judgement = Judgement("C19")
    ops = view.history.ops
    judgement.facts["looked_at"] = len(ops)
    names: list[str] | None = view.header.notes.get("errors")
    if not any(op.is_ok for op in ops):
        judgement.unknown("no operation succeeded")
    if names is not None:
        _are_known(view, set(names), judgement)
    for f, (count, share) in view.header.notes.get("least_ok", {}).items():
        asked = view.ops(f)
        ok = sum(op.is_ok for op in asked)
        if ok < count or ok < share * len(asked):
            judgement.unknown(
                f"only {ok} of {len(asked)} {f} are ok; needed are {count}, and {share:.0%} of all"
            )
    unknown = sum(op.outcome is Kind.INFO for op in ops)
    if unknown > UNKNOWN_SHARE * len(ops):
        judgement.unknown(f"the outcomes of {unknown} of {len(ops)} operations are unknown")
    if view.header.nemeses and not view.faults:
        judgement.unknown("the nemesis did none of the faults of this run")
    if view.interrupted:
        judgement.unknown(f"{view.interrupted} ended the run early")
    if ops:
        _shares(view, judgement)
    return judgement


def _are_known(view: View, names: set[str], judgement: Judgement) -> None:
    allowed: dict[str, set[str]] = {}
    workload = view.header.workload
    for f in view.by_function:
        mine = allowed_errors(workload, f)
        allowed[f] = names if mine is None else names & mine
    for op in view.history.ops:
        if not op.err or op.is_ok:
            continue
        name = _name_of(op.err)
        if name not in allowed[op.f]:
            never = f", which {op.f} of {workload} must never meet" if name in names else ""
            judgement.add(
                "unexpected-error",
                f"{op.f} {op.k} of process {op.p}: {op.err}{never}",
                (op.i, op.done),
            )


def _name_of(error: str) -> str:
    return re.split(r"\W", error, maxsplit=1)[0]


def _shares(view: View, judgement: Judgement) -> None:
    """Count outcomes between each two changes of the faults in force; add them up by class."""
    bounds = sorted({0} | {t for fault in view.faults for t in (fault.start, fault.end)})
    counts = [Counter[Kind]() for _ in bounds]
    parts = zip([*bounds[1:], NEVER], counts, strict=True)
    end, now = next(parts)
    for op in view.history.ops:  # in the order in which they began
        while op.began >= end:
            end, now = next(parts)
        now[op.outcome] += 1
    _add_shares(judgement, "", sum(counts, Counter[Kind]()))
    for name in sorted({fault.name for fault in view.faults}):
        spans = [(fault.start, fault.end) for fault in view.faults if fault.name == name]
        during = Counter[Kind]()
        for start, count in zip(bounds, counts, strict=True):
            if any(begin <= start < end for begin, end in spans):
                during += count
        _add_shares(judgement, f" {name}", during)


def _add_shares(judgement: Judgement, of: str, counts: Counter[Kind]) -> None:
    total = counts.total()
    judgement.facts[f"ops{of}"] = total
    for kind in (Kind.OK, Kind.FAIL, Kind.INFO):
        judgement.facts[f"{kind}_share{of}"] = round(counts[kind] / total, 4) if total else 0.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much of a resource a member may hold at the end: baseline * factor + slack."""

    factor: float
    slack: int

    def limit(self, baseline: int) -> float:
        """Return the most that is allowed for this baseline."""
        return baseline * self.factor + self.slack


ALLOWANCES: Final = {
    "rss": Allowance(2, 100 * MIB),
    "files": Allowance(1, 50),
    "threads": Allowance(1, 20),
}


def resources(view: View) -> Judgement:
    """C20. In the final phase memory, files and threads of each member are near their baseline.

    The baseline is the first row of that member, if possible from phase "setup".
    """
    judgement = Judgement("C20")
    rows = sorted((op for op in view.ops("resources") if op.is_ok), key=lambda op: op.done)
    first: dict[str, Op] = {}
    last: dict[str, Op] = {}
    for op in rows:
        first.setdefault(op.node, op)
        if view.is_final(op):
            last[op.node] = op
    judgement.facts["looked_at"] = len(rows)
    if rows and view.cut_short:  # members may give resources back later
        judgement.unknown(view.cut_short)
        return judgement
    if unseen := sorted(set(first) - set(last)):
        judgement.unknown(f"nobody looked at the resources of {', '.join(unseen)} in the end")
    for node, op in sorted(last.items()):
        for name, allowance in ALLOWANCES.items():
            baseline, now = first[node].result[name], op.result[name]
            judgement.facts[f"{name} {node}"] = now
            if now > allowance.limit(baseline):
                judgement.add(
                    "not-returned",
                    f"{node}: {name} was {baseline} at the start and is {now} at the end; the "
                    f"limit is {allowance.limit(baseline):.0f}",
                    (first[node].done, op.done),
                )
    return judgement
