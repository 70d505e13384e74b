"""The leader carries old records forward when that frees much more than it copies (D7)."""

from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from dledger.state.commands.command import Command
from dledger.state.queues.carry import END, CarryForward
from dledger.state.queues.trim import Trim
from dledger.state.results import Refused
from dledger.types import Position, Span
from dledger_broker.carrying import carrying as module
from dledger_broker.carrying.carrying import AGAIN_SECONDS, LOOK_SECONDS, Carrying
from dledger_broker.carrying.worth import Chance, Sealed, chances
from dledger_broker.group.group_view import GroupNames, GroupView
from dledger_broker.read.batches import DamagedBatch
from dledger_proto.errors import Code, DledgerError
from tests.unit.broker.inline import Inline
from tests.unit.broker.virtual_loop import VirtualLoop
from tests.unit.state.carry_kit import EntriesLog, bytes_at
from tests.unit.state.kit import TOPIC, Driven, batch, delayed, started

NAMES = GroupNames("c", "g1", "a", {}, {}, is_control=False)  # type: ignore[arg-type]
SEGMENT = 4_000
LOOK = LOOK_SECONDS + 1


class Segments(EntriesLog):
    """A log whose segments end at the first entry behind each SEGMENT bytes."""

    def __init__(self, driven: Driven) -> None:
        super().__init__(driven.log)
        self._driven = driven
        self.damaged = False
        self.space = SimpleNamespace(low=False, can_spare=lambda _: True)

    @property
    def first_position(self) -> int:
        ends = [end for end, _ in self._ends() if end <= self._driven.machine.head_needed()]
        return max(ends, default=0)

    @property
    def sealed_segments(self) -> list[tuple[int, int]]:
        return [each for each in self._ends() if each[0] > self.first_position]

    def _ends(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for entry in self._driven.log.entries:
            if entry.ref.position >= SEGMENT * (len(found) + 1):
                found.append((entry.ref.position, entry.ref.index - 1))
        return found

    def read_span(self, span: Span) -> bytes:
        if self.damaged:
            raise DamagedBatch("it is damaged")
        assert span.position >= self.first_position, "it was trimmed"
        return super().read_span(span)

    def path_of(self, position: Position) -> str:
        return f"segment of {position}"


@dataclass
class Leader:
    """The view of a leader."""

    driven: Driven = field(default_factory=started)
    loop: VirtualLoop = field(default_factory=VirtualLoop)
    names: GroupNames = NAMES
    leads: bool = True
    refused: Code | None = None
    proposed: list[CarryForward] = field(default_factory=list[CarryForward])
    failures: list[BaseException] = field(default_factory=list[BaseException])

    def __post_init__(self) -> None:
        self.machine = self.driven.machine
        self.log = Segments(self.driven)
        self.pool = Inline()
        self.host = SimpleNamespace(leadership=SimpleNamespace(term=1), failed=self.failures.append)
        self.clock = self.loop
        self.commands = self
        self.carrying = Carrying(cast("GroupView", self))

    async def propose(self, command: Command[Any]) -> Any:
        assert isinstance(command, CarryForward)
        self.proposed.append(command)
        if self.refused is not None:
            raise DledgerError(self.refused, "no")
        result = self.driven.one(command)
        self.driven.save()
        if isinstance(result, Refused):
            raise DledgerError(result.code, result.detail)
        return result

    def close(self) -> None:
        self.loop.close()

    def run(self, seconds: float = LOOK) -> None:
        self.loop.run_for(seconds, self.carrying.run())

    def fill(self, size: int, *, keep: int = 0) -> None:
        """Write so many bytes into queue 0, and trim the queue up to its last `keep` batches."""
        stop = self.driven.log.position + size
        while self.driven.log.position < stop:
            self.driven.append(batch(body=bytes(200)))
        end = self.driven.machine.queries.queue_bounds(TOPIC, 0)[1]
        self.driven.one(Trim(TOPIC, 0, max(end - keep, 0)))
        self.driven.save()

    def head(self) -> int:
        return self.driven.machine.head_needed()


def test_one_old_record_keeps_no_segment() -> None:
    with closing(Leader()) as leader:
        old = batch(queue=1, body=b"old")
        leader.driven.append(old)
        leader.fill(10 * SEGMENT)
        newest = leader.log.sealed_segments[-1][0]
        assert leader.head() < SEGMENT
        leader.run()
        assert leader.head() == newest
        (span,) = leader.machine.queries.spans(TOPIC, 1, 0, 1)
        assert bytes_at(leader.driven, span.place, span.size) == old
        assert len(leader.proposed) == 1


def test_a_timer_of_weeks_keeps_no_segment() -> None:
    with closing(Leader()) as leader:
        leader.driven.append(delayed(1 << 30, queue=2))
        leader.fill(10 * SEGMENT)
        leader.run()
        assert leader.head() > 9 * SEGMENT


@pytest.mark.parametrize("alive", [0.2, 0.3])
def test_only_a_small_part_is_copied(alive: float) -> None:
    """A quarter of what a pass frees may be copied."""
    with closing(Leader()) as leader:
        before = leader.driven.log.position
        while leader.driven.log.position - before < alive * 10 * SEGMENT:
            leader.driven.append(batch(queue=1, body=bytes(2_000)))
        leader.fill(int((1 - alive) * 10 * SEGMENT))
        leader.run()
        assert bool(leader.proposed) == (alive < 0.25)


def test_what_is_not_worth_it_is_counted_again_later() -> None:
    with closing(Leader()) as leader:
        for _ in range(20):
            leader.driven.append(batch(queue=1, body=bytes(400)))
        leader.fill(0)
        counted: list[int] = []
        roots = leader.machine.queries.roots
        leader.machine.queries.roots = (  # type: ignore[method-assign]
            lambda *args: counted.append(1) or roots(*args)  # type: ignore[func-returns-value]
        )
        leader.run(AGAIN_SECONDS)
        once = len(counted)
        assert once
        leader.run(AGAIN_SECONDS)
        assert len(counted) == 2 * once


def test_a_disk_without_room_for_the_copies_begins_no_pass() -> None:
    with closing(Leader()) as leader:
        leader.driven.append(batch(queue=1))
        leader.fill(10 * SEGMENT)
        leader.log.space.can_spare = lambda size: size < 100
        leader.run()
        assert leader.proposed == []
        leader.log.space.can_spare = lambda _: True
        leader.log.space.low = True
        leader.run(AGAIN_SECONDS)
        assert leader.proposed == []
        leader.log.space.low = False
        leader.run()
        assert leader.head() > 9 * SEGMENT


def test_a_pass_takes_many_commands_and_another_leader_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ROOTS_PER_COMMAND", 3)
    with closing(Leader()) as leader:
        for at in range(20):
            leader.driven.append(batch(queue=at % 4, body=b"old"))
        leader.fill(20 * SEGMENT, keep=0)
        propose = leader.propose

        async def twice(command: Command[Any]) -> Any:
            result = await propose(command)
            leader.leads = len(leader.proposed) < 2
            return result

        leader.propose = twice  # type: ignore[method-assign]
        leader.run()
        carried = leader.machine.queries.carried
        assert carried.target, "half a pass"
        with closing(Leader(leader.driven)) as other:
            other.run()
            assert {command.target for command in other.proposed} == {carried.target}
            assert other.proposed[0].cursor == carried.cursor
            assert other.proposed[-1].until == END
            assert other.head() == carried.target


def test_a_refusal_is_said_and_the_pass_is_looked_at_again() -> None:
    with closing(Leader()) as leader, capture_logs() as lines:
        leader.driven.append(batch(queue=1))
        leader.fill(10 * SEGMENT)
        leader.refused = Code.BUSY
        leader.run()
        leader.refused = None
        leader.run()
        assert leader.head() > 9 * SEGMENT
    assert [line["event"] for line in lines] == [
        "old records not carried on",
        "old records carried forward",
    ]


def test_damage_ends_the_member_and_nothing_is_copied() -> None:
    with closing(Leader()) as leader:
        leader.driven.append(batch(queue=1))
        leader.fill(10 * SEGMENT)
        leader.log.damaged = True
        leader.run()
        assert leader.proposed == []
        assert isinstance(leader.failures[0], DamagedBatch)


def test_a_follower_copies_nothing() -> None:
    with closing(Leader(leads=False)) as leader:
        leader.driven.append(batch(queue=1))
        leader.fill(10 * SEGMENT)
        leader.run()
        assert leader.proposed == []


def test_a_group_goes_on_for_days_with_a_bounded_log() -> None:
    """Old records, timers, trims without end: the log stays small, and nothing is lost."""
    random = Random(7)
    with closing(Leader()) as leader:
        kept = [batch(queue=1, body=bytes((at,)) * 50) for at in range(8)]
        leader.driven.append(*kept)
        leader.driven.append(delayed(1 << 40, queue=2))
        for _ in range(40):
            leader.fill(random.randint(1, 4) * SEGMENT, keep=random.randint(0, 5))
            leader.run()
            assert leader.driven.log.position - leader.log.first_position < 12 * SEGMENT
        spans = leader.machine.queries.spans(TOPIC, 1, 0, 1 << 20)
        assert [bytes_at(leader.driven, span.place, span.size) for span in spans] == kept
        copied = sum(len(copy.batch) for each in leader.proposed for copy in each.copies)
        assert copied < leader.driven.log.position / 4


def test_targets_are_ends_of_applied_segments_above_the_head() -> None:
    sealed = [Sealed(end * 100, end * 10) for end in range(1, 9)]
    assert list(chances(0, sealed, 40, 75)) == [Chance(700, 175), Chance(300, 75), Chance(100, 25)]
    assert list(chances(0, sealed, 350, 80)) == [
        Chance(800, 125), Chance(500, 50), Chance(400, 25),
    ]  # fmt: skip
    assert list(chances(0, sealed, 800, 80)) == []
    assert list(chances(50, sealed[:1], 60, 80)) == [Chance(100, 12)]
    assert list(chances(0, [], 0, 80)) == []
