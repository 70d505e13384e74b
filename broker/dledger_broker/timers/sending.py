"""The leader sends what schedules are due (D23).

Owns: when to look at which schedule, and the batch of an occurrence. Not owned: which occurrence is
stored: apply alone decides (`dledger.state.timers.schedule_table`). What is proposed a second time
is stored once.

The loop keeps one moment for each schedule: when to look at it again. It sleeps until the first of
them, at most LOOK_SECONDS, because the group's time may jump. While there is no schedule it sleeps
until one is set. A schedule that cannot be sent is looked at again after AGAIN_MS. It is due at the
latest time that is past, so a topic that takes nothing for an hour gets one message afterwards.
"""

import asyncio
from heapq import heapify, heappop, heappush
from typing import Final

import structlog

from dledger.state.events import Applied
from dledger.state.queries import Queries
from dledger.state.results import Refused
from dledger.state.values import Schedule
from dledger.types import EntryKind
from dledger_broker.group.group_view import GroupView
from dledger_broker.process.logs import Quiet
from dledger_broker.timers.cron import due_time
from dledger_broker.timers.firing import seconds_until
from dledger_proto.batch.codec import EPOCH_OF_SCHEDULES, ProducerStamp, restamp
from dledger_proto.errors import Code, DledgerError, Outcome
from dledger_proto.limits import SCHEDULES_PER_PAGE_MAX

SENT_AT_ONCE_MAX: Final = 64
"""Occurrences in one proposal: 4 MiB at most."""
AGAIN_MS: Final = 1_000
"""How soon a schedule that could not be sent is looked at again."""


class ScheduleSending:
    """Sends what is due in one group while this member leads it."""

    def __init__(self, view: GroupView) -> None:
        self._view = view
        self._queries: Queries = view.machine.queries
        self._log = structlog.get_logger().bind(group=view.names.group, member=view.names.member)
        self._quiet = Quiet(view.clock)
        self._looks: list[tuple[int, bytes, str]] = []
        """A heap: when to look, at the schedule of which topic and name."""
        self._known = -1
        """The changes of schedules that `_looks` is of; -1: of none."""
        self._wake = asyncio.Event()
        view.machine.events.subscribe(self._applied)
        view.host.watch_leadership(lambda _: self._wake.set())

    def _applied(self, _applied: Applied) -> None:
        if self._queries.schedule_changes != self._known:
            self._wake.set()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            self._wake.clear()
            if not self._view.leads:
                self._known = -1
            elif self._known != self._queries.schedule_changes:
                await self._load()
            seconds: float | None = None
            if self._looks and self._view.leads:
                seconds = seconds_until(self._looks[0][0], self._now_ms())
            if seconds == 0:
                await self._look()
            else:
                await self._sleep(seconds)

    def _now_ms(self) -> int:
        return max(self._view.host.time_ms or 0, self._view.machine.applied_time_ms)

    async def _sleep(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _load(self) -> None:
        """Look at every schedule soon: one was set or deleted, or this member leads anew."""
        self._known = self._queries.schedule_changes
        looks: list[tuple[int, bytes, str]] = []
        cursor = b""
        while True:
            page, cursor = self._queries.schedules(b"", cursor, SCHEDULES_PER_PAGE_MAX)
            looks += [(0, each.topic_id, each.name) for each in page]
            if not cursor:
                break
            await asyncio.sleep(0)
        heapify(looks)
        self._looks = looks

    async def _look(self) -> None:
        """Propose what is due, and note when to look again."""
        now_ms = self._now_ms()
        due: list[tuple[Schedule, int]] = []
        looked_at = 0
        while self._looks and self._looks[0][0] <= now_ms and len(due) < SENT_AT_ONCE_MAX:
            _, topic_id, name = heappop(self._looks)
            schedule = self._queries.schedule(topic_id, name)
            looked_at += 1
            topic = self._queries.topic_by_id(topic_id)
            if schedule is not None and topic is not None and not topic.deleted:
                self._note(schedule, now_ms, due)
            if looked_at == SCHEDULES_PER_PAGE_MAX:
                break
        if due:
            await self._send(due, now_ms)
        else:
            await asyncio.sleep(0)

    def _note(self, schedule: Schedule, now_ms: int, due: list[tuple[Schedule, int]]) -> None:
        try:
            due_ms = due_time(schedule.cron, schedule.time_zone, schedule.last_due_ms, now_ms)
        except DledgerError as error:  # set by a member that knows more time zones
            self._again(schedule, now_ms, error)
            return
        if due_ms <= now_ms:
            due.append((schedule, due_ms))
        else:
            heappush(self._looks, (due_ms, schedule.topic_id, schedule.name))

    async def _send(self, due: list[tuple[Schedule, int]], now_ms: int) -> None:
        batches = [occurrence(schedule, due_ms) for schedule, due_ms in due]
        settled = await self._view.host.propose(EntryKind.BATCHES, batches)
        if settled.outcome is not Outcome.STORED:
            error = DledgerError(settled.code, settled.detail)
            for schedule, _ in due:
                self._again(schedule, now_ms, error)
            return
        for (schedule, _), result in zip(due, settled.results, strict=True):
            if isinstance(result, Refused) and result.code is not Code.DUPLICATE:
                self._again(schedule, now_ms, DledgerError(result.code, result.detail))
            else:
                heappush(self._looks, (now_ms, schedule.topic_id, schedule.name))

    def _again(self, schedule: Schedule, now_ms: int, error: DledgerError) -> None:
        heappush(self._looks, (now_ms + AGAIN_MS, schedule.topic_id, schedule.name))
        left_out = self._quiet.admit(error.code)
        if left_out is not None:
            self._log.warning(
                "schedule not sent", schedule=schedule.name, topic_id=schedule.topic_id.hex(),
                reason=str(error), others_since=left_out,
            )  # fmt: skip


def occurrence(schedule: Schedule, due_ms: int) -> bytes:
    """Return what a schedule sends at a time."""
    stamp = ProducerStamp(schedule.schedule_id, EPOCH_OF_SCHEDULES, due_ms)
    return restamp(schedule.batch, stamp, base_number=due_ms, base_time_ms=due_ms)
