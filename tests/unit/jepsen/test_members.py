"""When a group is well: while writes go on as well as when all is quiet."""

from dataclasses import dataclass
from typing import cast

import pytest

from dledger_client import MemberStatus
from jepsen_tests.run.members import are_well


@dataclass
class Said:
    role: str
    applied_index: int


@pytest.mark.parametrize(
    ("said", "applied", "well"),
    [
        ([("leader", 7), ("follower", 6), ("follower", 5)], 5, True),
        ([("leader", 7), ("follower", 6), ("follower", 4)], 5, False),
        ([("leader", 7), ("follower", 6)], 5, False),
        ([("follower", 7), ("follower", 6), ("follower", 5)], 5, False),
        ([("leader", 7), ("leader", 7), ("follower", 5)], 5, False),
        ([("leader", 7), ("follower", 7), ("quarantined", 7)], 5, False),
        ([], 0, False),
    ],
)
def test_well_is_whole_and_caught_up(said: list[tuple[str, int]], applied: int, well: bool) -> None:
    found = [cast("MemberStatus", Said(*each)) for each in said]
    assert are_well(found, 3, applied) is well
