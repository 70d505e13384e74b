"""Fewer faults, fewer clients and less time that still break the same property.

Owns: the order of the attempts. Less time comes first, because a shorter run makes every later one
cheaper: a run that has to fail needs no more time than the one that failed before it, and a little.
Then faults go, by delta debugging, then clients, then what faults the shorter story can do without.
A part counts only when the same property breaks: another one is another finding.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from tests.sim.clients.cast import SHARED
from tests.sim.story.ddmin import Budget, ddmin
from tests.sim.story.replay import Replay, in_order

if TYPE_CHECKING:
    from tests.sim.world.world import World

RUNS_MAX: Final = 60
LONGER_SECONDS: Final = 3.0
"""A part may fail so much later than the last one that failed."""
LAST_RUNS: Final = 2
"""Kept for the end: where exactly the part fails, and its story."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What of a seed took part in a run."""

    strikes: Sequence[str]
    """Names of the faults that began."""
    producers: Sequence[str]
    others: Sequence[str]
    """All other clients that may be left out."""
    ended: float
    """Virtual time."""
    in_safety: bool
    """Whether it ended while faults still might come."""
    safety: float


class Outcome(Protocol):
    """One run, as far as shrinking looks at it."""

    @property
    def broken(self) -> str:
        """Return the name of the property; empty when nothing broke."""
        ...

    @property
    def part(self) -> Ran:
        """Return what took part."""
        ...

    @property
    def page(self) -> str:
        """Return the story."""
        ...


class Run(Protocol):
    """How a part of the seed runs."""

    def __call__(self, *, replay: Replay, story: bool) -> Outcome:
        """Run it; make its page if the story is asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest part that was found."""

    replay: Replay
    result: Outcome
    runs: int

    def describe(self) -> str:
        """Return its size in words."""
        part = self.result.part
        clients = len(part.producers) + len(part.others)
        return f"{len(part.strikes)} faults, {clients} clients, {part.ended:.1f} virtual seconds"


def ran(world: "World") -> Ran:
    """Return what took part in a world that has ended."""
    clients = world.clients
    trimmers = [] if clients.trimmer is None else ["admin"]
    shared = [] if clients.shared is None else [SHARED]
    safety = world.replay.safety
    return Ran(
        strikes=in_order({strike.name for strike in world.nemesis.strikes}),
        producers=[each.plan.name for each in clients.producers],
        others=[*(each.plan.name for each in clients.consumers), *trimmers, *shared],
        ended=world.scheduler.now,
        in_safety=world.nemesis.running,
        safety=world.plan.safety_seconds if safety is None else safety,
    )


class _Search:
    """The smallest part so far, and what is left to be spent."""

    def __init__(self, run: Run, whole: Replay, runs: int) -> None:
        self._run = run
        self.budget = Budget(runs)
        self.best = whole
        self.result = run(replay=whole, story=False)
        self.broken = self.result.broken

    def attempt(self, part: Replay) -> bool:
        """Run a part; keep it, and stop later runs soon after it, when it fails the same."""
        result = self._run(replay=part, story=False)
        if not result.broken or result.broken != self.broken:
            return False
        self.best, self.result = part, result
        return True


def shrink(run: Run, whole: Replay, runs: int, say: Callable[[str], None]) -> Shrunk | None:
    """Return the smallest part found in at most so many runs; None when the whole does not fail."""
    search = _Search(run, whole, runs - 1 - LAST_RUNS)
    if not search.broken:
        return None
    say(f"{search.broken} {_size(search.result.part)}")
    for step in (_less_time, _fewer_faults, _fewer_clients, _fewer_faults, _sooner_calm):
        step(search)
        say(f"{step.__name__.strip('_').replace('_', ' ')}: {_size(search.result.part)}")
    return _finish(search, run, runs)


def _size(part: Ran) -> str:
    clients = len(part.producers) + len(part.others)
    return f"at {part.ended:.3f} s, {len(part.strikes)} faults, {clients} clients"


def _limit(result: Outcome) -> float:
    """Return how long a smaller part may take to fail."""
    return round(result.part.ended + LONGER_SECONDS, 3)


def _less_time(search: _Search) -> None:
    """Stop soon after the violation; the faults that had not begun by then are left out."""
    search.best = replace(search.best, until=_limit(search.result))
    begun = replace(search.best, keep=frozenset(search.result.part.strikes))
    if search.budget.take():
        search.attempt(begun)


def _fewer_faults(search: _Search) -> None:
    if search.best.keep is None:
        return

    def fails(kept: Sequence[str]) -> bool:
        limited = replace(search.best, keep=frozenset(kept), until=_limit(search.result))
        return search.attempt(limited)

    ddmin(in_order(search.best.keep), fails, search.budget)


def _fewer_clients(search: _Search) -> None:
    """Leave out one client after the other. One producer stays: without it nothing is promised."""
    part = search.result.part
    for name in (*part.others, *part.producers):
        now = search.result.part
        left = [each for each in (*now.producers, *now.others) if each != name]
        if not any(each in now.producers for each in left) or not search.budget.take():
            continue
        limited = replace(search.best, clients=frozenset(left), until=_limit(search.result))
        search.attempt(limited)


def _sooner_calm(search: _Search) -> None:
    """Of a violation after the faults: let them end sooner, as long as it still fails."""
    if search.result.part.in_safety:
        return
    shorter = 0.0
    longer = search.result.part.safety
    while longer - shorter > 1.0 and search.budget.take():
        middle = round((shorter + longer) / 2, 1)
        rest = search.result.part.ended - search.result.part.safety
        until = round(middle + rest + LONGER_SECONDS, 3)
        if search.attempt(replace(search.best, safety=middle, until=until)):
            longer = middle
        else:
            shorter = middle


def _finish(search: _Search, run: Run, runs: int) -> Shrunk:
    """Stop right at the violation, and let the smallest part tell its story."""
    until = math.ceil(1_000 * search.result.part.ended) / 1_000
    part = replace(search.best, until=until)
    result = run(replay=part, story=True)
    spent = runs - LAST_RUNS - search.budget.left + 1
    if result.broken != search.broken:  # it fails in the very event that would stop it
        part = search.best
        result, spent = run(replay=part, story=True), spent + 1
    return Shrunk(part, result, spent)
