"""Shrinking: fewer faults, clients and less time that break the same property, by command.

Goal: what shrinking returns is small, still fails, and its command replays it. Method: delta
debugging on sets whose smallest failing part is known, then a seed with a known bug.
"""

from collections.abc import Sequence
from functools import partial

import pytest

from tests.sim.conftest import Failing
from tests.sim.run import parse_arguments, run_seed
from tests.sim.story.ddmin import Budget, ddmin
from tests.sim.story.replay import Replay, from_arguments, in_order
from tests.sim.story.shrink import Ran, shrink

RUNS = 24


@pytest.mark.parametrize("needed", [set(), {7}, {0, 31}, {3, 4, 5}, {1, 11, 21, 29}])
def test_the_smallest_part_is_found(needed: set[int]) -> None:
    """Of 32 elements, exactly those that are needed are left."""
    budget = Budget(1_000)
    assert ddmin(range(32), lambda part: needed <= set(part), budget) == sorted(needed)
    assert budget.left > 800


def test_a_search_without_budget_returns_what_is_known_to_fail() -> None:
    """No question is asked that is not paid for."""
    asked: list[Sequence[int]] = []

    def fails(part: Sequence[int]) -> bool:
        asked.append(part)
        return {1, 2, 30} <= set(part)

    found = ddmin(range(32), fails, Budget(9))
    assert len(asked) == 9
    assert {1, 2, 30} <= set(found)
    assert len(found) < 32


def test_names_of_faults_are_in_order() -> None:
    """Turns by number, then strikes at elections by term."""
    assert in_order({"10", "9", "b.4", "a.12", "a.4"}) == ["9", "10", "a.4", "b.4", "a.12"]


class _Told:
    """An outcome that a test makes up."""

    page = "a page"

    def __init__(self, broken: str, part: Ran) -> None:
        self.broken = broken
        self.part = part


def test_another_property_is_another_finding() -> None:
    """A part that breaks something else is not what is looked for."""
    strikes = [str(number) for number in range(1, 9)]

    def run(*, replay: Replay, story: bool) -> _Told:
        kept = strikes if replay.keep is None else in_order(replay.keep)
        broken = "ONE" if {"2", "5"} <= set(kept) else "OTHER" if "5" in kept else ""
        return _Told(broken, Ran(kept, ["p0"], [], 10.0, in_safety=True, safety=50.0))

    found = shrink(run, Replay(), 60, lambda line: None)
    assert found is not None
    assert found.result.broken == "ONE"
    assert found.replay.keep == frozenset({"2", "5"})
    assert found.replay.until == 10.0


def test_a_violation_after_the_faults_needs_fewer_seconds_of_faults() -> None:
    """The faults end as soon as the last of those that are needed has begun."""

    def run(*, replay: Replay, story: bool) -> _Told:
        safety = 60.0 if replay.safety is None else replay.safety
        broken = "CONVERGENCE" if safety >= 11.0 else ""
        return _Told(broken, Ran(["1"], ["p0"], [], safety + 30.0, in_safety=False, safety=safety))

    found = shrink(run, Replay(), 60, lambda line: None)
    assert found is not None
    assert found.replay.safety is not None
    assert 11.0 <= found.replay.safety <= 12.0


@pytest.mark.slow
def test_a_seed_with_a_known_bug_is_shrunk_and_replayed_by_its_command(failing: Failing) -> None:
    """No more faults and clients break the same property; so does the command that is printed."""
    seed, whole = failing.seed, Replay(bug=failing.bug)
    before = run_seed(seed, 0, whole)
    found = shrink(partial(run_seed, seed, 0), whole, RUNS, lambda line: None)
    assert found is not None
    assert found.runs <= RUNS
    part = found.result.part
    assert found.result.broken == before.broken
    assert set(part.strikes) <= set(before.part.strikes)
    assert {*part.producers, *part.others} <= {*before.part.producers, *before.part.others}
    command = found.replay.command(seed).split()
    arguments = parse_arguments(command[command.index("sim") :])
    again = run_seed(arguments.seed, replay=from_arguments(arguments))
    assert again.broken == before.broken
    assert again.part == part
    assert again.page == found.result.page
