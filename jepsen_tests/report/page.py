"""Makes the page of a history and its judgements."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2
import msgspec

from jepsen_tests.checkers import CHECKERS
from jepsen_tests.checkers.shared.judgement import Judgement, Valid
from jepsen_tests.history.events import History, Kind, Op
from jepsen_tests.report import charts

TEMPLATE: Final = Path(__file__).with_name("page.html.j2")
ROW_LENGTH_MAX: Final = 400
_encode: Final = msgspec.json.Encoder().encode


def write_page(
    path: Path, history: History, judgements: Sequence[Judgement], verdict: Valid
) -> None:
    """Write a self-contained page."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(TEMPLATE.read_text())
    counts = {kind: sum(op.outcome is kind for op in history.ops) for kind in Kind}
    availability = next(each for each in judgements if each.checker == "C17")
    page = template.render(
        header=history.header,
        verdict=verdict,
        ops=len(history.ops),
        outcomes=[f"{counts[kind]} {kind}" for kind in (Kind.OK, Kind.FAIL, Kind.INFO)],
        judgements=judgements,
        names={checker.number: checker for checker in CHECKERS},
        findings=list(_findings(history, judgements)),
        unavailability=list(_unavailability(availability)),
        longest_gap=float(availability.facts.get("longest_gap_s", 0.0)),
        timeline=charts.timeline(history),
        latency=charts.latency(history),
        throughput=charts.throughput(history),
        faults=[row for row in history.faults if row.type is not Kind.INVOKE],
    )
    path.write_text(page)


def _findings(history: History, judgements: Sequence[Judgement]) -> Iterator[dict[str, Any]]:
    """Yield each anomaly with its rows as text."""
    by_row: dict[int, Op] = {}
    for op in history.ops:
        by_row[op.i] = by_row[op.done] = op
    faults = {row.i: row for row in history.faults}
    for judgement in judgements:
        for finding in judgement.findings:
            rows = [
                f"{row}: {_encode(by_row.get(row) or faults.get(row)).decode()[:ROW_LENGTH_MAX]}"
                for row in finding.rows
            ]
            yield {
                "checker": judgement.checker,
                "kind": finding.kind,
                "text": finding.text,
                "rows": rows,
            }


def _unavailability(judgement: Judgement) -> Iterator[dict[str, Any]]:
    for name, count in judgement.facts.items():
        if name.endswith("_count"):
            fault = name.removesuffix("_count")
            yield {
                "name": fault,
                "count": count,
                "median": judgement.facts[f"{fault}_p50_s"],
                "worst": judgement.facts[f"{fault}_max_s"],
            }
