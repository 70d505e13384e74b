"""The leader sends what schedules are due (D23).

Owns: when to look at which schedule, and the batch of an occurrence. Not owned: which occurrence is
stored: apply alone decides (`dledger.state.timers.schedule_table`). What is proposed a second time
is stored once.

The loop keeps one moment for each schedule: when to look at it again. It sleeps until the first of
them, at most `firing.LOOK_SECONDS`, because the group's time may jump. While there is no schedule
it sleeps until one is set. What a queue does not take is not proposed: it would fill the log.
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
from dledger_broker.append.write_rule import WriteRule
from dledger_broker.group.group_view import GroupView
from dledger_broker.process.logs import Quiet
from dledger_broker.timers.cron import due_time
from dledger_broker.timers.firing import seconds_until, woken
from dledger_proto.batch.codec import EPOCH_OF_SCHEDULES, ProducerStamp, parse_header, restamp
from dledger_proto.errors import DledgerError, Outcome
from dledger_proto.limits import SCHEDULES_PER_PAGE_MAX

SENT_AT_ONCE_MAX: Final = 64
"""Occurrences in one proposal: 4 MiB at most."""
AGAIN_MS: Final = 1_000
"""How soon a schedule is looked at again that could not be proposed."""
REFUSED_MS: Final = 10_000
"""The same of one that its queue does not take, or apply."""
TURN_SECONDS: Final = 0.005
"""How long cron expressions may be read before other tasks of the event loop have their turn."""


class ScheduleSending:
    """Sends what is due in one group while this member leads it."""

    def __init__(self, view: GroupView) -> None:
        self._view = view
        self._queries: Queries = view.machine.queries
        self._log = structlog.get_logger().bind(group=view.names.group, member=view.names.member)
        self._quiet = Quiet(view.clock)
        self._rule = WriteRule(view)
        self._looks: list[tuple[int, bytes, str]] = []
        """A heap: when to look, at the schedule of which topic and name."""
        self._known = -1
        """The changes of schedules that `_looks` is of; -1: of none."""
        self._wake = asyncio.Event()
        view.machine.events.subscribe(self._applied)
        view.host.watch_leadership(lambda _: self._wake.set())

    def _applied(self, _applied: Applied) -> None:
        if self._view.leads and self._queries.schedule_changes != self._known:
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
                seconds = seconds_until(self._looks[0][0], self._view.now_ms)
            if seconds == 0:
                await self._look()
            else:
                await woken(self._wake, seconds)

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
        now_ms = self._view.now_ms
        clock = self._view.clock
        until = clock.monotonic() + TURN_SECONDS
        due: list[tuple[Schedule, int]] = []
        while self._looks and self._looks[0][0] <= now_ms and len(due) < SENT_AT_ONCE_MAX:
            _, topic_id, name = heappop(self._looks)
            schedule = self._queries.schedule(topic_id, name)
            topic = self._queries.topic_by_id(topic_id)
            if schedule is not None and topic is not None and not topic.deleted:
                self._note(schedule, now_ms, due)
            if clock.monotonic() >= until:
                break
        if due:
            await self._send(due, now_ms)
        else:
            await asyncio.sleep(0)

    def _note(self, schedule: Schedule, now_ms: int, due: list[tuple[Schedule, int]]) -> None:
        """Note what to do about a schedule: when to look at it, or that it is due."""
        try:
            due_ms = due_time(schedule.cron, schedule.time_zone, schedule.last_due_ms, now_ms)
        except DledgerError as error:  # set by a member that knows more time zones
            self._again(schedule, now_ms + REFUSED_MS, error)
            return
        if due_ms > now_ms:
            heappush(self._looks, (due_ms, schedule.topic_id, schedule.name))
            return
        refusal = self._rule.refusal_of_schedules(parse_header(schedule.batch))
        if refusal is None:
            due.append((schedule, due_ms))
        else:
            self._again(schedule, now_ms + REFUSED_MS, refusal)

    async def _send(self, due: list[tuple[Schedule, int]], now_ms: int) -> None:
        batches = [occurrence(schedule, due_ms) for schedule, due_ms in due]
        settled = await self._view.host.propose(EntryKind.BATCHES, batches)
        if settled.outcome is not Outcome.STORED:
            error = DledgerError(settled.code, settled.detail)
            for schedule, _ in due:
                self._again(schedule, now_ms + AGAIN_MS, error)
            return
        for (schedule, _), result in zip(due, settled.results, strict=True):
            if isinstance(result, Refused):
                refusal = DledgerError(result.code, result.detail)
                self._again(schedule, now_ms + REFUSED_MS, refusal)
            else:
                heappush(self._looks, (now_ms, schedule.topic_id, schedule.name))

    def _again(self, schedule: Schedule, look_ms: int, error: DledgerError) -> None:
        heappush(self._looks, (look_ms, schedule.topic_id, schedule.name))
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
