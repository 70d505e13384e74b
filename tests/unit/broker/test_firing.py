"""The leader fires timers by the time of its group, and rests while it may not (D23)."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

import pytest
from structlog.testing import capture_logs

from dledger.state.commands.command import Command
from dledger.state.timers.commands import FIRED_AT_ONCE_MAX, FireTimers
from dledger_broker.group.group_view import GroupNames, GroupView
from dledger_broker.process.logs import QUIET_SECONDS
from dledger_broker.timers.firing import (
    GATHER_SECONDS,
    LATE_SECONDS,
    REST_SECONDS_MAX,
    TimerFiring,
    rest_after,
)
from dledger_proto.errors import Code, DledgerError
from tests.unit.broker.virtual_loop import VirtualLoop
from tests.unit.state.groups_kit import with_group
from tests.unit.state.kit import TOPIC, Driven, delayed, started
from tests.unit.state.test_failures import FIRST, fail, ready

NAMES = GroupNames("c", "g1", "a", {}, {}, is_control=False)  # type: ignore[arg-type]
HOUR = 3_600_000


@dataclass
class Leader:
    """The view of a leader: its machine, the group's time, and what it may propose."""

    driven: Driven
    loop: VirtualLoop = field(default_factory=VirtualLoop)
    names: GroupNames = NAMES
    leads: bool = True
    ahead_ms: int = 0
    """How far its own wall clock is ahead of the group's."""
    refused: Code | None = None
    proposed: list[float] = field(default_factory=list[float])
    """When it proposed."""

    def __post_init__(self) -> None:
        self.machine = self.driven.machine
        self.host = self.commands = self
        self.clock = self
        self.first_ms = self.driven.log.time_ms

    def monotonic(self) -> float:
        return self.loop.monotonic()

    def wall_ms(self) -> int:
        return self.time_ms + self.ahead_ms

    @property
    def time_ms(self) -> int:
        return self.first_ms + int((self.loop.monotonic() - 100.0) * 1_000)

    @property
    def now_ms(self) -> int:
        return max(self.time_ms, self.machine.applied_time_ms)

    def watch_leadership(self, _tell: Callable[[object], None]) -> None:
        pass

    async def propose(self, command: Command[object]) -> object:
        assert isinstance(command, FireTimers)
        self.proposed.append(self.loop.monotonic())
        if self.refused is not None:
            raise DledgerError(self.refused, "no")
        return self.driven.one(command, self.time_ms)

    def close(self) -> None:
        self.loop.close()

    def fire(self, seconds: float) -> None:
        self.loop.run_for(seconds, TimerFiring(cast("GroupView", self)).run())


def retries(leader: Leader) -> int:
    return leader.driven.machine.queries.queue_bounds(b"B" * 16, 0)[1]


def test_a_timer_fires_by_the_groups_time_whatever_the_leaders_clock_says() -> None:
    """By a wall clock that is ahead it proposed twenty times a second, and nothing fired."""
    with closing(Leader(ready(FIRST), ahead_ms=HOUR)) as leader:
        fail(leader.driven, 0, delay_ms=60_000)
        leader.fire(59.0)
        assert not leader.proposed
        leader.fire(2.0)
        assert (len(leader.proposed), retries(leader)) == (1, 1)


def test_a_leader_that_is_refused_rests_longer_each_time() -> None:
    with closing(Leader(ready(FIRST), refused=Code.DISK_FULL)) as leader:
        fail(leader.driven, 0, delay_ms=100)
        with capture_logs() as logs:
            leader.fire(3 * QUIET_SECONDS)
        pauses = [after - before for before, after in pairwise(leader.proposed)]
        assert pauses[:3] == pytest.approx([rest_after(1), rest_after(2), rest_after(3)])
        assert pauses[-1] == pytest.approx(REST_SECONDS_MAX)
        assert len(leader.proposed) < 3 * QUIET_SECONDS / REST_SECONDS_MAX + 10
        assert len(logs) <= 4, logs
        assert logs[-1]["others_since"] > 0


def test_a_leader_that_may_propose_again_fires_within_its_rest() -> None:
    with closing(Leader(ready(FIRST), refused=Code.DISK_FULL)) as leader:
        fail(leader.driven, 0, delay_ms=100)
        leader.fire(60.0)
        leader.refused = None
        with capture_logs() as logs:
            leader.fire(REST_SECONDS_MAX)
        assert retries(leader) == 1
        (line,) = logs
        assert (line["event"], line["late_ms"] // 1_000 in range(59, 66)) == ("timers late", True)


def test_a_group_without_timers_proposes_nothing() -> None:
    with closing(Leader(with_group(FIRST))) as leader:
        leader.fire(60.0)
        assert not leader.proposed


def set_timers(driven: Driven, *after_ms: int) -> list[int]:
    """Set a timer of one record for each; return when they are due."""
    dues = [driven.log.time_ms + each for each in after_ms]
    driven.append(*map(delayed, dues))
    return dues


def lateness(driven: Driven, dues: list[int]) -> list[int]:
    """Return how long after its due time each timer fired, by the stamps, in milliseconds."""
    spans = [driven.machine.queries.lookup_offset(TOPIC, 0, at) for at in range(len(dues))]
    return [span.store_time_ms - due for span, due in zip(spans, sorted(dues), strict=True)]


def test_timers_that_are_due_one_after_the_other_are_gathered() -> None:
    """Each entry costs all members; one for each few timers cost more than a core."""
    with closing(Leader(started())) as leader:
        dues = set_timers(leader.driven, *range(1_000, 2_000))
        leader.fire(3.0)
        pauses = [after - before for before, after in pairwise(leader.proposed)]
        assert min(pauses) >= GATHER_SECONDS - 1e-9
        assert len(leader.proposed) <= 1 / GATHER_SECONDS + 1
        late = lateness(leader.driven, dues)
        assert min(late) >= 0
        assert max(late) <= 1_000 * (GATHER_SECONDS + LATE_SECONDS)


def test_a_timer_that_is_due_after_a_pause_waits_for_no_other() -> None:
    with closing(Leader(started())) as leader:
        apart_ms = int(1_000 * GATHER_SECONDS) + 5
        dues = set_timers(leader.driven, *range(1_000, 3_000, apart_ms))
        leader.fire(4.0)
        assert len(leader.proposed) == len(dues)
        assert min(lateness(leader.driven, dues)) >= 0
        assert max(lateness(leader.driven, dues)) <= 1_000 * LATE_SECONDS


def test_a_backlog_is_fired_without_a_pause() -> None:
    with closing(Leader(started())) as leader:
        set_timers(leader.driven, *[100] * (2 * FIRED_AT_ONCE_MAX + 1))
        leader.fire(1.0)
        assert len(leader.proposed) == 3
        assert len(set(leader.proposed)) == 1, leader.proposed
