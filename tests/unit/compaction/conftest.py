"""Queues whose blocks are small, so that few rows are below the newest one."""

import pytest

from dledger.state.queues import table as tables
from dledger_broker.compacting import compacting as module


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of three rows."""
    monkeypatch.setattr(tables, "ROWS_PER_BLOCK", 3)


@pytest.fixture
def always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass begins when anything is new."""
    monkeypatch.setattr(module, "is_worth_it", lambda _old, new: new > 0)
