"""What many runs did and found, in one page of Markdown: `RESULTS.md` is made of it."""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dledger_proto.names import printable
from jepsen_tests.checkers.availability import recoveries
from jepsen_tests.checkers.view import View, seconds
from jepsen_tests.errors import HarnessFailure
from jepsen_tests.history import faults_in_force, read_history

CLAIMS: Final[Mapping[str, tuple[str, ...]]] = {
    "acknowledged messages lost": ("C1", "C2", "C3"),
    "duplicates": ("C5",),
    "out of order": ("C8", "C9", "C10", "C12"),
}
"""What users ask first, and the checkers that would name it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run."""

    results: Mapping[str, Any]
    fault_seconds: float
    gaps: Sequence[tuple[str, float]]
    """Of each fault: its name, and how long one waited for a write then, at most, in seconds."""

    @property
    def findings(self) -> dict[str, int]:
        """Return by checker how many anomalies it named."""
        return {each["checker"]: each["count"] for each in self.results["judgements"]}


def summary(folders: Iterable[Path]) -> str:
    """Return the page of all runs below these folders; HarnessFailure when there are none."""
    paths = sorted(path for folder in folders for path in folder.rglob("results.json"))
    if not paths:
        raise HarnessFailure(f"no results.json below {', '.join(map(str, folders))}")
    outcomes = [_read(path) for path in paths]
    parts = (_runs(outcomes), _totals(outcomes), _unavailability(outcomes))
    return "\n".join(line for part in parts for line in (*part, ""))


def _read(path: Path) -> Outcome:
    history = read_history(path.with_name("history.jsonl"))
    faults = list(faults_in_force(history))
    return Outcome(
        results=json.loads(path.read_text()),
        fault_seconds=sum(seconds(fault.end - fault.start) for fault in faults),
        gaps=[(each.fault.name, each.took) for each in recoveries(View(history))],
    )


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(map(_cell, line)) + " |" for line in lines]


def _cell(value: object) -> str:
    """Return it as one cell, whatever a history holds."""
    return printable(str(value)).replace("|", "\\|")


def _runs(outcomes: Sequence[Outcome]) -> list[str]:
    rows: list[list[object]] = []
    for each in outcomes:
        found, header = each.results, each.results["header"]
        operations = found["operations"]
        shares = [f"{found[kind] / max(1, operations):.1%}" for kind in ("ok", "fail", "info")]
        rows.append(
            [
                header["workload"], f"{header['backend']}, {len(header['nodes'])}", header["seed"],
                f"{found['seconds'] / 60:.1f}", sum(found["faults"].values()),
                f"{each.fault_seconds / 3600:.2f}", operations, *shares, found["verdict"],
            ]
        )  # fmt: skip
    heads = ("workload", "backend, members", "seed", "minutes", "faults", "fault-hours",
             "operations", "ok", "fail", "info", "verdict")  # fmt: skip
    return markdown_table(heads, rows)


def _totals(outcomes: Sequence[Outcome]) -> list[str]:
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


def _unavailability(outcomes: Sequence[Outcome]) -> list[str]:
    by_name: defaultdict[str, list[float]] = defaultdict(list)
    for each in outcomes:
        for name, gap in each.gaps:
            by_name[name].append(gap)
    rows = [
        (name, len(gaps), f"{statistics.median(gaps):.2f}", f"{max(gaps):.2f}")
        for name, gaps in sorted(by_name.items())
    ]
    return markdown_table(("fault", "times", "median s", "worst s"), rows)
