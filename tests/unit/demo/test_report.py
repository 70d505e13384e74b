"""The demo's page: a verdict, where and when it was made, terms; no label is cut off."""

import json
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib.text import Annotation

from dledger_broker.demo.gaps import Acknowledgement, Fault
from dledger_broker.demo.report import TERMS, Outcome, draw, write_json, write_page
from dledger_proto import __version__

ACKNOWLEDGED = [Acknowledgement(step * 0.05, 100, 0.02) for step in range(200)]
FAULTS = [Fault(0.0, "leader killed", "n1", 0.4), Fault(9.95, "all killed", "n1, n2, n3", 2.0)]
GOOD = Outcome(
    rows=20_000, members_identical=True, members_compared=3, seconds=10.0, faults=FAULTS,
    latency_ms={"median": 20.0},
)  # fmt: skip


def test_the_page_says_what_was_proven_when_where_and_with_what(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_page(GOOD, ACKNOWLEDGED, path)
    page = path.read_text()
    assert "Passed: every member holds all 20,000 rows, each once and in order" in page
    assert f"dledger {__version__}, {GOOD.machine}" in page
    assert GOOD.date in page
    assert all(f"<dt>{term}</dt>" in page for term, _ in TERMS)
    write_json(GOOD, path)
    said = json.loads(path.read_text())
    assert (said["version"], said["machine"]) == (__version__, GOOD.machine)


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (replace(GOOD, lost=2), "Failed: 2 rows lost."),
        (replace(GOOD, members_identical=False), "Failed: the members are not identical."),
        (replace(GOOD, duplicated=1, problems=["why"]), "Failed: 1 rows duplicated; why."),
        (replace(GOOD, rows=0), "Failed: no row was read back."),
    ],
)
def test_a_failure_is_named(outcome: Outcome, verdict: str) -> None:
    assert not outcome.is_good
    assert outcome.verdict == verdict


def test_labels_of_faults_lie_within_the_picture() -> None:
    """Also of a fault at the very beginning, and of one at the end."""
    figure = draw(GOOD, ACKNOWLEDGED)
    try:
        figure.draw_without_rendering()
        labels = figure.findobj(Annotation)
        assert [label.get_text() for label in labels] == ["1", "2", "1", "2"]
        for label in labels:
            box = label.get_window_extent()
            assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
            assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
    finally:
        plt.close(figure)
