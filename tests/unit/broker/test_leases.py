"""Never two holders of a lease: whoever leads, and whatever wall clocks and stamps say (D22).

Goal: while a consumer believes in its lease, by its own monotonic clock, no other consumer's claim
is taken. Method: virtual time, two members that apply one log, each with clocks of its own. Steps
change the leader, let stamps leap, let a member lag, or begin anew. Claims go through the use case.
"""

import asyncio
from dataclasses import dataclass, field, replace
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.state.commands.command import Command
from dledger.state.commands.registry import encode
from dledger.state.consumers.groups import UpdateConsumerGroup
from dledger.state.consumers.settings import ConsumeOrder, StartFrom
from dledger.state.results import Claimed
from dledger.types import EntryKind
from dledger_broker.group.leases import KEPT_SECONDS, SPAN_SECONDS, Leases
from dledger_broker.usecases.messaging import Messaging, Queue
from dledger_broker.usecases.progress import claim_queues
from dledger_client._core.group.claims import LEASE_MARGIN
from dledger_proto.errors import Code
from tests.unit.state.groups_kit import SETTINGS, with_group
from tests.unit.state.kit import TOPIC, Driven, LogWriter, batch

LEASE_MS = 10_000
ORDERED = replace(SETTINGS, order=ConsumeOrder.QUEUE, start=StartFrom.FIRST, lease_ms=LEASE_MS)


@dataclass
class Time:
    """True time, and how much faster a member's monotonic clock runs."""

    now: float = 100.0
    rate: float = 1.0

    def monotonic(self) -> float:
        return self.now * self.rate

    def wall_ms(self) -> int:
        return int(self.now * 1_000)


@dataclass
class Member:
    """A member: it has applied a part of the log."""

    driven: Driven
    clock: Time
    applied: int = 0

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin a new process on the state."""
        self.leases = Leases(self.driven.machine, self.clock)


@dataclass
class Stage:
    """A log, two members of its group, and what the consumers a and b believe."""

    log: LogWriter = field(default_factory=LogWriter)
    now: float = 100.0
    leader: int = 0
    stamp_offset_ms: int = 0
    epochs: int = 5
    epoch_of: dict[str, int] = field(default_factory=lambda: {"a": 5})
    believes_until: dict[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        first = with_group(ORDERED)
        first.append(batch(10))
        self.log = first.log
        other = Driven()
        for entry in first.log.entries:
            other.machine.apply(entry)
        self.members = [Member(first, Time()), Member(other, Time())]

    def pass_seconds(self, seconds: float) -> None:
        self.now += seconds
        for member in self.members:
            member.clock.now = self.now

    def catch_up(self, number: int) -> None:
        machine = self.members[number].driven.machine
        for entry in self.log.entries[machine.applied_index :]:
            machine.apply(entry)

    async def propose(self, command: Command[object]) -> object:
        """The leader stamps by its own clock, which may be off; it applies."""
        self.catch_up(self.leader)
        stamp_ms = int(self.now * 1_000) + self.stamp_offset_ms
        entry = self.log.add(EntryKind.COMMANDS, [encode(command)], stamp_ms)
        (result,) = self.members[self.leader].driven.machine.apply(entry)
        return result

    def claim(self, name: str, on_way: float = 0.0) -> Claimed:
        """Claim the queue, and believe in what is answered as the client does."""
        sent_at = self.now
        self.pass_seconds(on_way)
        member = self.members[self.leader]
        if self.epoch_of.get(name) is None:
            self.epochs += 1
            self.epoch_of[name] = self.epochs
        messaging = cast("Messaging", _Messaging(_View(self, member)))
        queue = Queue(TOPIC, 0)
        wanted = [(queue, self.epoch_of[name])]
        claimed = asyncio.run(claim_queues(messaging, "billing", name, wanted))
        row = claimed.rows[0]
        if row.code is Code.OK:
            self.check_alone(name)
            lease = row.lease_left_ms / 1_000
            self.believes_until[name] = sent_at + lease * (1 - LEASE_MARGIN)
        elif row.code is Code.FENCED:
            del self.epoch_of[name]  # the coordinator grants it again, later
        return row

    def check_alone(self, name: str) -> None:
        for other, until in self.believes_until.items():
            assert other == name or self.now >= until, (
                f"{name} has the queue, and {other} believes in it for {until - self.now:.3f} s"
            )


class _View:
    def __init__(self, stage: Stage, member: Member) -> None:
        self.machine = member.driven.machine
        self.leases = member.leases
        self.commands = stage


@dataclass
class _Messaging:
    view: _View


STEPS = st.one_of(
    st.tuples(st.just("pass"), st.floats(0.0, 12.0)),
    st.tuples(st.just("claim"), st.sampled_from("ab"), st.floats(0.0, 3.0)),
    st.tuples(st.just("lead"), st.integers(0, 1), st.sampled_from([-1_000, 0, 1_000, 60_000])),
    st.tuples(st.just("follow")),
    st.tuples(st.just("begin"), st.integers(0, 1)),
    st.tuples(st.just("renew"), st.sampled_from("ab")),
)


@settings(max_examples=200, deadline=None)
@given(rates=st.tuples(*[st.floats(0.98, 1.02)] * 2), steps=st.lists(STEPS, max_size=30))
def test_nobody_is_let_in_while_another_believes(
    rates: tuple[float, float], steps: list[tuple[object, ...]]
) -> None:
    stage = Stage()
    for member, rate in zip(stage.members, rates, strict=True):
        member.clock.rate = rate
        member.begin()
    for name, *arguments in steps:
        match name, arguments:
            case "pass", [float(seconds)]:
                stage.pass_seconds(seconds)
            case "claim", [str(who), float(on_way)]:
                stage.claim(who, on_way)
            case "renew", [str(who)] if stage.believes_until.get(who, 0.0) > stage.now:
                stage.claim(who)
            case "lead", [int(number), int(offset_ms)]:
                stage.leader, stage.stamp_offset_ms = number, offset_ms
            case "follow", _:
                stage.catch_up(1 - stage.leader)
            case "begin", [int(number)]:
                stage.members[number].begin()
            case _:
                pass


def test_a_leader_whose_stamps_are_ahead_lets_nobody_in_early() -> None:
    """The clocks of two leaders may differ by two seconds, and a majority's clock may leap."""
    stage = Stage()
    assert stage.claim("a").code is Code.OK
    stage.catch_up(1)
    stage.leader, stage.stamp_offset_ms = 1, 60_000
    stage.pass_seconds(9.0)
    refused = stage.claim("b")
    assert (refused.code, refused.lease_left_ms) == (Code.LEASED, 1_000)
    stage.pass_seconds(1.0)
    assert stage.claim("b").code is Code.OK


def test_a_leader_whose_stamps_stand_still_lets_the_next_one_in_in_time() -> None:
    stage = Stage(stamp_offset_ms=3_600_000)
    assert stage.claim("a").code is Code.OK
    stage.stamp_offset_ms = 0
    stage.pass_seconds(9.5)
    assert stage.claim("b").code is Code.LEASED
    stage.pass_seconds(0.5)
    assert stage.claim("b").code is Code.OK


def test_a_member_that_begins_counts_from_its_beginning() -> None:
    stage = Stage()
    assert stage.claim("a").code is Code.OK
    stage.pass_seconds(5.0)
    stage.members[0].begin()
    stage.pass_seconds(9.5)
    assert stage.claim("b").code is Code.LEASED
    stage.pass_seconds(0.5)
    assert stage.claim("b").code is Code.OK


def test_a_lease_lasts_as_long_as_its_holder_was_told() -> None:
    """A shorter lease in the settings does not end one that was given before."""
    stage = Stage()
    assert stage.claim("a").code is Code.OK
    topic = stage.members[0].driven.machine.queries.topic_by_id(b"B" * 16)
    assert topic is not None
    assert topic.consumer_group is not None
    shorter = replace(topic.consumer_group, lease_ms=1_000)
    update = UpdateConsumerGroup(topic.topic_id, ("lease_ms",), shorter)
    asyncio.run(stage.propose(update))
    stage.pass_seconds(9.5)
    assert stage.claim("b").code is Code.LEASED


def test_a_member_notes_no_more_moments_than_the_longest_lease_has_spans() -> None:
    stage = Stage()
    member = stage.members[0]
    for _ in range(int(3 * KEPT_SECONDS / SPAN_SECONDS)):
        stage.claim("a")
        stage.pass_seconds(SPAN_SECONDS)
    assert len(member.leases._moments) <= KEPT_SECONDS / SPAN_SECONDS + 2
