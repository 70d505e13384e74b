"""Ranges of offsets that readers went through, whether or not they got a value at each.

The ranges are half-open. They come in any order, and the first question merges them.
"""

from bisect import bisect_right


class OffsetRanges:
    """A union of ranges of offsets."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._merged = True

    def add(self, start: int, end: int) -> None:
        """Add [start, end). A range that continues the last one takes no more memory."""
        if start >= end:
            return
        if self._ranges:
            last_start, last_end = self._ranges[-1]
            if last_start <= start <= last_end:
                if end > last_end:
                    self._ranges[-1] = last_start, end
                return
        self._ranges.append((start, end))
        self._merged = False

    def ranges(self) -> list[tuple[int, int]]:
        """Return disjoint ranges in order."""
        if not self._merged:
            merged: list[tuple[int, int]] = []
            for start, end in sorted(self._ranges):
                if merged and start <= merged[-1][1]:
                    merged[-1] = (merged[-1][0], max(merged[-1][1], end))
                else:
                    merged.append((start, end))
            self._ranges, self._merged = merged, True
        return self._ranges

    @property
    def end(self) -> int:
        """One above the highest offset; 0 when there is none."""
        ranges = self.ranges()
        return ranges[-1][1] if ranges else 0

    def __contains__(self, offset: int) -> bool:
        ranges = self.ranges()
        at = bisect_right(ranges, offset, key=lambda each: each[0]) - 1
        return at >= 0 and offset < ranges[at][1]

    def __bool__(self) -> bool:
        return bool(self._ranges)
