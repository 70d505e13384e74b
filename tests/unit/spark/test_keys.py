"""Which offsets are read for a key: runs of those that are near to each other."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dledger_client.spark.batch import NEAR, runs_of


def test_what_is_near_is_read_with_it() -> None:
    assert runs_of([]) == []
    assert runs_of([3, 3 + NEAR, 4 + 2 * NEAR]) == [(3, 3 + NEAR), (4 + 2 * NEAR, 4 + 2 * NEAR)]


@given(st.lists(st.integers(0, 10_000), unique=True).map(sorted))
def test_every_offset_is_in_one_run(offsets: list[int]) -> None:
    runs = runs_of(offsets)
    assert [o for low, high in runs for o in offsets if low <= o <= high] == offsets
    assert all(later - high > NEAR for (_, high), (later, _) in pairwise(runs))
