"""The leader sends what schedules are due, by the time of its group (D23)."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import cast

from structlog.testing import capture_logs

from dledger.raft.api import Leadership
from dledger.state.queries import Queries
from dledger.state.results import ScheduleSet
from dledger.state.timers.schedules import DeleteSchedule, SetSchedule
from dledger.state.topics.commands import DeleteTopic, UpdateTopic
from dledger.state.values import PERMISSION_READ
from dledger.types import EntryKind, Settled
from dledger_broker.append.write_rule import WriteRule
from dledger_broker.group.group_view import GroupNames, GroupView
from dledger_broker.timers.sending import ScheduleSending, occurrence
from dledger_proto.batch.codec import parse_header
from dledger_proto.errors import Code, Outcome
from dledger_proto.limits import RETENTION_BY_KEY, RETENTION_DEFAULT
from tests.unit.broker.virtual_loop import VirtualLoop
from tests.unit.state.kit import TOPIC, Driven, batch, started

NAMES = GroupNames("c", "g1", "a", {}, {}, is_control=False)  # type: ignore[arg-type]
MINUTE = 60_000


@dataclass
class Leader:
    """The view of a leader: its machine, the group's time, and what it may propose."""

    driven: Driven = field(default_factory=started)
    loop: VirtualLoop = field(default_factory=VirtualLoop)
    names: GroupNames = NAMES
    leads: bool = True
    refused: Code | None = None
    proposed: list[int] = field(default_factory=list[int])
    """The time of each occurrence that was proposed."""
    taken: list[int] = field(default_factory=list[int])
    """Of each that apply stored."""
    _watchers: list[Callable[[Leadership | None], None]] = field(
        default_factory=list[Callable[[Leadership | None], None]]
    )

    def __post_init__(self) -> None:
        self.machine = self.driven.machine
        self.host = self.clock = self
        self.driven.idle()
        self.first_ms = self.driven.log.time_ms

    def monotonic(self) -> float:
        return self.loop.monotonic()

    @property
    def time_ms(self) -> int:
        return self.first_ms + int((self.loop.monotonic() - 100.0) * 1_000)

    @property
    def now_ms(self) -> int:
        return max(self.time_ms, self.machine.applied_time_ms)

    def watch_leadership(self, tell: Callable[[Leadership | None], None]) -> None:
        self._watchers.append(tell)

    async def propose(self, kind: EntryKind, payloads: Sequence[bytes]) -> Settled:
        self.proposed += [parse_header(payload).base_number for payload in payloads]
        if self.refused is not None:
            return Settled(Outcome.NOT_STORED, self.refused, "no")
        results = self.driven.apply(kind, payloads, self.time_ms)
        self.taken = [
            parse_header(bytes(payload)).base_number
            for entry in self.driven.log.entries
            if entry.kind is EntryKind.BATCHES
            for payload in entry.payloads
        ]
        return Settled(Outcome.STORED, Code.OK, results=results)

    def close(self) -> None:
        self.loop.close()

    def set(self, name: str = "s", cron: str = "* * * * *") -> None:
        result = self.driven.one(SetSchedule(name, cron, "UTC", batch()), self.time_ms)
        assert isinstance(result, ScheduleSet)

    def run(self, seconds: float) -> None:
        self.loop.run_for(seconds, ScheduleSending(cast("GroupView", self)).run())

    def stored(self) -> int:
        return self.driven.machine.queries.queue_bounds(TOPIC, 0)[1]


def test_each_time_gives_one_message() -> None:
    with closing(Leader()) as leader:
        leader.set()
        leader.run(600.0)
        assert leader.stored() == 10
        assert leader.taken == [MINUTE * n for n in range(1, 11)]
        assert leader.proposed == leader.taken


def test_a_leader_goes_on_where_the_one_before_was() -> None:
    with closing(Leader()) as leader:
        leader.set()
        for _ in range(30):
            leader.run(20.5)
        assert leader.taken == [MINUTE * n for n in range(1, 11)]


def test_a_member_that_does_not_lead_sends_nothing() -> None:
    with closing(Leader(leads=False)) as leader:
        leader.set()
        leader.run(600.0)
        assert not leader.proposed


def test_times_that_nobody_led_give_one_message() -> None:
    with closing(Leader()) as leader:
        leader.set()
        leader.leads = False
        leader.run(330.0)
        leader.leads = True
        leader.run(60.0)
        assert leader.taken == [5 * MINUTE, 6 * MINUTE]


def test_a_refused_proposal_is_tried_again_and_stored_once() -> None:
    with closing(Leader(refused=Code.DISK_FULL)) as leader:
        leader.set()
        with capture_logs() as logs:
            leader.run(90.0)
        assert leader.proposed[:2] == [MINUTE, MINUTE]
        assert len(leader.proposed) <= 35, "about one a second"
        assert [line["event"] for line in logs] == ["schedule not sent"] * len(logs)
        assert len(logs) <= 4
        leader.refused = None
        leader.run(60.0)
        assert leader.taken == [MINUTE, 2 * MINUTE]


def test_a_schedule_that_was_set_meanwhile_is_sent_and_a_deleted_one_is_not() -> None:
    with closing(Leader()) as leader:
        sending = ScheduleSending(cast("GroupView", leader))
        leader.loop.run_for(30.0, sending.run())
        leader.loop.call_later(5.0, lambda: leader.set("late", "*/10 * * * * *"))
        leader.loop.run_for(35.0, sending.run())
        count = leader.stored()
        assert count == 3
        leader.driven.one(DeleteSchedule(TOPIC, "late"), leader.time_ms)
        leader.loop.run_for(60.0, sending.run())
        assert leader.stored() == count


def test_the_schedule_of_a_deleted_topic_is_left_alone() -> None:
    with closing(Leader()) as leader:
        leader.set()
        leader.driven.one(DeleteTopic(TOPIC), leader.time_ms)
        leader.run(300.0)
        assert not leader.proposed


def test_what_a_queue_does_not_take_is_not_proposed_and_sent_once_it_takes_it() -> None:
    """Proposed again and again it would fill the log."""
    with closing(Leader()) as leader:
        leader.set()
        leader.driven.one(UpdateTopic(TOPIC, permission=PERMISSION_READ), leader.time_ms)
        leader.run(600.0)
        assert not leader.proposed
        leader.driven.one(UpdateTopic(TOPIC, permission=6), leader.time_ms)
        leader.run(30.0)
        assert leader.taken == [10 * MINUTE]


def test_nothing_is_proposed_for_a_topic_that_became_a_compacted_one() -> None:
    with closing(Leader()) as leader:
        leader.set()
        leader.driven.one(UpdateTopic(TOPIC, retention_time_ms=(RETENTION_BY_KEY,)), leader.time_ms)
        leader.run(600.0)
        assert not leader.proposed
        leader.driven.one(
            UpdateTopic(TOPIC, retention_time_ms=(RETENTION_DEFAULT,)), leader.time_ms
        )
        leader.run(30.0)
        assert leader.taken == [10 * MINUTE]


def test_what_apply_refuses_is_not_proposed_without_end() -> None:
    with closing(Leader()) as leader:
        leader.set(cron="* * * * * *")
        sending = ScheduleSending(cast("GroupView", leader))
        known = sending._queries

        class Behind:
            """Queries of a state that does not move on."""

            def __getattr__(self, name: str) -> object:
                return getattr(known, name)

            def schedule(self, topic_id: bytes, name: str) -> object:
                found = known.schedule(topic_id, name)
                assert found is not None
                return found._replace(last_due_ms=0)

        sending._queries = cast("Queries", Behind())
        leader.loop.run_for(60.0, sending.run())
        assert len(leader.proposed) <= 60 + 7


def test_a_follower_is_not_woken_by_every_entry() -> None:
    with closing(Leader(leads=False)) as leader:
        leader.set()
        sending = ScheduleSending(cast("GroupView", leader))
        leader.loop.run_for(1.0, asyncio.wait_for(sending.run(), 3.0))
        sending._wake.clear()
        leader.driven.append(batch())
        assert not sending._wake.is_set()


def test_many_schedules_of_one_time_are_sent_in_few_entries() -> None:
    with closing(Leader()) as leader:
        for number in range(100):
            leader.set(f"s{number}")
        before = len(leader.driven.log.entries)
        leader.run(61.0)
        assert leader.stored() == 100
        assert len(leader.driven.log.entries) - before == 2


def test_a_client_cannot_send_in_the_name_of_a_schedule() -> None:
    with closing(Leader()) as leader:
        leader.set()
        schedule = leader.driven.machine.queries.schedule(TOPIC, "s")
        assert schedule is not None
        rule = WriteRule(cast("GroupView", leader))
        assert rule.refusal(parse_header(schedule.batch)) is None
        refusal = rule.refusal(parse_header(occurrence(schedule, MINUTE)))
        assert refusal is not None
        assert refusal.code is Code.MESSAGE_ILLEGAL
