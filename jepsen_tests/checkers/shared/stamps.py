"""The store times of records, as far as anybody was shown them.

The leader stamps each entry, and stamps never go back in the log of a group (D8).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from jepsen_tests.history.events import Op


class Stamp(NamedTuple):
    """The store time of one record, and the operation that showed it."""

    offset: int
    time_ms: int
    op: Op


class Stamps:
    """Store times by place and offset."""

    def __init__(self, ops: Iterable[Op]) -> None:
        self._first: defaultdict[str, dict[int, Stamp]] = defaultdict(dict)
        self.differing: list[tuple[str, Stamp, Stamp]] = []
        """Offsets of a place of which two store times were shown."""
        for op in ops:
            if op.is_ok:
                for place, offset, time_ms in _shown(op):
                    self._take(place, Stamp(offset, time_ms, op))
        self._sorted = {
            place: sorted(stamps.values(), key=itemgetter(0))
            for place, stamps in self._first.items()
        }

    def _take(self, place: str, stamp: Stamp) -> None:
        known = self._first[place].setdefault(stamp.offset, stamp)
        if known.time_ms != stamp.time_ms:
            self.differing.append((place, known, stamp))

    def __len__(self) -> int:
        return sum(map(len, self._sorted.values()))

    def at(self, place: str, offset: int) -> Stamp | None:
        """Return the store time of one record; None when nobody was shown it."""
        return self._first[place].get(offset) if place in self._first else None

    def below(self, place: str, offset: int) -> Stamp | None:
        """Return that of the highest known offset below one."""
        known = self._sorted.get(place, [])
        at = bisect_left(known, offset, key=itemgetter(0))
        return known[at - 1] if at else None

    def backward(self) -> Iterator[tuple[str, Stamp, Stamp]]:
        """Yield neighbours of a place whose store times fall."""
        for place, known in self._sorted.items():
            for before, after in pairwise(known):
                if after.time_ms < before.time_ms:
                    yield place, before, after


def _shown(op: Op) -> Iterator[tuple[str, int, int]]:
    if op.f == "stamps":
        for first, count, time_ms in op.result:
            for offset in range(first, first + count):
                yield op.k, offset, time_ms
    else:
        for place, offset, _, time_ms in op.result:
            yield place, offset, time_ms
