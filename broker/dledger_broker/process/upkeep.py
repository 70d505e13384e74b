"""The upkeep of one group in a member: it looks at the disk, and lets the leader do its duties.

Owns the loop and how often it looks: every UPKEEP_SECONDS, sooner while the disk is low or a duty
has a shorter period. Not owned: what the duties are (`group.duties`), what a full disk means
(`dledger.log`).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from dledger.types import DiskRoom
from dledger_broker.group.duty import Duty, Look
from dledger_broker.group.group_view import GroupView
from dledger_broker.process.logs import Quiet
from dledger_proto.errors import DledgerError

UPKEEP_SECONDS: Final = 5.0
UPKEEP_SECONDS_LOW: Final = 1.0
"""While the disk is low: how soon the member sees that others made room. What is left when the log
has allocated more for itself, the log measures at once."""
_DISK_LINES: Final = {
    DiskRoom.ENOUGH: "disk has room again",
    DiskRoom.LOW: "disk is low: only writes that free space are accepted",
    DiskRoom.FULL: "disk is full: all writes are refused",
}


class Upkeep:
    """The upkeep of one group."""

    def __init__(
        self, view: GroupView, duties: Sequence[Duty], known_index: Callable[[], int]
    ) -> None:
        self._view = view
        self._duties = duties
        self._known_index = known_index
        self._room = DiskRoom.ENOUGH
        self._quiet = Quiet(view.clock)
        self._log = structlog.get_logger().bind(group=view.names.group, member=view.names.member)

    async def run(self) -> None:
        """Go on until cancelled."""
        shortest = min(duty.period for duty in self._duties)
        while True:
            look = UPKEEP_SECONDS if self._room is DiskRoom.ENOUGH else UPKEEP_SECONDS_LOW
            await asyncio.sleep(min(look, shortest))
            await self._look_at_disk()
            for duty in self._duties:
                await self._do(duty)

    async def _look_at_disk(self) -> None:
        """Measure free space; log a line when it is another than before."""
        loop, view = asyncio.get_running_loop(), self._view
        try:
            room = await loop.run_in_executor(view.pool, view.log.space.check)
        except OSError as error:
            view.host.failed(error)  # the reserve can't be kept (I16)
            return
        if room is not self._room:
            self._log.warning(
                _DISK_LINES[room],
                term=view.host.leadership.term,
                snapshots_keep_space=view.keeps_snapshots(),
            )
        self._room = room

    async def _do(self, duty: Duty) -> None:
        """Propose what is due, and the rest of it."""
        view = self._view
        leads_term = view.host.leadership.term if view.leads else None
        now = view.clock.monotonic()
        time_ms, known_index = view.host.time_ms, self._known_index()
        # While a snapshot keeps segments, deleting them early makes no room.
        is_of_use = self._room is not DiskRoom.ENOUGH and not view.keeps_snapshots()
        oldest = view.log.oldest_segment if is_of_use else None
        low_below = None if oldest is None else int(oldest[0])
        look = Look(leads_term, known_index, view.machine.queries, now, time_ms, low_below)
        command = duty.due(look)
        while command is not None:
            try:
                result = await view.commands.propose(command)
            except DledgerError as error:
                self._tell(duty, error)
                command = duty.refused(error)
            else:
                self._log.info("duty of the leader done", duty=duty.name, count=duty.count(result))
                command = duty.rest(result)

    def _tell(self, duty: Duty, error: DledgerError) -> None:
        left_out = self._quiet.admit(duty.name)
        if left_out is not None:
            self._log.info(
                "duty of the leader not done",
                duty=duty.name,
                reason=str(error),
                others_since=left_out,
            )
