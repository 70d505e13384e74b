"""Callers of one loop that wait until an entry is applied, the lowest index first.

Owns: who waits for what, and that callers who gave up are forgotten. Admission of calls bounds how
many wait. All calls are made on the loop's thread.
"""

import asyncio
import heapq

from dledger.types import LogIndex


class AppliedWaiters:
    """Invariant: at most as many callers that gave up are kept as ones that wait."""

    def __init__(self) -> None:
        self._heap: list[tuple[LogIndex, int, asyncio.Future[None]]] = []
        self._number = 0
        """Of the newest caller: equal indexes are told in order."""
        self._cancelled_count = 0
        """About so many of the heap have given up; never fewer than there are."""

    def __len__(self) -> int:
        return len(self._heap)

    async def wait(self, index: LogIndex) -> None:
        """Return when `wake` has been told of entry `index`, or raise what `fail` was given."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._number += 1
        heapq.heappush(self._heap, (index, self._number, future))
        try:
            await future
        except asyncio.CancelledError:
            self._forget_cancelled()
            raise

    def _forget_cancelled(self) -> None:
        self._cancelled_count += 1
        if 2 * self._cancelled_count > len(self._heap):
            self._heap = [each for each in self._heap if not each[2].done()]
            heapq.heapify(self._heap)
            self._cancelled_count = 0

    def wake(self, applied: LogIndex) -> None:
        """Tell everybody who waits for an entry up to this one."""
        while self._heap and self._heap[0][0] <= applied:
            future = heapq.heappop(self._heap)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """Tell everybody that nothing is applied any more."""
        for _, _, future in self._heap:
            if not future.done():
                future.set_exception(error)
        self._heap.clear()
