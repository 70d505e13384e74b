"""Text: how wide and how long what people read may be; and what must not be in some files."""

import re
from collections.abc import Iterator

import pytest

from tests.tidy.sources import ROOT, Rule, check, our_files

COLUMNS_MAX = 100
ARCHITECTURE_LINES_MAX = 150
SOURCE_ROOTS = ("broker", "client", "proto")
COMMENTED = ("Makefile", "*.toml", "*.proto", "*.yaml", "*.yml", "*Dockerfile", "*.sh")
"""Files with comments that ruff does not look at. (It looks at all columns of Python.)"""


def wide_prose(text: str) -> Iterator[str]:
    """Find lines of Markdown prose that are too wide: not code, not tables, not lone addresses."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code and len(line) > COLUMNS_MAX and not _is_unbreakable(line):
            yield f"line {number}: {len(line)} columns, at most {COLUMNS_MAX}"


def _is_unbreakable(line: str) -> bool:
    return line.lstrip().startswith("|") or max(map(len, line.split())) > COLUMNS_MAX // 2


def wide_comment(text: str) -> Iterator[str]:
    """Find comment lines that are too wide, in files other than Python."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*(#|//)", line) and len(line) > COLUMNS_MAX:
            yield f"line {number}: {len(line)} columns, at most {COLUMNS_MAX}"


def long_architecture(text: str) -> Iterator[str]:
    lines = len(text.splitlines())
    if lines > ARCHITECTURE_LINES_MAX:
        yield f"{lines} lines, at most {ARCHITECTURE_LINES_MAX}: it is read from top to bottom"


def test_prose_is_not_too_wide() -> None:
    check(wide_prose, our_files("*.md"))


def test_architecture_is_read_from_top_to_bottom() -> None:
    check(long_architecture, [ROOT / "ARCHITECTURE.md"])


def test_comments_are_not_too_wide() -> None:
    check(wide_comment, our_files(*COMMENTED))


def test_source_roots_are_not_packages() -> None:
    """Folders with generic names hold packages of unique names and are none themselves."""
    for root in SOURCE_ROOTS:
        assert not (ROOT / root / "__init__.py").exists(), root


def test_lock_file_names_no_host() -> None:
    """The lock file holds versions and hashes, no addresses."""
    assert "://" not in (ROOT / "requirements.lock").read_text()


SAMPLES: list[tuple[Rule, str]] = [
    (wide_prose, "word " * 21),
    (wide_prose, "```\n" + "code " * 30 + "\n```\n" + "word " * 21),
    (wide_comment, "x = 1\n  # " + "word " * 20),
    (wide_comment, "// " + "word " * 20),
    (long_architecture, "line\n" * 151),
]


@pytest.mark.parametrize(("rule", "sample"), SAMPLES)
def test_each_rule_finds_its_sample(rule: Rule, sample: str) -> None:
    """A rule that cannot fail proves nothing."""
    assert len(list(rule(sample))) == 1


def test_code_tables_and_addresses_may_be_wide() -> None:
    wide = "word " * 21
    assert not list(wide_prose(f"```\n{wide}\n```\n| {wide} |\nsee https://host/{'x' * 90}\n"))
