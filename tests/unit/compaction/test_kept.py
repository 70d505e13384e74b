"""What the simulation's keeper judges of a compacted topic, from small made-up ends."""

from collections.abc import Mapping, Set

import pytest

from tests.sim.clients.real.kept import Kept, Reading, wrong_with

A1, A2, B1, NO_A = ("a", b"1"), ("a", b"2"), ("b", b"1"), ("a", b"")


def judged(acknowledged: Mapping[int, Kept], there: Mapping[int, Kept], *perhaps: Kept) -> str:
    wrong = wrong_with(acknowledged, set(perhaps), there, 3)
    return "" if wrong is None else wrong.detail


@pytest.mark.parametrize(
    ("acknowledged", "there", "perhaps"),
    [
        ({0: A1, 1: A2, 2: B1}, {1: A2, 2: B1}, set()),
        ({0: A1, 1: NO_A, 2: B1}, {2: B1}, set()),
        ({0: A1, 2: B1}, {1: A2, 2: B1}, {A2}),
        ({0: A1, 2: B1}, {2: B1}, {NO_A}),
    ],
    ids=["superseded", "deleted", "perhaps superseded", "perhaps deleted"],
)
def test_what_is_superseded_or_deleted_may_go(
    acknowledged: Mapping[int, Kept], there: Mapping[int, Kept], perhaps: Set[Kept]
) -> None:
    assert judged(acknowledged, there, *perhaps) == ""


def test_a_last_value_that_is_gone_is_lost() -> None:
    assert judged({0: A1, 2: B1}, {2: B1}) == "a at 0 is gone"
    assert judged({0: A1, 2: B1}, {2: B1}, A2) == "a at 0 is gone"
    assert judged({3: A1}, {}) == "ends at 3, not 3"


@pytest.mark.parametrize("perhaps", [(), (NO_A,)])
@pytest.mark.parametrize("last", [A2, NO_A])
def test_an_older_value_is_never_back(last: Kept, perhaps: tuple[Kept, ...]) -> None:
    """Whatever superseded the last one would have superseded the older one, too."""
    told = judged({0: A1, 1: last, 2: B1}, {0: A1, 2: B1}, *perhaps)
    assert told == "a at 1 is gone, and 0 is back"


def test_a_reader_passes_over_nothing_that_is_there() -> None:
    assert Reading({0, 2}).missed({0: A1, 1: A2, 2: B1}) == [1]
    assert Reading({1, 2}).missed({1: A2, 2: B1, 3: A1}) == [], "it did not come to 3"
    assert Reading(set()).missed({0: A1}) == []
