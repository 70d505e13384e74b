"""Pages tell what there is: links and commands work, no format, fault or checker is left out."""

import ast
import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from dledger_broker.cli.app import make_app
from jepsen_tests import cli as harness
from jepsen_tests.backends import BACKENDS
from jepsen_tests.checkers import CHECKERS
from jepsen_tests.nemeses import FAULTS
from jepsen_tests.workloads import WORKLOADS
from tests.tidy.sources import ROOT, Rule, check, name_of, our_files

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\((?!https?:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
COMMANDS: dict[str, Any] = {
    "dledger": typer.main.get_command(make_app()),
    "jepsen_tests": typer.main.get_command(harness.app),
}
"""By the last word of how they are called."""
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
FILE = re.compile(
    r"`(?P<path>(?:[\w.-]+/)*[\w-]+\.(?:py|proto|toml|yaml)|(?:[\w.-]+/)+[\w-]+\.md)`"
)
NEAR_FILE = re.compile(r"`([\w-]+)\.py`")
IN_BRACKETS = re.compile(r"\((`[^()]*`)\)")
WORD = re.compile(r"`([a-z]\w*)`")
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


def lost_files(known: set[str]) -> Rule:
    """Return the rule that finds names of files of ours, with their folders or without, that
    nothing has: the file was moved, or the name has a slip."""

    def rule(text: str) -> Iterator[str]:
        for found in FILE.finditer(text):
            if found["path"] not in known:
                yield f"`{found['path']}`: there is no such file"

    return rule


def lost_modules(path: Path) -> Rule:
    """Return the rule that finds modules which the header of a module names and nobody finds.

    A name without a folder, as in "Not: rows (`table.py`)" or "(`table`)", is of the same folder
    or of one above; else the header writes the path. A word of the code is no module.
    """
    folders = [each for each in path.parents if each.is_relative_to(ROOT)]

    def rule(text: str) -> Iterator[str]:
        header = ast.get_docstring(ast.parse(text), clean=False) or ""
        code = set(re.findall(r"\w+", text.replace(header, "")))
        words = {each for part in IN_BRACKETS.findall(header) for each in WORD.findall(part)} - code
        for name in sorted({*words, *NEAR_FILE.findall(header)}):
            if not any(
                (each / f"{name}.py").exists() or (each / name).is_dir() for each in folders
            ):
                yield f"`{name}`: no such module in this folder, nor in one above it"

    return rule


def ends(path: str) -> Iterator[str]:
    """Yield the ways to name a file: its path, and each shorter end of its path."""
    parts = path.split("/")
    yield from ("/".join(parts[place:]) for place in range(len(parts)))


def left_out(page: str) -> Rule:
    """Return the rule that finds magics of formats that a page does not show."""

    def rule(text: str) -> Iterator[str]:
        for magic in MAGIC.findall(text):
            if f"`{magic}`" not in page:
                yield f"format {magic} is not drawn in docs/formats.md"

    return rule


def shell_lines(text: str) -> Iterator[str]:
    """Yield the commands of a page's shell blocks, and those that stand alone in backquotes."""
    for block in re.findall(r"^ *```sh\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        yield from block.replace("\\\n", " ").splitlines()
    for quoted in re.findall(r"`((?:dledger|make) [^`]+)`", text):
        yield " ".join(quoted.split())


def wrong_commands(text: str) -> Iterator[str]:
    """Find commands of ours that do not exist, and options that they do not take."""
    for line in shell_lines(text):
        for part in re.split(r"&&|\|", line.partition(" #")[0].replace("...", "")):
            words = shlex.split(part)
            called = re.match(
                r"(.*exec \w+ |.*bin/|)(dledger|.*-m jepsen_tests) ", f"{part.strip()} "
            )
            if called:
                name = called[2].split()[-1]
                at = next(n for n, word in enumerate(words) if word.split("/")[-1] == name)
                unknown = _unknown(words[at + 1 :], COMMANDS[name])
            else:
                unknown = iter(word for word in words[1:] if words[0] == "make")
                unknown = (word for word in unknown if "=" not in word and word not in TARGETS)
            yield from (f"{line.strip()}: there is no {word}" for word in unknown)


def _unknown(words: list[str], command: Any) -> Iterator[str]:
    """Name a command that a group has not, or an option that a command does not take."""
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if words and getattr(command, "commands", {}) and not words[0].startswith("-"):
        yield words[0]
    opts = (name for each in command.params for name in (*each.opts, *each.secondary_opts))
    known = {"--help", *opts}
    for word in words:
        if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known:
            yield word


def test_commands_exist() -> None:
    check(wrong_commands, our_files("*.md"))


def test_links_lead_somewhere() -> None:
    for page in our_files("*.md"):
        check(broken_links(page), [page])


def test_files_that_are_named_exist() -> None:
    """In pages, docstrings and comments."""
    patterns = ("*.md", "*.py", "*.proto", "*.toml", "*.yaml", "*.yml", "Makefile")
    files = our_files(*patterns)
    known = {end for path in files for end in ends(name_of(path))}
    check(lost_files(known), [path for path in files if path != Path(__file__)])


def test_modules_that_headers_name_are_near() -> None:
    for path in our_files():
        check(lost_modules(path), [path])


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
    (lambda _: lost_files({"a/b.py", "b.py"}), "see `a/b.py`, `b.py`, and `c/b.py`"),
    (
        lost_modules,
        '"""Rows.\n\nNot: seals (`seals.py`, `x/y.py`), codes (`code`).\n"""\ncode = 1\n',
    ),
    (lost_modules, '"""Rows. Not: seals (`seals`)."""\n'),
    (broken_links, "see [there](nowhere.md)"),
    (broken_links, "# Here\nsee [there](#there)"),
    (lambda _: left_out("`DLA1`"), 'MAGIC = b"DLA2"'),
    (lambda _: wrong_commands, "```sh\n.venv/bin/dledger topic make orders  # not so\n```"),
    (lambda _: wrong_commands, "```sh\ndocker compose exec n1 dledger status --wach\n```"),
    (lambda _: wrong_commands, "say `dledger offsets orders --grup g`, or `make fix`"),
    (lambda _: wrong_commands, "```sh\npython -m jepsen_tests run --seeed 1 && make fix\n```"),
    (lambda _: wrong_commands, "`make SEEDS=1 similar`"),
]


@pytest.mark.parametrize(("rule", "sample"), SAMPLES)
def test_each_rule_finds_its_sample(
    rule: Callable[[Path], Rule], sample: str, tmp_path: Path
) -> None:
    """A rule that cannot fail proves nothing."""
    assert len(list(rule(tmp_path / "page.md")(sample))) == 1
