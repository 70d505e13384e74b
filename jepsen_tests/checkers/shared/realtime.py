"""What was certainly over before something else began: rows of a history are in real time.

An operation whose row of completion stands before another's row of invocation was over before the
other began. One sweep over both finds the highest number that each operation had to respect.
"""

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import TypeVar

Who = TypeVar("Who")
Asks = TypeVar("Asks")


def high_water(
    completed: Iterable[tuple[int, int, Who]], invoked: Iterable[tuple[int, Asks]]
) -> Iterator[tuple[Asks, int, Who]]:
    """Yield (item, number, who) of each (row, item) invoked.

    The highest number of all (row, number, who) that were completed before; items before which
    nothing was completed are left out. O(n log n).
    """
    points = sorted(completed, key=itemgetter(0))
    at, highest = 0, None
    for row, item in sorted(invoked, key=itemgetter(0)):
        while at < len(points) and points[at][0] < row:
            if highest is None or points[at][1] > highest[1]:
                highest = points[at]
            at += 1
        if highest is not None:
            yield item, highest[1], highest[2]
