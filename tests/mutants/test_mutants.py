"""A fast share of `make mutants`: those whose script or seed is known are caught again.

Goal: the ordinary test run notices when the simulation has lost its teeth. Method: for each mutant
of `caught.json`, what caught it last time must catch it now. Slow ones are left to `make mutants`.
"""

import gc
import importlib
from types import SimpleNamespace

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.hunt import HuntBounds, catch, known_rows, load_script, merged

FAST = {
    row["mutant"]: row["by"]
    for row in known_rows()
    if row["by"].startswith(("test_", "unit.", "fuzz."))
}


@pytest.mark.parametrize("name", sorted(FAST))
def test_a_mutant_with_a_script_is_caught(name: str) -> None:
    """Its script fails, or says something is broken."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    assert catch(mutant, HuntBounds(0), lambda _: "", FAST[name]).by == FAST[name]


def test_a_script_is_read_while_the_collector_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A finalizer that parses would break the parse of the script."""
    seen: list[tuple[str, bool]] = []

    def script() -> None: ...

    def importing(name: str) -> object:
        seen.append((name, gc.isenabled()))
        return SimpleNamespace(script=script)

    monkeypatch.setattr(importlib, "import_module", importing)
    assert load_script("unit.raft.test_gate.script") is script
    assert seen == [("tests.unit.raft.test_gate", False)]
    assert gc.isenabled()


def test_every_mutant_was_caught() -> None:
    """The kept table names a catcher for each of the catalogue."""
    table = {row["mutant"]: row["by"] for row in known_rows()}
    assert [mutant.name for mutant in MUTANTS if not table.get(mutant.name)] == []


def test_a_run_of_one_mutant_changes_its_row_only() -> None:
    """Rows stand in the catalogue's order, and those of mutants that are gone leave."""
    first, second, third = (mutant.name for mutant in MUTANTS[:3])
    kept = [{"mutant": name, "by": "before"} for name in (first, third, "gone")]
    table = merged(kept, [{"mutant": second, "by": "now"}, {"mutant": third, "by": "now"}])
    assert [(row["mutant"], row["by"]) for row in table] == [
        (first, "before"),
        (second, "now"),
        (third, "now"),
    ]
