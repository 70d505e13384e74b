"""Every mutant still fits the product, and applying one leaves nothing behind."""

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit, StaleMutant, applied


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_product(mutant: Mutant) -> None:
    """The text it replaces occurs exactly once."""
    with applied(*mutant.edits):
        pass


def test_an_edit_changes_the_function_and_is_undone() -> None:
    """Also where another module imported the function by name."""
    from dledger.raft.gate import proven_commit
    from dledger.raft.replication import follower

    assert proven_commit(9, 5, None) == 5
    edit = Edit(
        "dledger.raft.gate:proven_commit",
        "return min(leader_commit, prev_index if last_index is None else last_index)",
        "return leader_commit",
    )
    with applied(edit):
        assert vars(follower)["proven_commit"](9, 5, None) == 9
    assert vars(follower)["proven_commit"](9, 5, None) == 5


def test_a_text_that_is_gone_is_an_error() -> None:
    """A mutant must not silently stop meaning anything."""
    edit = Edit("dledger.raft.gate:proven_commit", "return something else", "return 0")
    with pytest.raises(StaleMutant), applied(edit):
        pass


def test_there_are_at_least_twenty() -> None:
    """The issue's floor."""
    assert len(MUTANTS) >= 20
