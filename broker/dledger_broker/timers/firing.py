"""A duty with a loop of its own: the leader fires timers when they are due (D23).

Owns: when to look, and what to propose. Not owned: what fires (`dledger.state.timers`): apply alone
decides, by the stamps of entries. While no timer waits the loop sleeps until one is set, so an idle
group costs nothing. While timers wait it sleeps until the first is due, at most LOOK_SECONDS: the
group's time may jump. A timer that is set meanwhile and due earlier wakes it. Timers that are due
one after the other are gathered: the loop proposes once in GATHER_SECONDS, unless more are due than
one command fires. While proposals are refused, as when the disk is low, the pauses between them
grow to REST_SECONDS_MAX.
"""

import asyncio
from typing import Final

import structlog

from dledger.state.events import Applied
from dledger.state.queries import Queries
from dledger.state.timers.commands import FIRED_AT_ONCE_MAX, FireTimers
from dledger_broker.group.group_view import GroupView
from dledger_broker.process.logs import Quiet
from dledger_proto.errors import DledgerError

LOOK_SECONDS: Final = 1.0
"""The longest sleep while timers wait."""
LATE_SECONDS: Final = 0.002
"""How long after the due time the loop wakes at least: stamps are whole milliseconds."""
GATHER_SECONDS: Final = 0.02
"""How long after a proposal the next one follows at least. An entry costs every member, whatever it
holds. A timer that is due after a pause is fired at once."""
REST_SECONDS: Final = 0.05
"""How soon a proposal is repeated that was refused, or fired nothing that is due. Each further one
waits twice as long."""
REST_SECONDS_MAX: Final = 5.0
LATE_TOLD_MS: Final = 1_000
"""Timers that fire so late are told of: nobody led, or proposals were refused."""


def seconds_until(due_ms: int, now_ms: int) -> float:
    """Return how long to sleep until a timer is due; 0: it is. Pure."""
    if due_ms <= now_ms:
        return 0.0
    return min((due_ms - now_ms) / 1_000 + LATE_SECONDS, LOOK_SECONDS)


def rest_after(failed: int) -> float:
    """Return how long to rest after so many proposals in a row that fired nothing. Pure."""
    return min(REST_SECONDS * (1 << min(failed - 1, 10)), REST_SECONDS_MAX)


async def woken(wake: asyncio.Event, seconds: float | None) -> None:
    """Wait for an event, at most so long; None: without end."""
    try:
        async with asyncio.timeout(seconds):
            await wake.wait()
    except TimeoutError:
        return


class TimerFiring:
    """Fires the timers of one group while this member leads it."""

    def __init__(self, view: GroupView) -> None:
        self._view = view
        self._queries: Queries = view.machine.queries
        self._log = structlog.get_logger().bind(group=view.names.group, member=view.names.member)
        self._quiet = Quiet(view.clock)
        self._failed = 0
        """Proposals in a row that fired nothing."""
        self._gather_until = 0.0
        """Until then, by the monotonic clock, what becomes due is gathered."""
        self._wake = asyncio.Event()
        self._asleep_until_ms: int | None = None
        """The due time that the loop sleeps for; None: it waits for any timer."""
        view.machine.events.subscribe(self._applied)
        view.host.watch_leadership(lambda _: self._wake.set())

    def _applied(self, _applied: Applied) -> None:
        earliest = self._queries.earliest_due_ms
        if earliest is not None and (
            self._asleep_until_ms is None or earliest < self._asleep_until_ms
        ):
            self._wake.set()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            self._wake.clear()
            due_ms = self._queries.next_due_ms if self._view.leads else None
            self._asleep_until_ms = due_ms
            if due_ms is None:
                self._failed = 0
                if not self._view.leads:
                    self._asleep_until_ms = 0
                await self._wake.wait()
                continue
            now_ms = self._view.now_ms
            gather_seconds = self._gather_until - self._view.clock.monotonic()
            seconds = max(seconds_until(due_ms, now_ms), gather_seconds)
            if seconds > 0:
                await woken(self._wake, seconds)
            elif await self._fire(due_ms, now_ms):
                self._failed = 0
            else:
                self._failed += 1
                await woken(self._wake, rest_after(self._failed))

    async def _fire(self, due_ms: int, now_ms: int) -> bool:
        """Propose; False when nothing was fired."""
        began = self._view.clock.monotonic()
        try:
            fired = await self._view.commands.propose(FireTimers(now_ms, FIRED_AT_ONCE_MAX))
        except DledgerError as error:
            left_out = self._quiet.admit(error.code)
            if left_out is not None:
                self._log.warning("timers not fired", reason=str(error), others_since=left_out)
            return False
        if now_ms - due_ms > LATE_TOLD_MS:
            left_out = self._quiet.admit("late")
            if left_out is not None:
                self._log.warning("timers late", late_ms=now_ms - due_ms, others_since=left_out)
        if not fired.more:
            self._gather_until = began + GATHER_SECONDS
        return fired.count > 0 or fired.more
