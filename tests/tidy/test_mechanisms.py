"""`docs/mechanisms.md`: every mechanism has a verdict, and tests that exist and run show it.

A section says what the mechanism is, then "In dledger: " and the verdict, then "Tests: " and in
backquotes a file, a colon and names of its tests; files are divided by semicolons.

`make test` runs all of `tests/`. So a test runs when pytest collects it and nothing skips it. Tests
that need root or an engine of containers are no evidence: not every machine runs them.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT

PAGE = ROOT / "docs" / "mechanisms.md"
NUMBERS = range(1, 154)
VERDICTS = ("yes", "in another way", "in part", "later", "no")
SHOWN_BY_TESTS = ("yes", "in another way")
SECTION = re.compile(r"^### S(\d+) .*\n((?:(?!^#).*\n)*)", re.MULTILINE)
VERDICT = re.compile(rf"In dledger: ({'|'.join(VERDICTS)})\b(.*)", re.DOTALL)
FILE = r"`(?P<file>tests/(?:\w+/)*test_\w+\.py)`"
TESTS = re.compile(rf"{FILE}: (?P<tests>`test_\w+`(?:, `test_\w+`)*)")
MAY_SKIP = re.compile(r"\b(?:mark\.(?:skip|skipif|xfail|root|compose)|pytest\.skip|importorskip)\b")


def sections(page: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the paragraphs, each in one line, of every section."""
    for number, text in SECTION.findall(page):
        yield int(number), [" ".join(part.split()) for part in text.strip().split("\n\n")]


@cache
def collected_from(name: str) -> dict[str, str]:
    """Return the tests that pytest collects from a file; of each, what may skip it, or nothing."""
    path = ROOT / name
    if not path.is_file():
        return {}
    text = path.read_text()
    body = ast.parse(text).body
    marks = [ast.unparse(each) for each in body if _assigns_marks(each)]
    found: dict[str, str] = {}
    for each in body:
        inside, above = [each], list[ast.expr]()
        if isinstance(each, ast.ClassDef) and each.name.startswith("Test"):
            inside, above = each.body, each.decorator_list
        for test in inside:
            if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef):
                parts = [*marks, *map(ast.unparse, above), ast.unparse(test)]
                skip = MAY_SKIP.search("\n".join(parts))
                found[test.name] = skip[0] if skip else ""
    return {test: skip for test, skip in found.items() if test.startswith("test_")}


def _assigns_marks(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"


def wrong_section(paragraphs: list[str]) -> Iterator[str]:
    """Find what one section lacks."""
    found = [each for each in map(VERDICT.fullmatch, paragraphs) if each]
    if len(found) != 1:
        yield f"{len(found)} paragraphs with a verdict, must be one: {', '.join(VERDICTS)}"
        return
    verdict, reason = found[0].groups()
    if verdict != "yes" and not re.search(r"\w", reason):
        yield f"{verdict}: the text does not say what or why"
    named = [each.removeprefix("Tests: ") for each in paragraphs if each.startswith("Tests: ")]
    if len(named) > 1 or (named and not paragraphs[-1].startswith("Tests: ")):
        yield "the tests stand in one paragraph, at the end"
    if verdict in SHOWN_BY_TESTS and not named:
        yield f"{verdict}: no test is named"
    for part in named:
        yield from wrong_tests(part)


def wrong_tests(text: str) -> Iterator[str]:
    """Find named tests that nobody runs."""
    for part in text.removesuffix(".").split("; "):
        found = TESTS.fullmatch(part)
        if not found:
            yield f"{part}: must be a file of tests, a colon, and names of tests"
            continue
        known = collected_from(found["file"])
        for test in re.findall(r"`(\w+)`", found["tests"]):
            if test not in known:
                yield f"{found['file']}: there is no {test}"
            elif known[test]:
                yield f"{found['file']}: {test} may be skipped ({known[test]})"


def test_every_mechanism_stands_there_once_and_in_order() -> None:
    assert [number for number, _ in sections(PAGE.read_text())] == list(NUMBERS)


def test_every_verdict_is_shown() -> None:
    wrong = [
        f"S{number}: {what}"
        for number, paragraphs in sections(PAGE.read_text())
        for what in wrong_section(paragraphs)
    ]
    assert not wrong, "\n".join(wrong)


def test_make_test_runs_every_folder_of_tests() -> None:
    """Two halves: some folders, and all that is not in them."""
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(
        r"^test: verify\n\t\$\(MAKE\) .*test-groups test-rest$", makefile, re.MULTILINE
    )
    assert "-m pytest $(GROUPS)\n" in makefile
    assert "-m pytest $(GROUPS:%=--ignore=%)\n" in makefile
    assert 'testpaths = ["tests"]\n' in (ROOT / "pyproject.toml").read_text()


HERE = f"`{Path(__file__).relative_to(ROOT).as_posix()}`"
SHOWN = "test_every_verdict_is_shown"


@pytest.mark.parametrize(
    ("paragraphs", "wrong"),
    [
        (["In dledger: yes.", f"Tests: {HERE}: `{SHOWN}`."], 0),
        (["In dledger: in part. A is there. Missing: B."], 0),
        (["In dledger: later (D25)."], 0),
        (["In dledger: no."], 1),
        (["In dledger: perhaps."], 1),
        (["What it is."], 1),
        (["In dledger: yes."], 1),
        (["In dledger: in another way.", f"Tests: {HERE}: `{SHOWN}`."], 1),
        (["In dledger: yes.", f"Tests: {HERE}: `{SHOWN}`, `test_nothing`."], 1),
        (["In dledger: yes.", f"Tests: {HERE.replace('mechanisms', 'none')}: `{SHOWN}`."], 1),
        (["In dledger: yes.", f"Tests: `{SHOWN}`."], 1),
        ([f"Tests: {HERE}: `{SHOWN}`.", "In dledger: yes."], 1),
        (
            [
                "In dledger: yes.",
                "Tests: `tests/compose/test_compose.py`: `test_one_group_under_faults`.",
            ],
            1,
        ),
    ],
)
def test_the_rule_finds_its_sample(paragraphs: list[str], wrong: int) -> None:
    """A rule that cannot fail proves nothing."""
    assert len(list(wrong_section(paragraphs))) == wrong
