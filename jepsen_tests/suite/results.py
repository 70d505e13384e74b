"""Sums up what many runs did and found, as one page of Markdown. `RESULTS.md` is made of it.

The checkers of today judge each run again from its history. The page also shows the verdict that
was made with the run, if it differs. A run without a history, or with a history that has no end,
has no verdict: the page names it.
"""

import html
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dledger_proto.names import printable
from jepsen_tests.checkers import CheckerCrashed, judge
from jepsen_tests.checkers.cluster.availability import Recovery, recoveries
from jepsen_tests.checkers.shared.view import View, seconds
from jepsen_tests.errors import HarnessFailure
from jepsen_tests.history.history_file import BadHistory, read_history
from jepsen_tests.run.verdict import RESULTS, real_faults, results_of, verdict_when_made

CLAIMS: Final[Mapping[str, tuple[str, ...]]] = {
    "acknowledged messages lost": ("C1", "C2", "C3"),
    "duplicates": ("C5",),
    "out of order": ("C8", "C9", "C10", "C12"),
}
"""What users ask first, and the checkers that answer it."""
HISTORY: Final = "history.jsonl"
_RUN: Final = re.compile(r"\d{8}-\d{6}-[a-z]+-\d+")
"""The name of a run's folder."""
WHY_MAX: Final = 300
"""So many characters say why a run has no verdict."""


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A run that was judged again."""

    results: Mapping[str, Any]
    fault_seconds: float
    gaps: Sequence[tuple[str, float, bool]]
    """For each fault: its name, the longest wait for a write in seconds, and whether no other fault
    was in force during that wait."""
    verdict_then: str
    """The verdict that was made with the run. Empty: there is none."""

    @property
    def verdict(self) -> str:
        """Return the verdict of today, with the earlier one if that differs."""
        verdict = str(self.results["verdict"])
        then = self.verdict_then
        return verdict if then in ("", verdict) else f"{verdict} (at the time of the run: {then})"

    @property
    def findings(self) -> dict[str, int]:
        """Return the number of anomalies of each checker."""
        return {each["checker"]: each["count"] for each in self.results["judgements"]}


@dataclass(frozen=True, slots=True)
class UnjudgedRun:
    """A run without a verdict, and why."""

    folder: Path
    why: str


def summary(folders: Sequence[Path]) -> tuple[str, int]:
    """Return the page about all runs below these folders, and the number without a verdict.

    HarnessFailure when there are no runs.
    """
    runs = sorted({run for folder in folders for run in runs_below(folder)})
    if not runs:
        raise HarnessFailure(f"no runs below {', '.join(map(str, folders))}")
    found = [_read(run) for run in runs]
    outcomes = [each for each in found if isinstance(each, JudgedRun)]
    unjudged = [each for each in found if isinstance(each, UnjudgedRun)]
    parts = [_runs(outcomes), _totals(outcomes), _unavailability(outcomes)] if outcomes else []
    if unjudged:
        parts.append(_unjudged(unjudged))
    return "\n".join(line for part in parts for line in (*part, "")), len(unjudged)


def runs_below(folder: Path) -> set[Path]:
    """Return the folders of runs: with a history, with results, or with the name of a run."""
    found = {path.parent for name in (HISTORY, RESULTS) for path in folder.rglob(name)}
    return found | {
        path for path in (folder, *folder.rglob("*")) if _RUN.fullmatch(path.name) and path.is_dir()
    }


def _read(run: Path) -> "JudgedRun | UnjudgedRun":
    """Judge a run again."""
    try:
        history = read_history(run / HISTORY)
        judgements = judge(history)
    except FileNotFoundError:
        return UnjudgedRun(run, "the run left no history")
    except (BadHistory, CheckerCrashed, OSError) as error:
        return UnjudgedRun(run, str(error).removeprefix(f"{run / HISTORY}, ")[:WHY_MAX])
    return JudgedRun(
        results=results_of(history, judgements),
        fault_seconds=sum(seconds(fault.end - fault.start) for fault in real_faults(history)),
        gaps=_gaps(recoveries(View(history))),
        verdict_then=verdict_when_made(run / RESULTS),
    )


def _gaps(found: Sequence[Recovery]) -> list[tuple[str, float, bool]]:
    """Return each wait. A fault is alone if no other is in force, or still to recover from."""
    until = [max(each.fault.end, each.ended) for each in found]
    return [
        (
            each.fault.name,
            each.took,
            not any(
                other.fault.start < until[at] and end > each.fault.start
                for other, end in zip(found, until, strict=True)
                if other is not each
            ),
        )
        for at, each in enumerate(found)
    ]


def _unjudged(runs: Iterable[UnjudgedRun]) -> list[str]:
    return ["Without a verdict:", "", *markdown_table(
        ("run", "why"), ((each.folder, each.why) for each in runs)
    )]  # fmt: skip


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(map(_cell, line)) + " |" for line in lines]


def _cell(value: object) -> str:
    """Return a value as one cell, whatever characters it holds."""
    return html.escape(printable(str(value)), quote=False).replace("|", "\\|")


def _runs(outcomes: Sequence[JudgedRun]) -> list[str]:
    rows: list[list[object]] = []
    for each in outcomes:
        found, header = each.results, each.results["header"]
        operations = found["operations"]
        shares = [f"{found[kind] / max(1, operations):.1%}" for kind in ("ok", "fail", "info")]
        where = f"{header['backend']}, {len(header['nodes'])}"
        where += ", TLS" * bool(header["notes"].get("secure"))
        rows.append(
            [
                header["workload"], where, header["seed"],
                f"{found['seconds'] / 60:.1f}", sum(found["faults"].values()),
                f"{each.fault_seconds / 3600:.2f}", operations, *shares, each.verdict,
            ]
        )  # fmt: skip
    heads = ("workload", "backend, members", "seed", "minutes", "faults", "fault-hours",
             "operations", "ok", "fail", "info", "verdict")  # fmt: skip
    return markdown_table(heads, rows)


def _totals(outcomes: Sequence[JudgedRun]) -> list[str]:
    operations = sum(each.results["operations"] for each in outcomes)
    shares = [
        f"{kind} {sum(each.results[kind] for each in outcomes) / max(1, operations):.1%}"
        for kind in ("ok", "fail", "info")
    ]
    hours = sum(each.fault_seconds for each in outcomes) / 3600
    ran = sum(each.results["seconds"] for each in outcomes) / 3600
    faults = sum(sum(each.results["faults"].values()) for each in outcomes)
    lines = [
        f"{len(outcomes)} runs, {ran:.2f} hours: {faults} faults, {hours:.2f} fault-hours, "
        f"{operations} operations ({', '.join(shares)})."
    ]
    for claim, checkers in CLAIMS.items():
        count = sum(each.findings.get(checker, 0) for each in outcomes for checker in checkers)
        lines.append(f"- {claim} ({', '.join(checkers)}): {count}")
    asked = {checker for checkers in CLAIMS.values() for checker in checkers}
    others = sum(n for each in outcomes for c, n in each.findings.items() if c not in asked)
    return [*lines, f"- other anomalies: {others}"]


def _unavailability(outcomes: Sequence[JudgedRun]) -> list[str]:
    by_name: defaultdict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for each in outcomes:
        for name, gap, is_alone in each.gaps:
            by_name[name][not is_alone].append(gap)
    rows = [
        (name, *(figure for gaps in by_name[name] for figure in _figures(gaps)))
        for name in sorted(by_name)
    ]
    heads = ("fault", "alone", "median s", "worst s", "with others", "median s", "worst s")
    return markdown_table(heads, rows)


def _figures(gaps: Sequence[float]) -> tuple[str, ...]:
    if not gaps:
        return ("0", "", "")
    return (str(len(gaps)), f"{statistics.median(gaps):.2f}", f"{max(gaps):.2f}")
