"""After each test: worlds that never end are closed, also when the test failed."""

from collections.abc import Generator

import pytest

from tests.sim.world.world import close_all


@pytest.fixture(autouse=True)
def no_world_left() -> Generator[None]:
    """Close what the test has left open."""
    yield
    close_all()
