"""Folders that tests read and break."""

from pathlib import Path

import pytest

from tests.unit.reading.data_folder import WrittenFolder
from tests.unit.spark.folders import write


@pytest.fixture
def written(tmp_path: Path) -> WrittenFolder:
    """See `folders.write`."""
    return write(tmp_path / "m1" / "data" / "g1")
