"""A duty with a loop of its own: the leader copies old records to the end of the log (D7, D24).

Owns: when to look, reading what is to be copied, the pace. Not owned: what must be copied, and what
follows from it (`dledger.state.queues.carry` decides in apply), whether it is worth it (`worth`).

A pass that an earlier leader began is ended first. A new one begins when old segments hold little
that is needed. What is alive in them is counted a thousand records at a time. When no pass is worth
it, the next count waits for another segment, or ten minutes.
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
AGAIN_SECONDS: Final = 600.0
"""When no pass was worth it, and no segment was sealed since."""
BYTES_PER_SECOND: Final = 16 * MIB
"""Of copies; producers need the disk more."""
REST_SECONDS: Final = 0.01
"""Between two looks at a thousand records: other work of the member comes first."""
CHUNK: Final = 1_024

T = TypeVar("T")


class Carrying:
    """Carries the old records of one group forward while this member leads it."""

    def __init__(self, view: GroupView) -> None:
        self._view = view
        self._queries: Queries = view.machine.queries
        self._log = structlog.get_logger().bind(group=view.names.group, member=view.names.member)
        self._quiet = Quiet(view.clock)
        self._counted: tuple[int, int] | None = None
        """The term and the newest segment's end when nothing was worth a pass."""
        self._count_at = 0.0

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._view.leads:
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
            if not self._view.leads:
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
        sealed = [Sealed(*each) for each in view.log.sealed_segments]
        now, term = view.clock.monotonic(), view.host.leadership.term
        seen = (term, sealed[-1].end if sealed else 0)
        if seen == self._counted and now < self._count_at:
            return 0
        head = self._queries.head()
        for chance in chances(
            view.log.first_position, sealed, head.needed, view.machine.applied_index
        ):
            if await self._fits(chance):
                self._counted = None
                return chance.target
        self._counted, self._count_at = seen, now + AGAIN_SECONDS
        return 0

    async def _fits(self, chance: Chance) -> bool:
        """Tell whether what a pass would copy stays within its budget."""
        cursor, alive = FIRST, 0
        while True:
            roots = self._queries.roots(cursor, chance.target, CHUNK + 1)
            chunk = roots[:CHUNK]
            job = partial(size_below, self._view.log, chunk, chance.target)
            alive += await self._in_pool(job)
            if alive > chance.budget:
                return False
            if len(roots) == len(chunk):
                return True
            cursor = roots[-1].key
            await asyncio.sleep(REST_SECONDS)

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
