"""Which batches compaction has left nothing of: merges of the key index leave them out (S52).

Owns: looking at many batches at once, with a bound. Not: rows (`queues/table.py`).
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Final

from dledger.state.queues.table import Queue, QueueTable
from dledger.state.values import QueueSpan

BLOCKS_PER_LOOK: Final = 256
"""Blocks of a queue that one look reads: some 20 ms."""


def gone_of(queues: QueueTable, queue: Queue, positions: Mapping[int, int]) -> list[int]:
    """Return of which batches, given their positions by base offset, nothing is left.

    It reads blocks in their order, BLOCKS_PER_LOOK at most. Of batches that it does not reach it
    tells nothing.
    """
    found: list[int] = []
    blocks = _BlocksAhead(queues, queue)
    for offset in sorted(positions):
        if offset < queue.minimum:
            continue
        row = blocks.first_left(offset)
        if row is None:
            break
        is_run = row.position - positions[offset] == row.base_offset - offset
        if row.is_reference or not is_run:
            found.append(offset)
    return found


class _BlocksAhead:
    """Goes over the blocks of a queue, for offsets that grow."""

    def __init__(self, queues: QueueTable, queue: Queue) -> None:
        self._queues = queues
        self._queue = queue
        self._left: list[QueueSpan] = []
        """The rows of the newest block that are not gone..."""
        self._ends: list[int] = []
        """...and the offsets behind them."""
        self._end = 0
        """What lies below was looked at."""
        self._looks_left = BLOCKS_PER_LOOK

    def first_left(self, offset: int) -> QueueSpan | None:
        """Return the row of an offset, or the next one that is not gone; None: it looks no more."""
        while not self._ends or self._ends[-1] <= offset:
            at = max(offset, self._end)
            if not self._looks_left or at >= self._queue.maximum:
                return None
            self._looks_left -= 1
            rows = self._queues.rows_of_block(self._queue, at)
            self._end = rows[-1].base_offset + rows[-1].record_count
            self._left = [row for row in rows if not row.is_gone]
            self._ends = [row.base_offset + row.record_count for row in self._left]
        return self._left[bisect_right(self._ends, offset)]
