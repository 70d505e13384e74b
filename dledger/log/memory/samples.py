"""Sparse knowledge about a log: some (index, position) pairs, and where each term starts.

Owns: both lists, pure and in memory. A log of any size costs 16 bytes per 256 KiB of its active
segment and 16 bytes per term, never anything per entry.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from dledger.types import LogIndex, Position, Term

SAMPLE_BYTES: Final = 256 * 1024
"""Distance between samples, unless an entry is longer."""


class Samples:
    """(index, position) of some entries of one segment, the first one always among them."""

    def __init__(self, pairs: list[tuple[int, int]] | None = None) -> None:
        self._indexes = array("Q", [index for index, _ in pairs or ()])
        self._positions = array("Q", [position for _, position in pairs or ()])

    def note(self, index: LogIndex, position: Position) -> None:
        """Learn where an entry starts; keep it when it is far enough from the last one kept."""
        if not self._positions or position - self._positions[-1] >= SAMPLE_BYTES:
            self._indexes.append(index)
            self._positions.append(position)

    def before_index(self, index: LogIndex) -> tuple[LogIndex, Position] | None:
        """Return the newest sample at or below `index`."""
        place = bisect_right(self._indexes, index) - 1
        return self._pair(place) if place >= 0 else None

    def before_position(self, position: Position) -> tuple[LogIndex, Position] | None:
        """Return the newest sample at or below `position`."""
        place = bisect_right(self._positions, position) - 1
        return self._pair(place) if place >= 0 else None

    def _pair(self, place: int) -> tuple[LogIndex, Position]:
        return LogIndex(self._indexes[place]), Position(self._positions[place])

    def cut(self, position: Position) -> None:
        """Forget every entry that starts at or behind `position`."""
        count = bisect_left(self._positions, position)
        del self._indexes[count:]
        del self._positions[count:]

    def pairs(self, below: Position | None = None) -> list[tuple[int, int]]:
        """Return all samples, or those of entries that start below a position."""
        count = len(self._positions) if below is None else bisect_left(self._positions, below)
        return list(zip(self._indexes[:count], self._positions[:count], strict=True))

    def __len__(self) -> int:
        return len(self._indexes)


class TermStarts:
    """The term of every entry, kept as the index at which each term starts."""

    def __init__(self, pairs: list[tuple[int, int]] | None = None) -> None:
        self._indexes = array("Q", [index for index, _ in pairs or ()])
        self._terms = array("Q", [term for _, term in pairs or ()])

    def note(self, index: LogIndex, term: Term) -> None:
        """Learn the term of the next entry; terms never go down."""
        if not self._terms or term != self._terms[-1]:
            assert not self._terms or term > self._terms[-1], f"term {term} < {self._terms[-1]}"
            self._indexes.append(index)
            self._terms.append(term)

    def at(self, index: LogIndex) -> Term:
        """Return the term of an entry that the log holds."""
        place = bisect_right(self._indexes, index) - 1
        assert place >= 0, f"index {index} is below the first known term start"
        return Term(self._terms[place])

    def cut(self, index: LogIndex) -> None:
        """Forget the entry at `index` and everything behind."""
        count = bisect_left(self._indexes, index)
        del self._indexes[count:]
        del self._terms[count:]

    def trim(self, first: LogIndex) -> None:
        """Forget what only entries before `first` need."""
        place = bisect_right(self._indexes, first) - 1
        if place >= 0:
            del self._indexes[:place]
            del self._terms[:place]
            self._indexes[0] = first

    def pairs(self, first: LogIndex, last: LogIndex) -> list[tuple[int, int]]:
        """Return the starts that tell the term of every entry from `first` to `last`."""
        start = max(0, bisect_right(self._indexes, first) - 1)
        stop = bisect_right(self._indexes, last)
        found = list(zip(self._indexes[start:stop], self._terms[start:stop], strict=True))
        return [(max(index, first), term) for index, term in found]

    def __len__(self) -> int:
        return len(self._indexes)
