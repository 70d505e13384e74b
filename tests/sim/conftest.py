"""What the tests of the simulation share: worlds are closed; a seed that fails."""

from collections.abc import Generator
from typing import Final, NamedTuple

import pytest

from tests.sim.invariants.violation import Property
from tests.sim.run import run_seed
from tests.sim.story.replay import Replay
from tests.sim.world.world import close_all

BUGS: Final = ("stale-acknowledgement", "acknowledged-more-than-stored", "apply-beyond-durable")
SEEDS: Final = 40
UNTIL: Final = 10.0
FAULTS_MIN: Final = 3


@pytest.fixture(autouse=True)
def no_world_left() -> Generator[None]:
    """Close a test's worlds that never ended, also when the test failed."""
    yield
    close_all()


class Failing(NamedTuple):
    """A seed, and the known bug with which it fails."""

    seed: int
    bug: str


@pytest.fixture(scope="session")
def failing() -> Failing:
    """Return a seed that breaks a property soon with a known bug, after some faults."""
    for seed in range(SEEDS):
        for bug in BUGS:
            result = run_seed(seed, 0, Replay(until=UNTIL, bug=bug))
            is_property = result.broken in Property.__members__
            if is_property and len(result.part.strikes) >= FAULTS_MIN:
                return Failing(seed, bug)
    raise AssertionError(f"no seed below {SEEDS} fails within {UNTIL} s with any of {BUGS}")
