"""The next frames of a stream's assignments, in portions: each is read at once.

Owns: whose turn it is, how many frames one job of the pool reads, one portion read ahead, and the
count of what all that keeps in memory. Not owned: a frame (`frames`), sending (`fetch`).

Each assignment has one turn in a round. A portion ends with the round at the latest, and when it
has half of the size that a frame may have now, so that the next frame is not a small one.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from dledger_broker.read.assignments import Assignment, FetchOptions
from dledger_broker.read.frames import Frames, Prepared, Unread
from dledger_broker.rpc.admission import AdmissionControl, Bound

FRAME_COPIES: Final = 2
"""A frame that the reader has not taken exists twice: here and in gRPC."""
LOOKS_AT_ONCE: Final = 8
"""For old frames. Then the loop's other work has its turn: a thousand looks take it 18 ms."""


class Portion:
    """The next frames of some assignments, in their order. They are counted until given up."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self.size = 0
        self.frames: list[tuple[Assignment, Prepared | None]] = []
        """None: nothing is new."""
        self.was_cold = False
        """The disk was needed."""
        self.ends_round = False

    def count(self, size: int) -> None:
        """Count a frame of so many bytes."""
        self.size += size
        self._bound.take_regardless(FRAME_COPIES * size)

    def give_up(self) -> None:
        """Count nothing any more: whoever takes frames over counts them."""
        self._bound.give(FRAME_COPIES * self.size)
        self.size = 0


class Portions:
    """The portions of one stream."""

    def __init__(
        self,
        assignments: Sequence[Assignment],
        options: FetchOptions,
        frames: Frames,
        admission: AdmissionControl,
    ) -> None:
        self._assignments = assignments
        self._options = options
        self._frames = frames
        self._admission = admission
        self._waiting: deque[Assignment] = deque()
        """Those whose turn in the round is still to come."""
        self._ahead: asyncio.Task[Portion] | None = None

    async def next(self) -> Portion:
        """Return the next portion; the caller gives it up."""
        if self._ahead is None:
            return await self._take()
        portion = await self._ahead
        self._ahead = None
        return portion

    def read_ahead(self) -> None:
        """Begin the next portion. The assignments know by now how far they were read."""
        self._begin_round()
        if self._waiting and self._ahead is None:
            self._ahead = asyncio.get_running_loop().create_task(self._take())

    def close(self) -> None:
        """Give up what was read ahead."""
        ahead = self._ahead
        if ahead is None or ahead.cancel() or ahead.cancelled():
            return  # a portion that is being read gives itself up
        if ahead.exception() is None:
            ahead.result().give_up()

    def _begin_round(self) -> None:
        if not self._waiting:
            self._waiting.extend(each for each in self._assignments if not each.is_over)

    async def _take(self) -> Portion:
        self._begin_round()
        portion = Portion(self._admission.fetch_bytes)
        with ExitStack() as undo:
            undo.callback(portion.give_up)
            await self._fill(portion)
            undo.pop_all()
        portion.ends_round = not self._waiting
        return portion

    async def _fill(self, portion: Portion) -> None:
        limit = self._admission.fetch_frame_bytes(self._options.max_bytes)
        unread: dict[int, Unread] = {}
        while self._waiting and 2 * portion.size <= limit:
            assignment = self._waiting.popleft()
            found = await self._frames.look(assignment, self._options, limit - portion.size)
            if found is not None:
                portion.count(found.size)
            if isinstance(found, Unread):
                unread[len(portion.frames)] = found
                found = None
                if not len(unread) % LOOKS_AT_ONCE:
                    await asyncio.sleep(0)
            portion.frames.append((assignment, found))
        if unread:
            portion.was_cold = True
            read = await self._frames.read(list(unread.values()))
            for place, prepared in zip(unread, read, strict=True):
                portion.frames[place] = portion.frames[place][0], prepared
