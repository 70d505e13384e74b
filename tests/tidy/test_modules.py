"""Sizes: lines of a module and of a function, modules of a folder; and each package's map.

A newcomer opens a folder and should find the module by reading one page: at most 12 modules, each
named in one line of the docstring of the package's `__init__`:

    producer/      what a producer decides
    retry          when a call is tried again, and how long it waits
"""

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from tests.tidy.sources import (
    GENERATED,
    SOURCE_FOLDERS,
    Rule,
    check,
    name_of,
    our_files,
)

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
MODULES_PER_FOLDER_MAX = 12
MAPPED = (*SOURCE_FOLDERS, "tests/sim", "tests/mutants")
"""Folders whose folders are rooms: few modules in each."""
NOT_COUNTED = re.compile(r"(__init__|__main__|conftest|test_\w+)\.py")
MAP_LINE = re.compile(r"^(?: {4})?(\w+)(/?) {2,}\S", re.MULTILINE)

UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b|\bfor n" + r"ow\b")


def long_module(text: str) -> Iterator[str]:
    lines = text.count("\n")
    if lines > MODULE_LINES_MAX:
        yield f"{lines} lines, at most {MODULE_LINES_MAX}"


def long_function(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"


def unfinished(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if UNFINISHED.search(line):
            yield f"line {number}: unfinished: {line.strip()}"


def crowded(modules: Collection[str]) -> Iterator[str]:
    """Find a folder with too many modules, given the names of its modules."""
    if len(modules) > MODULES_PER_FOLDER_MAX:
        yield f"{len(modules)} modules, at most {MODULES_PER_FOLDER_MAX}: {', '.join(modules)}"


def unmapped(init: str, modules: Collection[str], folders: Collection[str]) -> Iterator[str]:
    """Find modules that the text of `__init__` does not name, and names of no module."""
    text = ast.get_docstring(ast.parse(init), clean=False) or ""
    lines = [(found[1], bool(found[2])) for found in MAP_LINE.finditer(text)]
    named = [name for name, _ in lines]
    for name in sorted({*modules, *folders} - set(named)):
        slash = "/" if name in folders else ""
        yield f"the docstring has no line for it: `    {name}{slash}    what it is`"
    for name, is_folder in lines:
        if name not in (folders if is_folder else modules):
            yield f"the docstring names {name}{'/' * is_folder}, which does not exist"
        elif named.count(name) > 1:
            yield f"the docstring names {name} more than once"


def rooms() -> dict[Path, list[str]]:
    """Return the modules that count, by folder."""
    found: dict[Path, list[str]] = {}
    for path in our_files():
        name = name_of(path)
        if name.startswith(tuple(f"{root}/" for root in MAPPED)):
            modules = found.setdefault(path.parent, [])
            if not NOT_COUNTED.fullmatch(path.name) and not GENERATED.match(name):
                modules.append(path.stem)
    return found


def map_of(folder: Path) -> tuple[list[str], list[str]]:
    """Return the modules and the folders that a package's map has to name."""
    inside = [path.relative_to(folder) for path in our_files() if path.is_relative_to(folder)]
    modules = [
        path.stem
        for path in inside
        if len(path.parts) == 1 and not NOT_COUNTED.fullmatch(path.name)
    ]
    return modules, sorted({path.parts[0] for path in inside if len(path.parts) > 1})


def test_no_folder_is_crowded() -> None:
    """At most 12 modules; generated ones, tests and `__init__` are not counted."""
    wrong = [
        f"{name_of(folder)}: {what}"
        for folder, modules in rooms().items()
        for what in crowded(modules)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_package_has_its_map() -> None:
    """The docstring of `__init__` names each module and each folder, and nothing else."""
    wrong = [
        f"{name_of(folder)}/__init__.py: {what}"
        for folder in rooms()
        if (folder / "__init__.py").exists()
        for what in unmapped((folder / "__init__.py").read_text(), *map_of(folder))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("rule", [long_module, long_function, unfinished])
def test_every_file(rule: Rule) -> None:
    """No module over 500 lines, no function over 60, nothing unfinished."""
    check(rule, our_files())


SAMPLES: list[tuple[Rule, str]] = [
    (long_module, "\n" * 501),
    (long_function, "def f():\n" + "    x = 1\n" * 61),
    (unfinished, "# TO" + "DO later"),
]


@pytest.mark.parametrize(("rule", "sample"), SAMPLES)
def test_each_rule_finds_its_sample(rule: Rule, sample: str) -> None:
    """A rule that cannot fail proves nothing."""
    assert list(rule(sample))


def test_a_crowded_folder_is_found() -> None:
    names = [f"m{number}" for number in range(13)]
    assert list(crowded(names)) == [f"13 modules, at most 12: {', '.join(names)}"]
    assert not list(crowded(names[1:]))


def test_a_map_with_gaps_is_found() -> None:
    init = '"""A package.\n\n    here    it is\n    gone    it was\n    room/   a folder\n"""\n'
    assert not list(unmapped(init, ["here", "gone"], ["room"]))
    assert list(unmapped(init, ["here", "new"], ["here2", "room"])) == [
        "the docstring has no line for it: `    here2/    what it is`",
        "the docstring has no line for it: `    new    what it is`",
        "the docstring names gone, which does not exist",
    ]
