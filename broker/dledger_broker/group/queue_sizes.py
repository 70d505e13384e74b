"""How many bytes a queue holds, and where it begins to be within a bound. Pure.

Owns: the count of a queue's batches, which a leader makes once and then carries on. Not: what a
topic's bound is, nor who deletes (`retention`). The state keeps no sum for each queue: only a bound
of size asks for it, and most topics have none.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from dledger.state.queries import Queries
from dledger.state.queues.table import QueueId

CHUNKS_PER_BOUND: Final = 64
"""A queue is cut where a chunk ends, so it may hold 1/64 more than its bound."""
CHUNK_BYTES_MIN: Final = 65_536
ANY_BYTES: Final = 1 << 62
"""Only rows are read, and SPANS_MAX bounds a read of them, however large their batches are."""
READS_PER_LOOK: Final = 16
"""Over all queues: some 65,000 rows, which take 0.1 s. The next look goes on."""


@dataclass(slots=True)
class _Measured:
    """What was counted of a queue, from the oldest chunk on."""

    bound: int
    at: int
    """The offset where the count goes on."""
    cut: int
    """Below it the queue is more than its bound."""
    chunks: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    """(first offset behind it, bytes)."""
    total: int = 0
    open_bytes: int = 0
    """Of the newest chunk, which is not full."""


class QueueSizes:
    """The sizes of the queues whose topics have a bound of size."""

    def __init__(self) -> None:
        self._measured: dict[QueueId, _Measured] = {}
        self._reads_left = 0

    def clear(self) -> None:
        """Forget all, as a member does that leads no more."""
        self._measured.clear()

    def begin_look(self) -> None:
        """Allow the reads of one look."""
        self._reads_left = READS_PER_LOOK

    def keep(self, queues: set[QueueId]) -> None:
        """Forget the queues that have no bound any more."""
        for queue in self._measured.keys() - queues:
            del self._measured[queue]

    def over(self, state: Queries, queue: QueueId, bounds: tuple[int, int], limit: int) -> int:
        """Return below which offset the queue holds more than `limit` bytes; its minimum: none.

        `bounds` are the queue's minimum and maximum. A queue that is not counted to its end yet
        tells no more than is certain.
        """
        minimum, maximum = bounds
        measured = self._measured.get(queue)
        is_known = measured is not None and measured.bound == limit
        if measured is None or not is_known or not minimum <= measured.at <= maximum:
            measured = self._measured[queue] = _Measured(limit, minimum, minimum)
        while measured.chunks and measured.chunks[0][0] <= minimum:
            measured.total -= measured.chunks.popleft()[1]
        while measured.at < maximum and self._reads_left:
            self._reads_left -= 1
            self._count(state, queue, measured)
        return max(minimum, measured.cut)

    @staticmethod
    def _count(state: Queries, queue: QueueId, measured: _Measured) -> None:
        chunk_bytes = max(measured.bound // CHUNKS_PER_BOUND, CHUNK_BYTES_MIN)
        for span in state.spans(*queue, measured.at, ANY_BYTES):
            measured.at = span.base_offset + span.record_count
            measured.open_bytes += span.size
            if measured.open_bytes >= chunk_bytes:
                measured.chunks.append((measured.at, measured.open_bytes))
                measured.total += measured.open_bytes
                measured.open_bytes = 0
        while measured.chunks and measured.total - measured.chunks[0][1] >= measured.bound:
            measured.cut, size = measured.chunks.popleft()
            measured.total -= size
