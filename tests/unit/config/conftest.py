"""A member's file."""

from pathlib import Path

import pytest

from tests.unit.config.support import GOOD


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "member.toml"
    path.write_text(GOOD)
    return path
