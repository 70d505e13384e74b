"""Numbers that code, tests and docs cite have a heading in `docs/`.

D  decisions       I  invariants      F, L  findings on the Raft engine
S  mechanisms      C  checkers        W     workloads
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT, check, our_files

DOCS = ROOT / "docs"
CITATION = re.compile(
    r"(?<![\w.#&])(?:(?P<label>['\"][A-Z]\d+['\"])|(?P<number>[CDFILSW][1-9]\d*)\b)"
)
"""A number, as in "(D11, S36)". A string that is nothing else is a label of some table."""
HEADING = re.compile(r"^#+ (?P<number>[CDFILSW][1-9]\d*)\b", re.MULTILINE)
SUPPRESSION = re.compile(r"#\s*noqa.*")
"""Rules of ruff look like mechanisms."""


def headings() -> Counter[str]:
    """Return how many headings each number has."""
    return Counter(
        number
        for path in sorted(DOCS.rglob("*.md"))
        for number in HEADING.findall(path.read_text())
    )


def unresolved(known: Counter[str]) -> Callable[[str], Iterator[str]]:
    """Return the rule that finds citations of numbers without a heading."""

    def rule(text: str) -> Iterator[str]:
        for line_number, line in enumerate(text.splitlines(), 1):
            for found in CITATION.finditer(SUPPRESSION.sub("", line)):
                number = found["number"]
                if number and number not in known:
                    yield f"line {line_number}: {number} has no heading in docs/"

    return rule


def test_cited_numbers_have_a_heading() -> None:
    samples = Path(__file__)
    files = [path for path in our_files("*.py", "*.md", "*.proto") if path != samples]
    check(unresolved(headings()), files)


def test_a_number_has_one_heading() -> None:
    assert not [number for number, count in headings().items() if count > 1]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("told at once (D11, S36)", 0),
        ("told at once (D11, S999)", 1),
        ('"""' + 'I99: a promise"""', 1),
        ("in F1-F99", 1),
        ("import x  # noqa: S603", 0),
        ('row == "S603"', 0),
        ("0xD999, V1.D999, #D999, AD999", 0),
    ],
)
def test_the_rule_finds_its_sample(text: str, wrong: int) -> None:
    assert len(list(unresolved(Counter(["D11", "S36", "F1"]))(text))) == wrong
