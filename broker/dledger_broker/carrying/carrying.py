"""A duty with a loop of its own: the leader copies old records to the end of the log (D7, D24).

Owns: when to look, reading what is to be copied, the pace. Not owned: what must be copied, and what
follows from it (`dledger.state.queues.carry` decides in apply), whether it is worth it (`worth`).

A pass that an earlier leader began is ended first. A new one begins when old segments hold little
that is needed, and the disk has room for the copies. What is alive is counted a thousand records at
a time, and the loop rests nine times as long as it worked. After a count that found nothing worth
it, the next one waits: the longer the count took, the longer.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, TypeVar

import structlog

from dledger.state.queries import Queries
from dledger.state.queues.carry import (
    COPIES_SIZE_TARGET,
    END,
    ROOTS_PER_COMMAND,
    CarryForward,
    Copy,
)
from dledger.state.queues.copies import FIRST
from dledger.state.values import Root
from dledger_broker.carrying.worth import Chance, Sealed, chances
from dledger_broker.group.group_view import GroupView
from dledger_broker.process.logs import Quiet
from dledger_broker.read.batches import STORAGE_ERRORS, SpanReader, read_batch, size_of_batch
from dledger_proto.errors import DledgerError
from dledger_proto.limits import MIB

LOOK_SECONDS: Final = 10.0
AGAIN_SECONDS: Final = 30.0
"""How soon it counts again, at least, when no pass was worth it..."""
AGAIN_TIMES: Final = 20
"""...and so many times what the count took."""
BYTES_PER_SECOND: Final = 16 * MIB
"""Of copies; producers need the disk more."""
REST_SECONDS: Final = 0.01
"""Between two looks at a thousand records, at least: other work of the member comes first..."""
REST_TIMES: Final = 9
"""...and so many times what the look took."""
CHUNK: Final = 1_024

T = TypeVar("T")


class Carrying:
    """Carries the old records of one group forward while this member leads it."""

    def __init__(self, view: GroupView) -> None:
        self._view = view
        self._queries: Queries = view.machine.queries
        self._log = structlog.get_logger().bind(group=view.names.group, member=view.names.member)
        self._quiet = Quiet(view.clock)
        self._count_at = 0.0
        """Before that no pass was worth it."""

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._view.leads or self._view.log.space.low:
                continue
            try:
                await self._look()
            except STORAGE_ERRORS as error:
                self._view.host.failed(error)
            except DledgerError as error:
                left_out = self._quiet.admit(error.code)
                if left_out is not None:
                    self._log.info(
                        "old records not carried on", reason=str(error), others_since=left_out
                    )

    async def _look(self) -> None:
        """End the pass under way, or make a new one if that is worth it."""
        carried = self._queries.carried
        target, cursor = carried.target, carried.cursor
        if not target:
            target, cursor = await self._worth(), FIRST
        if target:
            await self._pass(target, cursor)

    async def _pass(self, target: int, cursor: bytes) -> None:
        copied = 0
        while cursor != END:
            if not self._view.leads or self._view.log.space.low:
                return
            roots = self._queries.roots(cursor, target, ROOTS_PER_COMMAND + 1)
            job = partial(read_copies, self._view.log, roots, target)
            copies, until = await self._in_pool(job)
            command = CarryForward(target, cursor, until, tuple(copies))
            copied += (await self._view.commands.propose(command)).count
            cursor = until
            size = sum(len(copy.batch) for copy in copies)
            await asyncio.sleep(max(size / BYTES_PER_SECOND, REST_SECONDS))
        self._log.info("old records carried forward", horizon=target, batches=copied)

    # Whether a pass is worth it.

    async def _worth(self) -> int:
        """Return the target of a pass; 0: none is worth it."""
        view = self._view
        began = view.clock.monotonic()
        if began < self._count_at:
            return 0
        sealed = [Sealed(*each) for each in view.log.sealed_segments]
        first, head = view.log.first_position, self._queries.head()
        needed = head.needed if head.was_freed else first  # else nothing goes by itself
        for chance in chances(first, sealed, needed, view.machine.applied_index):
            if view.log.space.can_spare(chance.budget) and await self._fits(chance):
                return chance.target
        now = view.clock.monotonic()
        self._count_at = now + max(AGAIN_SECONDS, AGAIN_TIMES * (now - began))
        return 0

    async def _fits(self, chance: Chance) -> bool:
        """Tell whether what a pass would copy stays within its budget."""
        cursor, alive, clock = FIRST, 0, self._view.clock
        while self._view.leads:
            began = clock.monotonic()
            roots = self._queries.roots(cursor, chance.target, CHUNK + 1)
            chunk = roots[:CHUNK]
            job = partial(size_below, self._view.log, chunk, chance.target)
            alive += await self._in_pool(job)
            if alive > chance.budget:
                return False
            if len(roots) == len(chunk):
                return True
            cursor = roots[-1].key
            await asyncio.sleep(max(REST_SECONDS, REST_TIMES * (clock.monotonic() - began)))
        return False

    async def _in_pool(self, job: "partial[T]") -> T:
        return await asyncio.get_running_loop().run_in_executor(self._view.pool, job)


def read_copies(log: SpanReader, roots: Sequence[Root], target: int) -> tuple[list[Copy], bytes]:
    """Read what the next roots need to have copied; return it, and where the stretch ends. Blocks.

    At least one batch, then while COPIES_SIZE_TARGET lasts.
    """
    copies: dict[int, Copy] = {}
    size = 0
    for at, root in enumerate(roots):
        if at == ROOTS_PER_COMMAND or size >= COPIES_SIZE_TARGET:
            return list(copies.values()), root.key
        if root.place < target and root.position not in copies:
            batch = bytes(read_batch(log, root.place, root.size))
            copies[root.position] = Copy(root.position, batch)
            size += len(batch)
    return list(copies.values()), END


def size_below(log: SpanReader, roots: Sequence[Root], target: int) -> int:
    """Return how many bytes these roots need to have copied. Blocks.

    A batch that has several pins one after the other counts once.
    """
    size, last = 0, -1
    for root in roots:
        if root.place < target and root.position != last:
            size += root.size or size_of_batch(log, root.place)
        last = root.position
    return size
