"""Done ranges above a floor: merged, counted, looked up. Pure (D22).

A range is (first, end): the offsets first <= offset < end. Ranges of a row are sorted, lie above
the floor, and neither overlap nor touch each other.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

Range = tuple[int, int]
RANGES_MAX: Final = 256
"""Done ranges that a row keeps of a queue."""


def settled(floor: int, done: Sequence[Range], added: Sequence[Range]) -> tuple[int, list[Range]]:
    """Return floor and ranges when `added` is done, too: what touches the floor raises it."""
    kept: list[Range] = []
    for first, end in sorted([*done, *added]):
        if end <= floor or first >= end:
            continue
        if first <= floor:
            floor = end
        elif kept and first <= kept[-1][1]:
            kept[-1] = kept[-1][0], max(kept[-1][1], end)
        else:
            kept.append((first, end))
    return floor, kept


def is_done(floor: int, done: Sequence[Range], offset: int) -> bool:
    """Tell whether an offset lies below the floor or in a range."""
    if offset < floor:
        return True
    place = bisect_right(done, offset, key=_first) - 1
    return place >= 0 and offset < done[place][1]


def size_of(done: Sequence[Range]) -> int:
    """Return how many offsets the ranges hold."""
    return sum(end - first for first, end in done)


def _first(done: Range) -> int:
    return done[0]
