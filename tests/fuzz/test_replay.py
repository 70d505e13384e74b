"""Every target keeps its promise for its seeds, for what is kept, and for inputs like them.

Goal: a parser that raises what it does not document, or takes memory that a length asks for, does
not pass. Method: the changed inputs are drawn from a `Random` of the target's name, so every run
tries the same. `make fuzz` tries others, for as long as one likes.
"""

from random import Random

import pytest

from tests.fuzz import corpus
from tests.fuzz.catalogue import TARGETS, by_name
from tests.fuzz.loop import known_inputs, tried
from tests.fuzz.target import Target, measured


def broken_promises(target: Target) -> list[str]:
    """Return one line for each way in which a target breaks its promise."""
    found: dict[str, str] = {}
    with measured():
        inputs = tried(
            target, Random(target.name), lambda number: number < target.tries, known_inputs(target)
        )
        for data, verdict in inputs:
            if verdict.problem:
                found.setdefault(verdict.outcome, f"{verdict.problem}: {data[:200]!r}")
    return list(found.values())


def keeps(name: str) -> None:
    """Script of known bugs: the target of this name keeps its promise."""
    assert broken_promises(by_name()[name]) == []


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_target_keeps_its_promise(target: Target) -> None:
    assert broken_promises(target) == []


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_seeds_get_far(target: Target) -> None:
    """An encoder's bytes are read: a target whose seeds are refused fuzzes nothing."""
    returned = 0
    for data in target.seeds():
        try:
            target.read(data)
        except target.errors:
            continue
        returned += 1
    assert returned or target.name == "values"  # its three parsers never agree on one text


def test_what_is_kept_is_small_and_of_a_target() -> None:
    names = set(by_name())
    for folder in (corpus.CORPUS, corpus.FINDINGS):
        assert {path.name for path in folder.glob("*")} <= names
    assert corpus.size(corpus.CORPUS)[1] <= corpus.KEPT_BYTES_MAX
    for path in corpus.CORPUS.rglob("*"):
        if path.is_file():
            assert path.stat().st_size <= corpus.KEPT_INPUT_BYTES_MAX
