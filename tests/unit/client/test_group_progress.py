"""Progress of one queue: floor and done ranges (S98, S99)."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dledger_client._core.group.progress import Progress, Range


def test_the_floor_is_the_first_that_is_not_done() -> None:
    progress = Progress(1)
    for offset in (1, 2, 4, 5, 6, 7, 8, 9, 10):
        progress.done(offset)
    assert (progress.floor, progress.ranges()) == (3, [Range(4, 11)])
    progress.done(3)
    assert (progress.floor, progress.ranges()) == (11, [])


@given(st.integers(0, 5), st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6)), max_size=40))
def test_progress_is_the_set_of_what_is_done(floor: int, runs: list[tuple[int, int]]) -> None:
    progress, done = Progress(floor), set(range(floor))
    for first, count in runs:
        progress.done(first, first + count)
        done |= set(range(first, first + count))
        expected = next(offset for offset in range(100) if offset not in done)
        assert progress.floor == expected
        told = {offset for range_ in progress.ranges() for offset in range(*range_)}
        assert told == {offset for offset in done if offset > expected}
        ranges = progress.ranges()
        assert all(a.end < b.first for a, b in pairwise(ranges)), "merged"
        assert all(progress.is_done(offset) == (offset in done) for offset in range(60))


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)), max_size=8),
    st.lists(st.integers(1, 6), min_size=1, max_size=8),
)
def test_what_is_done_is_not_handed_out_and_everything_else_once(
    done: list[tuple[int, int]], sizes: list[int]
) -> None:
    progress = Progress(0, [Range(first, first + count) for first, count in done])
    is_done = {offset for first, count in done for offset in range(first, first + count)}
    handed_out: list[int] = []
    at = progress.floor
    for size in sizes:
        for part in progress.take(at, at + size):
            handed_out += range(*part)
        at += size
    assert handed_out == [offset for offset in range(progress.floor, at) if offset not in is_done]


def test_a_gap_is_done_only_when_somebody_says_so() -> None:
    progress = Progress(5)
    assert progress.take(5, 8) == [Range(5, 8)]
    assert progress.take(12, 15) == [Range(12, 15)]
    progress.done(5, 8)
    progress.done(12, 15)
    assert (progress.floor, progress.ranges()) == (8, [Range(12, 15)]), "8 to 11 are not done"
    progress.done(8, 12)  # the log holds no record there
    assert (progress.floor, progress.ranges()) == (15, [])


def test_a_seek_hands_out_everything() -> None:
    progress = Progress(12)
    progress.seek(6)
    assert progress.take(6, 9) == [Range(6, 9)]
    progress.done_below(8)
    assert progress.floor == 12
