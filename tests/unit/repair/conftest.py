"""Tests of repairs run, as those of the log, on the real file system and on the simulated one."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from dledger.files import FileSystem, OsFileSystem
from tests.sim.disk.disk import SimFileSystem


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[FileSystem, str]]:
    """A file system, and a folder in it that does not exist yet."""
    if request.param == "real":
        yield OsFileSystem(), str(tmp_path / "above" / "data")
    else:
        yield SimFileSystem(Random(1)), "/disk/above/data"


@pytest.fixture
def sim() -> SimFileSystem:
    return SimFileSystem(Random(1))
