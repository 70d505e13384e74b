"""Progress against a small model: each record is in exactly one place, whatever is said when.

Goal: of every record of a queue it holds at any time that it waits, is done by a commit, waits for
a retry, or is dead, and never two of these; the floor goes back by resets only; nothing comes back
that a commit covered. Method: random claims, commits, failures, copies of them, resets, and firing.
"""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.state.commands.command import Command
from dledger.state.commands.registry import encode
from dledger.state.consumers.settings import ConsumeOrder, StartFrom
from dledger.state.offsets import CommitOffset, DoneRange
from dledger.state.progress.claims import ClaimQueues, GrantedQueue, ReleaseQueues, WantedQueue
from dledger.state.progress.commits import CommitOffsets
from dledger.state.progress.failures import FailedRecord, FailRecords
from dledger.state.results import FailuresStored, OffsetsCommitted, QueuesClaimed, Result
from dledger.state.timers.commands import FireTimers
from dledger.types import EntryKind
from dledger_proto.errors import Code
from tests.sim.invariants.base import Facts, MemberFacts
from tests.sim.invariants.delivery.progress import ProgressHistory
from tests.sim.invariants.violation import Violation
from tests.unit.state.groups_kit import BILLING, DEAD_LETTERS, SETTINGS, with_group
from tests.unit.state.kit import TOPIC, Driven, batch

RECORDS = 12
OFFSETS = st.integers(0, RECORDS - 1)
EPOCHS = st.integers(1, 4)
STEPS = st.one_of(
    st.tuples(st.just("claim"), EPOCHS, st.booleans()),
    st.tuples(st.just("release"), EPOCHS, st.booleans()),
    st.tuples(st.just("commit"), st.integers(0, RECORDS), OFFSETS, st.integers(0, 3)),
    st.tuples(st.just("fail"), OFFSETS, st.sampled_from([-2, -1, 0]), st.booleans()),
    st.tuples(st.just("reset"), st.integers(0, RECORDS)),
    st.tuples(st.just("pass"), st.integers(1, 2_000)),
)


@dataclass
class Model:
    """The queue as the model knows it, and the machine under test."""

    driven: Driven
    done: set[int] = field(default_factory=set)
    """By commits and by failures."""
    committed: set[int] = field(default_factory=set)
    retried: int = 0
    dead: int = 0
    floor: int = 0
    epoch: int = 0
    consumer: str = "a"
    resets: int = 0
    is_held: bool = False
    attempts: dict[int, int] = field(default_factory=dict)
    history: ProgressHistory = field(default_factory=lambda: ProgressHistory(Facts(("m",))))

    def claim(self, epoch: int, is_a: bool) -> None:
        name = "a" if is_a else "b"
        row = self.driven.machine.queries.claimed("billing", TOPIC, 0)
        is_over = row is not None and row.lease_until_ms <= self.driven.log.time_ms
        over = row.leased_at if row is not None and is_over else 0
        command = ClaimQueues("billing", name, (WantedQueue(TOPIC, 0, epoch, over),))
        result = self.one(command)
        assert isinstance(result, QueuesClaimed)
        code = result.rows[0].code
        if epoch < self.epoch:
            assert code is Code.FENCED
        if code is Code.OK:
            self.epoch, self.consumer, self.is_held = epoch, name, True

    def release(self, epoch: int, is_a: bool) -> None:
        name = "a" if is_a else "b"
        self.one(ReleaseQueues("billing", name, (GrantedQueue(TOPIC, 0, epoch),)))
        if (epoch, name) == (self.epoch, self.consumer):
            self.is_held = False

    def commit(self, offset: int, first: int, size: int) -> None:
        done = (DoneRange(first, min(first + size, RECORDS)),) if size else ()
        item = CommitOffset(TOPIC, 0, offset, "", self.epoch, self.resets, done)
        result = self.one(CommitOffsets("billing", (item,), member_id=self.consumer))
        assert isinstance(result, OffsetsCommitted)
        if result.codes[0] is Code.OK:
            covered = {*range(offset), *(range(done[0].first, done[0].end) if done else ())}
            self.done |= covered
            self.committed |= covered
        else:
            assert not self.is_held or not self.epoch, result

    def fail(self, offset: int, delay_ms: int, twice: bool) -> None:
        known = self.attempts.get(offset, 0)
        failed = FailedRecord(TOPIC, 0, self.epoch, self.resets, offset, known, delay_ms, "bad")
        command = FailRecords("billing", self.consumer, (failed,))
        result = self.one(command)
        assert isinstance(result, FailuresStored)
        row = result.rows[0]
        if twice:
            self.one(command)
        if row.code is not Code.OK or offset in self.done:
            return
        is_ordered = self.driven.machine._state.topics.live(BILLING).settings[0].order
        if row.is_dead:
            self.dead += 1
            self.done.add(offset)
        elif is_ordered:
            assert row.attempts == known + 1
            self.attempts[offset] = row.attempts
        else:
            self.retried += 1
            self.done.add(offset)

    def reset(self, offset: int) -> None:
        result = self.one(CommitOffsets("billing", (CommitOffset(TOPIC, 0, offset),), reset=True))
        assert isinstance(result, OffsetsCommitted)
        assert result.codes[0] is Code.OK
        self.resets += 1
        self.floor = offset
        self.done = set(range(offset))
        self.committed = set(self.done)
        self.attempts = {}
        self.is_held = False

    def one(self, command: Command[object]) -> Result:
        """Apply a command; the invariant of the simulation sees it, too."""
        result = self.driven.one(command)
        entry = self.driven.log.entries[-1]
        self.history.on_apply(MemberFacts("m"), entry, [result], b"")
        return result

    def check(self) -> None:
        state = self.driven.machine._state
        row = self.driven.machine.queries.progress("billing", TOPIC, 0).row
        if row is None:
            return
        assert {offset for offset in range(RECORDS) if row.is_done(offset)} == self.done
        assert row.floor >= self.floor
        self.floor = row.floor
        assert row.resets == self.resets
        assert all(row.is_done(offset) for offset in self.committed)
        self.attempts = {key: value for key, value in self.attempts.items() if key not in self.done}
        assert {key: each.attempts for key, each in row.suspended.items()} == self.attempts
        ends = [end for _, end in row.done]
        begins = [first for first, _ in row.done]
        assert all(end < first for end, first in zip([row.floor, *ends], begins, strict=False))
        retries = state.queues.find((BILLING, 0)).maximum + state.timers.waiting
        assert retries == self.retried
        assert state.queues.find((DEAD_LETTERS, 0)).maximum == self.dead


@settings(max_examples=150)
@given(order=st.sampled_from(ConsumeOrder), steps=st.lists(STEPS, max_size=30))
def test_each_record_is_in_one_place(order: ConsumeOrder, steps: list[tuple[object, ...]]) -> None:
    group = replace(
        SETTINGS, order=order, start=StartFrom.FIRST, retries_max=2, retry_delays_ms=(500,),
        lease_ms=1_000, pause_failures=0,
    )  # fmt: skip
    model = Model(with_group(group))
    model.driven.append(batch(RECORDS))
    model.one(CommitOffsets("billing", (CommitOffset(TOPIC, 0, 0),)))
    for name, *arguments in steps:
        if name == "pass":
            (ms,) = arguments
            model.driven.log.time_ms += int(str(ms))
            model.driven.one(FireTimers(model.driven.log.time_ms, 100))
        else:
            getattr(model, str(name))(*arguments)
        model.check()


def test_the_invariant_sees_an_old_owner() -> None:
    """What a bug of the fence would answer is a violation."""
    model = Model(with_group(replace(SETTINGS, start=StartFrom.FIRST)))
    model.driven.append(batch(RECORDS))
    model.claim(3, is_a=True)
    model.claim(4, is_a=False)
    old = CommitOffsets("billing", (CommitOffset(TOPIC, 0, 1, "", 3),), member_id="a")
    model.one(old)  # FENCED
    entry = model.driven.log.add(EntryKind.COMMANDS, [encode(old)])
    with pytest.raises(Violation, match="the claim is b's with 4"):
        model.history.on_apply(MemberFacts("m"), entry, [OffsetsCommitted((Code.OK,), (1,))], b"")
