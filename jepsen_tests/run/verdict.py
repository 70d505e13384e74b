"""Judges a history: a table on the terminal, an exit code, `results.json`, the page.

A checker that crashes is a failure of the harness.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dledger_proto.names import printable
from jepsen_tests.checkers import judge
from jepsen_tests.checkers.shared.judgement import Judgement, Valid, merged
from jepsen_tests.history.events import BROKEN_OFF, EXAMINE, SKIPPED, History, Kind
from jepsen_tests.history.faults import FaultInForce, faults_in_force
from jepsen_tests.history.history_file import read_history
from jepsen_tests.nemeses.fault import CANNOT
from jepsen_tests.report.page import write_page

EXIT: Final = {Valid.YES: 0, Valid.NO: 1, Valid.UNKNOWN: 2}
COLOUR: Final = {Valid.YES: "green", Valid.NO: "red", Valid.UNKNOWN: "yellow"}
FINDINGS_SHOWN: Final = 5
RESULTS: Final = "results.json"
COUNTED: Final = (Kind.OK, Kind.FAIL, Kind.INFO)


def judge_file(path: Path, console: Console) -> int:
    """Judge a history; print and store the verdict; return the exit code."""
    history = read_history(path)
    judgements = judge(history)
    verdict = merged(judgements)
    show(console, history, judgements)
    kept = path.with_name(RESULTS)
    results = results_of(history, judgements) | {"made": verdict_when_made(kept) or verdict}
    kept.write_text(json.dumps(results, indent=1) + "\n")
    page = path.with_name("report.html")
    write_page(page, history, judgements, verdict)
    console.print(Text(verdict, COLOUR[verdict]), Text(f" {page}"), highlight=False)
    return EXIT[verdict]


def verdict_when_made(path: Path) -> str:
    """Return the verdict that was made with a run, from its results; empty if there is none."""
    try:
        said = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ""
    if not isinstance(said, dict):
        return ""
    found = cast("dict[str, Any]", said)
    return str(found.get("made", found.get("verdict", "")))


def results_of(history: History, judgements: Sequence[Judgement]) -> dict[str, Any]:
    """Return what is stored beside the history of a run. It follows from the history alone."""
    return {
        "verdict": merged(judgements),
        "operations": len(history.ops),
        **{str(kind): sum(op.outcome is kind for op in history.ops) for kind in COUNTED},
        "seconds": history.ended / 1e9,
        "faults": faults_done(history),
        "skipped": faults_skipped(history),
        "header": msgspec.to_builtins(history.header),
        "judgements": [asdict(each) for each in judgements],
    }


def faults_done(history: History) -> Counter[str]:
    """Return how often each fault was done to its end."""
    return Counter(each.name for each in real_faults(history) if not each.is_broken_off)


def real_faults(history: History) -> list[FaultInForce]:
    """Return the faults without the examinations, which only look for damage."""
    return [each for each in faults_in_force(history) if each.name != EXAMINE]


def faults_skipped(history: History) -> dict[str, str]:
    """Return the last reason why each fault was not done; "cannot be done here" comes first."""
    found: dict[str, str] = {}
    for row in history.faults:
        is_reason = row.err.startswith((SKIPPED, BROKEN_OFF))
        if is_reason and not found.get(row.f, "").startswith(CANNOT):
            found[row.f] = row.err.removeprefix(SKIPPED)
    return found


def show(console: Console, history: History, judgements: Sequence[Judgement]) -> None:
    """Print what each checker says."""
    table = Table("checker", "verdict", "looked at", "found")
    for each in judgements:
        found = "; ".join(f"{f.kind}: {f.text}" for f in each.findings[:FINDINGS_SHOWN])
        more = f" (and {each.count - FINDINGS_SHOWN} more)" if each.count > FINDINGS_SHOWN else ""
        looked = str(each.facts.get("looked_at", ""))
        table.add_row(
            each.checker,
            f"[{COLOUR[each.valid]}]{each.valid}[/]",
            looked,
            Text(printable((found + more) or each.why)),  # texts of a history are no markup
        )
    console.print(table)
    counts = [f"{sum(op.outcome is kind for op in history.ops)} {kind}" for kind in COUNTED]
    console.print(
        f"{len(history.ops)} operations: {', '.join(counts)}; {history.ended / 1e9:.0f} s, "
        f"{len(real_faults(history))} faults",
        highlight=False,
    )
