"""After each test: the files of worlds that never end are removed, also when the test failed."""

from collections.abc import Generator

import pytest

from tests.sim.disk import ram


@pytest.fixture(autouse=True)
def no_files_left() -> Generator[None]:
    """Close what the test has left open."""
    yield
    ram.close_all()
