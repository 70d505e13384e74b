"""The store times of records, as far as anybody was shown them.

The leader stamps each entry, and stamps never go back in the log of a group (D8). Kept are runs of
records: a history may be damaged, and a run may claim any number of records.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from jepsen_tests.history.events import Op


class Stamp(NamedTuple):
    """The store time of records that follow one another, and the operation that showed it."""

    offset: int
    """Of the first."""
    end: int
    """One above the last."""
    time_ms: int
    op: Op


class Stamps:
    """Store times by place and offset."""

    def __init__(self, ops: Iterable[Op]) -> None:
        shown: defaultdict[str, list[Stamp]] = defaultdict(list)
        for op in ops:
            if op.is_ok:
                for place, stamp in _shown(op):
                    shown[place].append(stamp)
        self.differing: list[tuple[str, Stamp, Stamp]] = []
        """Of a place two runs that have a record in common, and not its store time."""
        self._runs = {place: self._disjoint(place, stamps) for place, stamps in shown.items()}

    def _disjoint(self, place: str, stamps: list[Stamp]) -> list[Stamp]:
        """Return runs in order of offsets, each record in one run; note those that differ."""
        runs: list[Stamp] = []
        for stamp in sorted(stamps, key=attrgetter("offset", "op.i")):
            last = runs[-1] if runs else None
            if last is None or last.end <= stamp.offset:
                runs.append(stamp)
                continue
            if last.time_ms != stamp.time_ms:
                self.differing.append((place, last, stamp))
            if last.end < stamp.end:
                runs.append(stamp._replace(offset=last.end))
        return runs

    def __len__(self) -> int:
        """Return how many runs there are."""
        return sum(map(len, self._runs.values()))

    def at(self, place: str, offset: int) -> Stamp | None:
        """Return the run that has a record; None when nobody was shown its store time."""
        below = self.below(place, offset + 1)
        return below if below is not None and offset < below.end else None

    def below(self, place: str, offset: int) -> Stamp | None:
        """Return the run that has the highest known record below an offset."""
        runs = self._runs.get(place, [])
        at = bisect_left(runs, offset, key=attrgetter("offset"))
        return runs[at - 1] if at else None

    def backward(self) -> Iterator[tuple[str, Stamp, Stamp]]:
        """Yield neighbours of a place whose store times fall."""
        for place, runs in self._runs.items():
            for before, after in pairwise(runs):
                if after.time_ms < before.time_ms:
                    yield place, before, after


def _shown(op: Op) -> Iterator[tuple[str, Stamp]]:
    if op.f == "stamps":
        for first, count, time_ms in op.result:
            yield op.k, Stamp(first, first + count, time_ms, op)
    else:
        for place, offset, _, time_ms in op.result:
            yield place, Stamp(offset, offset + 1, time_ms, op)
