"""Pages tell what there is: links lead somewhere, no format, fault or checker is left out."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jepsen_tests.backends import BACKENDS
from jepsen_tests.checkers import CHECKERS
from jepsen_tests.nemeses import FAULTS
from jepsen_tests.workloads import WORKLOADS
from tests.tidy.sources import ROOT, Rule, check, our_files

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\((?!https?:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
MAGIC = re.compile(r'\bb"(DL[A-Z0-9]{2})"')


def anchors(text: str) -> set[str]:
    """Return what links to the headings of a page end with."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(text)
    }


def broken_links(page: Path) -> Rule:
    """Return the rule that finds links of a page that lead nowhere."""

    def rule(text: str) -> Iterator[str]:
        for found in LINK.finditer(text):
            target = Path(os.path.normpath(page.parent / found["path"])) if found["path"] else page
            if not target.is_file():
                yield f"link to {found['path']}: there is no such file"
            elif found["anchor"] and found["anchor"] not in anchors(
                text if target == page else target.read_text()
            ):
                yield f"link to {found['path']}#{found['anchor']}: there is no such heading"

    return rule


def left_out(page: str) -> Rule:
    """Return the rule that finds magics of formats that a page does not show."""

    def rule(text: str) -> Iterator[str]:
        for magic in MAGIC.findall(text):
            if f"`{magic}`" not in page:
                yield f"format {magic} is not drawn in docs/formats.md"

    return rule


def test_links_lead_somewhere() -> None:
    for page in our_files("*.md"):
        check(broken_links(page), [page])


def test_every_format_is_drawn() -> None:
    check(left_out((DOCS / "formats.md").read_text()), our_files("dledger/*.py", "proto/*.py"))


def test_every_rule_of_the_harness_has_a_heading() -> None:
    page = (DOCS / "chaos.md").read_text()
    headings = HEADING.findall(page)
    numbers = {heading.split()[0] for heading in headings}
    for checker in CHECKERS:
        assert checker.number in numbers, f"docs/chaos.md: no heading for {checker.number}"
        for kind in checker.kinds:
            assert kind in page or kind.startswith("int-"), f"docs/chaos.md: anomaly {kind}"
    for name, make in WORKLOADS.items():
        assert f"{make().what.split(':')[0]} {name}" in headings, f"docs/chaos.md: workload {name}"


def test_every_fault_and_backend_is_named() -> None:
    page = (DOCS / "chaos.md").read_text()
    assert [name for name in (*FAULTS, *BACKENDS) if f"`{name}`" not in page] == []


SAMPLES: list[tuple[Callable[[Path], Rule], str]] = [
    (broken_links, "see [there](nowhere.md)"),
    (broken_links, "# Here\nsee [there](#there)"),
    (lambda _: left_out("`DLA1`"), 'MAGIC = b"DLA2"'),
]


@pytest.mark.parametrize(("rule", "sample"), SAMPLES)
def test_each_rule_finds_its_sample(
    rule: Callable[[Path], Rule], sample: str, tmp_path: Path
) -> None:
    """A rule that cannot fail proves nothing."""
    assert len(list(rule(tmp_path / "page.md")(sample))) == 1
