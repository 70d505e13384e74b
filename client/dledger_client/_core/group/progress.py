"""How far a consumer is in one queue: the floor, and what is done above it (D22, S97, S98). Pure.

Owns: floor, done ranges, what was handed out. Not: when a commit is sent (`commits.py`).

Example: of offsets 1 to 10 all but 3 are done. The floor is 3, and the done range is 4 to 10. Once
3 is done, the floor is 11 and there is no range.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

RANGES_MAX: Final = 256
"""Done ranges of one queue that its home group keeps. A commit tells the lowest ones."""


class Range(NamedTuple):
    """Offsets from `first` up to, not including, `end`."""

    first: int
    end: int


class Progress:
    """What is done of one queue, since it was claimed."""

    __slots__ = ("_ends", "_firsts", "_leaves_out", "changes", "floor", "taken")

    def __init__(self, floor: int, done: Iterable[Range] = ()) -> None:
        self.floor = floor
        """The next offset to consume: everything below is done (S99)."""
        self.taken = floor
        """Behind the last record that was handed out, or passed over."""
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self.changes = 0
        """Grows whenever something is done."""
        self._leaves_out = True
        for first, end in done:
            self.done(first, end)
        self.changes = 0

    def ranges(self) -> list[Range]:
        """Return the done ranges above the floor, in order."""
        return [Range(*both) for both in zip(self._firsts, self._ends, strict=True)]

    @property
    def range_count(self) -> int:
        """How many done ranges there are above the floor."""
        return len(self._firsts)

    def is_done(self, offset: int) -> bool:
        """Return whether a record is done."""
        if offset < self.floor:
            return True
        at = bisect_right(self._firsts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def done(self, first: int, end: int = 0) -> None:
        """Note that the records `first` to `end` - 1 are done; default: the one at `first`."""
        end = end or first + 1
        if end <= self.floor:
            return
        self.changes += 1
        if first <= self.floor:
            self.floor = end
            if self._firsts:
                self._absorb()
            return
        at = bisect_right(self._firsts, first)
        if at and self._ends[at - 1] >= first:
            at -= 1
            first, end = self._firsts[at], max(end, self._ends[at])
        stop = bisect_right(self._firsts, end)
        if stop > at:
            end = max(end, self._ends[stop - 1])
        self._firsts[at:stop] = [first]
        self._ends[at:stop] = [end]

    def _absorb(self) -> None:
        """Raise the floor over the ranges that it reaches."""
        gone = 0
        while gone < len(self._firsts) and self._firsts[gone] <= self.floor:
            self.floor = max(self.floor, self._ends[gone])
            gone += 1
        del self._firsts[:gone], self._ends[:gone]

    def done_below(self, offset: int) -> None:
        """Note that everything below an offset is done."""
        if offset > self.floor:
            self.done(self.floor, offset)

    def seek(self, offset: int) -> None:
        """Go to another offset: everything from there on is handed out, also what is done."""
        self.taken = offset
        self._leaves_out = False

    def take(self, first: int, end: int) -> list[Range]:
        """Note that a run was fetched; return its parts that are not done.

        Offsets between the run before and this one stay as they are: who knows that they hold no
        record of this consumer calls `done`. What nobody knows of is delivered by the next claim.
        """
        self.taken = max(self.taken, end)
        if not self._leaves_out:
            return [Range(first, end)]
        at = max(first, self.floor)
        parts: list[Range] = []
        for done in self.ranges() if self._firsts else ():
            if done.first >= end:
                break
            if done.first > at:
                parts.append(Range(at, done.first))
            at = max(at, done.end)
        if at < end:
            parts.append(Range(at, end))
        return parts
