"""What every API shares of reading messages, without a group."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from dledger.log.commit_log import CommitLog
from dledger.state.commands.command import Command
from dledger.state.queries import Queries
from dledger.state.results import Trimmed
from dledger.state.values import LayoutPart, QueueSpan, Topic, TopicType
from dledger.types import LogIndex, Span
from dledger_broker.group.commands import Commands
from dledger_broker.group.group_view import GroupView
from dledger_broker.group.leases import Leases
from dledger_broker.group.long_poll import LongPoll
from dledger_broker.group.topic_watch import TopicWatch
from dledger_broker.usecases.messaging import Messaging, Queue
from dledger_proto.batch.codec import Record, encode_batch, parse_header
from dledger_proto.errors import Code, DledgerError
from tests.unit.broker.fakes import (
    NAMES,
    TOPIC,
    FakeCommands,
    FakeHost,
    FakeMachine,
    ManualClock,
    batch,
)


class Host(FakeHost):
    def __init__(self) -> None:
        super().__init__()
        self.failures: list[BaseException] = []

    def failed(self, error: BaseException) -> None:
        self.failures.append(error)

    async def read_barrier(self) -> LogIndex:
        return LogIndex(0)

    async def wait_applied(self, index: LogIndex) -> None:
        return


class FakeQueries(Queries):
    def __init__(self, span: QueueSpan) -> None:
        self.span = span

    def lookup_offset(self, topic_id: bytes, queue: int, offset: int) -> QueueSpan:
        return self.span


class Log:
    group_id = b"G" * 16

    def __init__(self, found: bytes | OSError) -> None:
        self.found = found

    def read_span(self, span: Span) -> bytes:
        if isinstance(self.found, OSError):
            raise self.found
        return self.found

    def path_of(self, position: int) -> str:
        return f"log/{position}"


def messaging(
    host: Host,
    found: bytes | OSError,
    size: int,
    queries: Queries | None = None,
    proposals: Commands | None = None,
    applied_index: int = 0,
) -> Messaging:
    return Messaging(
        GroupView(
            NAMES,
            host,
            FakeMachine(queries or FakeQueries(QueueSpan(0, 0, 0, 1, size, 1)), applied_index),
            cast("TopicWatch", None),
            cast("CommitLog", Log(found)),
            ThreadPoolExecutor(1),
            LongPoll(),
            proposals or cast("Commands", None),
            ManualClock(),
            cast("Leases", None),
        )
    )


class TypedQueries(FakeQueries):
    """Knows one topic, of a type."""

    def __init__(self, kind: TopicType) -> None:
        super().__init__(QueueSpan(0, 0, 0, 1, 1, 1))
        self.kind = kind

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return Topic(TOPIC, "t", self.kind, 1, (LayoutPart("g", 4),), 4, 4, 6, 1)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("kind", [TopicType.NORMAL, TopicType.FIFO])
def test_a_fifo_topic_takes_only_batches_whose_producer_used_ordering_keys(
    kind: TopicType, keyed: bool
) -> None:
    header = parse_header(
        encode_batch(
            [Record(b"x")],
            topic_id=TOPIC, queue=0, stamp=None, base_number=0, base_time_ms=1, keyed=keyed,
        )
    )  # fmt: skip
    rule = messaging(Host(), b"", 1, TypedQueries(kind)).write_rule
    if keyed or kind is TopicType.NORMAL:
        assert rule.refusal(header) is None
        asyncio.run(rule.check(header))
        return
    assert rule.refusal(header) is not None
    with pytest.raises(DledgerError) as raised:
        asyncio.run(rule.check(header))
    assert raised.value.code is Code.MESSAGE_ILLEGAL
    assert raised.value.detail == "topic t is FIFO: each message needs an ordering key"


@pytest.mark.parametrize("delivery_time_ms", [0, 9])
@pytest.mark.parametrize("kind", [TopicType.NORMAL, TopicType.DELAY])
def test_a_delay_topic_takes_only_batches_with_a_delivery_time(
    kind: TopicType, delivery_time_ms: int
) -> None:
    header = parse_header(
        encode_batch(
            [Record(b"x")],
            topic_id=TOPIC, queue=0, stamp=None, base_number=0, base_time_ms=1,
            delivery_time_ms=delivery_time_ms,
        )
    )  # fmt: skip
    refusal = messaging(Host(), b"", 1, TypedQueries(kind)).write_rule.refusal(header)
    if delivery_time_ms or kind is TopicType.NORMAL:
        assert refusal is None
    else:
        assert refusal is not None
        assert refusal.code is Code.MESSAGE_ILLEGAL
        assert refusal.detail == "topic t is DELAY: each message needs a delivery time"


@pytest.mark.parametrize("found", [OSError(5, "EIO"), b"x" * len(batch(b"a"))])
def test_a_lookup_that_meets_damage_ends_the_member(found: bytes | OSError) -> None:
    """I16, I15: as a fetch does."""

    async def run() -> None:
        host = Host()
        with pytest.raises(DledgerError) as raised:
            await messaging(host, found, len(batch(b"a"))).lookup_offset(Queue(TOPIC, 0), 0)
        assert raised.value.code is Code.STORAGE_FAILED
        assert len(host.failures) == 1

    asyncio.run(run())


def test_a_lookup_returns_the_checked_record() -> None:
    async def run() -> None:
        host, stored = Host(), batch(b"a")
        found = await messaging(host, stored, len(stored)).lookup_offset(Queue(TOPIC, 0), 0)
        assert (found.offset, found.batch, host.failures) == (0, stored, [])

    asyncio.run(run())


class Late(FakeQueries):
    """Has not applied yet that the topic is deleted."""

    applied = False

    def topic_by_name(self, name: str) -> Topic | None:
        return None if self.applied else cast("Topic", name)


class LateHost(Host):
    def __init__(self, queries: Late) -> None:
        super().__init__()
        self.queries = queries

    async def wait_applied(self, index: LogIndex) -> None:
        self.queries.applied = True


def test_a_topic_is_told_as_it_is_now_not_as_a_late_member_has_it() -> None:
    async def run() -> None:
        queries = Late(QueueSpan(0, 0, 0, 1, 1, 1))
        core = messaging(LateHost(queries), b"", 0, queries)
        assert await core.topic_named("gone"), "the member is late"
        with pytest.raises(DledgerError) as raised:
            await core.topic_now("gone")
        assert raised.value.code is Code.TOPIC_NOT_FOUND

    asyncio.run(run())


class Closed(Late):
    """Has not applied yet that the topic may be read."""

    def topic_by_name(self, name: str) -> Topic | None:
        return self.topic_by_id(TOPIC)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        permission = 6 if self.applied else 2
        return Topic(TOPIC, "t", TopicType.NORMAL, 1, (LayoutPart("g", 4),), 4, 4, permission, 1)


def test_a_late_member_refuses_no_read_that_is_permitted_by_now() -> None:
    """A client takes the refusal for final: it would ask no other member."""

    async def resolve(name: str, topic_id: bytes) -> Queue:
        queries = Closed(QueueSpan(0, 0, 0, 1, 1, 1))
        return await messaging(LateHost(queries), b"", 0, queries).resolve(name, topic_id, 1)

    for name, topic_id in (("t", b""), ("", TOPIC)):
        assert asyncio.run(resolve(name, topic_id)) == Queue(TOPIC, 1)


class Proposals(FakeCommands):
    """Answers every proposal with one result."""

    def __init__(self, result: object) -> None:
        self.result = result

    async def propose(self, command: Command[Any]) -> Any:
        return self.result


def test_a_trim_that_a_hold_cuts_short_tells_how_far_it_came() -> None:
    """It has moved the minimum: an error would say that nothing happened."""

    async def run() -> None:
        proposals = Proposals(Trimmed(4, "spark"))
        core = messaging(Host(), b"", 0, proposals=proposals)
        assert await core.trim(Queue(TOPIC, 0), 8) == Trimmed(4, "spark")

    asyncio.run(run())


BAD_GROUP = "bad group\n!"


BAD_CALLS: list[tuple[Callable[[Messaging], Awaitable[object]], str]] = [
    (
        lambda core: core.commit_offsets(BAD_GROUP, [], reset=False, member_id=""),
        "consumer_group 'bad group\\n!': only letters",
    ),
    (lambda core: core.read_offsets(BAD_GROUP, []), "consumer_group 'bad group\\n!': only"),
    (
        lambda core: core.commit_offsets("g", [], reset=False, member_id="a\nb"),
        "member_id 'a\\nb': only printable",
    ),
    (
        lambda core: core.register_producer(b"p" * 15, b"l" * 16, 0),
        "producer_id of 15 bytes: must be 16, not all zero",
    ),
    (
        lambda core: core.register_producer(b"p" * 16, b"l" * 17, 0),
        "life_id of 17 bytes: must be 16, not all zero",
    ),
    (
        lambda core: core.register_producer(b"p" * 16, bytes(16), 0),
        "life_id of 16 bytes: must be 16, not all zero",
    ),
]


@pytest.mark.parametrize(("call", "detail"), BAD_CALLS)
def test_bad_names_and_times_are_refused_before_anything_is_proposed(
    call: Callable[[Messaging], Awaitable[object]], detail: str
) -> None:
    async def run() -> None:
        with pytest.raises(DledgerError) as raised:
            await call(messaging(Host(), b"", 0))
        assert raised.value.code is Code.INVALID_ARGUMENT
        assert raised.value.detail.startswith(detail)

    asyncio.run(run())
