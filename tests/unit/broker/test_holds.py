"""Holds are placed and released, one or many, and listed in pages."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from dledger.state.commands.command import Command
from dledger.state.queues.holds import Hold, ReleaseHold
from dledger.state.results import Held
from dledger.state.values import KeptFrom, LayoutPart, Topic, TopicType
from dledger_broker.group.commands import Commands
from dledger_broker.usecases.holds import (
    AFTER_SIZE_MAX,
    HOLDS_PER_PAGE_MAX,
    hold,
    hold_all,
    list_holds,
)
from dledger_broker.usecases.messaging import Messaging, Queue
from dledger_proto.errors import Code, DledgerError
from dledger_proto.v1 import broker_pb2 as pb
from tests.unit.broker.fakes import TOPIC, FakeMachine
from tests.unit.broker.test_messaging import Host, TypedQueries, messaging

GONE, UNKNOWN = b"g" * 16, b"u" * 16
NOW_MS = 500_000
"""The host's time; what was applied is older."""


class HeldQueries(TypedQueries):
    """Holds of three topics, one of them deleted, one not known."""

    def __init__(self, holds: list[KeptFrom]) -> None:
        super().__init__(TopicType.NORMAL)
        self.kept = holds
        self.asked: list[tuple[Any, ...]] = []

    def topic_by_name(self, name: str) -> Topic | None:
        return self.topic_by_id(TOPIC) if name == "t" else None

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        if topic_id == UNKNOWN:
            return None
        deleted = topic_id == GONE
        return Topic(
            topic_id, "t", self.kind, 1, (LayoutPart("g", 4),), 4, 4, 6, 1, deleted=deleted
        )

    def queue_bounds(self, topic_id: bytes, queue: int) -> tuple[int, int]:
        if queue > 3:
            raise DledgerError(Code.QUEUE_NOT_FOUND, f"queue {queue}")
        return 0, 10

    def holds(
        self, topic_id: bytes | None, queue: int | None, after_key: bytes, limit: int
    ) -> tuple[list[KeptFrom], bytes]:
        self.asked.append((topic_id, queue, after_key, limit))
        return self.kept, b"next"


def ask(queries: HeldQueries, **fields: Any) -> pb.ListHoldsReply:
    """A page of them."""
    core = messaging(Host(), b"", 1, queries)
    core.view.machine = FakeMachine(queries, time_ms=NOW_MS - 9)
    return asyncio.run(list_holds(core, pb.ListHoldsRequest(**fields)))


def test_holds_that_last_of_topics_that_live_are_listed() -> None:
    queries = HeldQueries([
        KeptFrom(TOPIC, 1, "a", 4, NOW_MS + 1), KeptFrom(TOPIC, 2, "over", 4, NOW_MS),
        KeptFrom(GONE, 1, "a", 4, 2 * NOW_MS), KeptFrom(UNKNOWN, 1, "a", 4, 2 * NOW_MS),
    ])  # fmt: skip
    reply = ask(queries)
    assert (reply.next, reply.now_ms) == (b"next", NOW_MS)
    (row,) = reply.holds
    assert (row.topic, row.topic_id, row.queue, row.owner, row.offset, row.until_ms) == (
        "t", TOPIC, 1, "a", 4, NOW_MS + 1,
    )  # fmt: skip


def test_what_is_asked_is_bounded_and_checked() -> None:
    queries = HeldQueries([])
    ask(queries)
    ask(queries, limit=7, after=b"x")
    ask(queries, limit=1_000_000, topic="t")
    ask(queries, topic="t", queue=0)
    assert queries.asked == [
        (None, None, b"", HOLDS_PER_PAGE_MAX), (None, None, b"x", 7),
        (TOPIC, None, b"", HOLDS_PER_PAGE_MAX), (TOPIC, 0, b"", HOLDS_PER_PAGE_MAX),
    ]  # fmt: skip
    for fields, code in (
        ({"queue": 0}, Code.INVALID_ARGUMENT),
        ({"after": b"x" * (AFTER_SIZE_MAX + 1)}, Code.INVALID_ARGUMENT),
        ({"topic": "nope"}, Code.TOPIC_NOT_FOUND),
        ({"topic": "t", "queue": 9}, Code.QUEUE_NOT_FOUND),
    ):
        with pytest.raises(DledgerError) as raised:
            ask(queries, **fields)
        assert raised.value.code is code


UNKNOWN_OFFSET = 666


class HoldingCommands(Commands):
    """Holds what is not below offset 5."""

    def __init__(self) -> None:
        self.calls: list[list[Command[Any]]] = []

    async def propose_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        self.calls.append(list(commands))
        return [_held(command) for command in commands]


def _held(command: Command[Any]) -> Held | DledgerError:
    if isinstance(command, ReleaseHold):
        return Held(0)
    assert isinstance(command, Hold)
    if command.offset < 5:
        return DledgerError(Code.OFFSET_OUT_OF_RANGE, f"offset {command.offset}")
    if command.offset == UNKNOWN_OFFSET:
        return DledgerError(Code.UNKNOWN_OUTCOME, "no answer")
    return Held(command.until_ms)


class HoldingCore(Messaging):
    """Resolves everything but some topics."""

    def __init__(self, host: Host | None = None) -> None:
        self.commands = HoldingCommands()
        super().__init__(messaging(host or Host(), b"", 0, proposals=self.commands).view)

    async def resolve(self, topic: str, topic_id: bytes, queue: int) -> Queue:
        if topic == "elsewhere":
            raise DledgerError(Code.WRONG_GROUP, "h has it")
        if topic == "away":
            raise DledgerError(Code.NO_LEADER, "nobody leads")
        return Queue(TOPIC, queue)


def test_a_hold_counts_from_the_time_by_which_it_ends() -> None:
    """Its end is compared with the entries' stamps, whatever the member's own clock says (D8)."""
    host = Host()
    core = HoldingCore(host)
    asked = pb.HoldRequest(owner="spark", offset=7, ttl_ms=1_000)
    assert asyncio.run(hold(core, asked)).until_ms == NOW_MS + 1_000
    host.now_ms = None
    with pytest.raises(DledgerError, match="NO_LEADER"):  # another try finds it out
        asyncio.run(hold(core, asked))
    released = asyncio.run(hold(core, pb.HoldRequest(owner="spark")))
    assert released.until_ms == 0
    assert core.commands.calls == [
        [Hold("spark", TOPIC, 0, 7, NOW_MS + 1_000)], [ReleaseHold("spark", TOPIC, 0)],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "detail"),
    [
        (pb.HoldRequest(owner="a\nb", ttl_ms=5), "owner 'a\\nb': only letters"),
        (pb.HoldRequest(owner="a\nb"), "owner 'a\\nb': only letters"),
        (
            pb.HoldRequest(owner="spark", ttl_ms=(1 << 64) - 1),
            "ttl_ms 18446744073709551615, must be 0 (release) to 3153600000000",
        ),
    ],
)
def test_bad_holds_are_refused_before_anything_is_proposed(
    asked: pb.HoldRequest, detail: str
) -> None:
    core = HoldingCore()
    with pytest.raises(DledgerError) as raised:
        asyncio.run(hold(core, asked))
    assert raised.value.code is Code.INVALID_ARGUMENT
    assert raised.value.detail.startswith(detail)
    assert core.commands.calls == []


def test_holds_are_refused_one_by_one() -> None:
    """The others are held; what says nothing about a queue fails the call, to be repeated."""
    core = HoldingCore()
    request = pb.HoldAllRequest(ttl_ms=60_000)
    for topic, queue, offset in (("t", 0, 7), ("t", 1, 3), ("elsewhere", 0, 9), ("t", 2, 9)):
        ref = pb.QueueRef(topic=topic, queue=queue)
        request.queues.add(queue=ref, offset=offset, owner=f"job-{queue}")
    reply = asyncio.run(hold_all(core, request))
    assert list(reply.codes) == [
        Code.OK, Code.OFFSET_OUT_OF_RANGE, Code.WRONG_GROUP, Code.OK,
    ]  # fmt: skip
    assert list(reply.details) == ["", "offset 3", "h has it", ""]
    assert reply.until_ms == NOW_MS + 60_000
    (proposed,) = core.commands.calls
    assert [each.owner for each in proposed if isinstance(each, Hold)] == [
        "job-0", "job-1", "job-2",
    ]  # fmt: skip


def held(places: Sequence[tuple[str, int]]) -> None:
    request = pb.HoldAllRequest(ttl_ms=60_000)
    for topic, offset in places:
        request.queues.add(queue=pb.QueueRef(topic=topic), offset=offset, owner="job")
    asyncio.run(hold_all(HoldingCore(), request))


@pytest.mark.parametrize("offset", [7, UNKNOWN_OFFSET])
def test_holds_of_which_some_are_stored_are_not_told_as_refused(offset: int) -> None:
    """NO_LEADER would say that nothing was done."""
    with pytest.raises(DledgerError, match="UNKNOWN_OUTCOME: some queues may be done, but"):
        held([("away", 9), ("t", offset)])


def test_holds_of_which_none_is_stored_are_refused() -> None:
    """What one queue refuses is not what is said of the member."""
    for places in ([("away", 9)], [("away", 9), ("t", 3)], [("t", 3), ("away", 9)]):
        with pytest.raises(DledgerError, match="NO_LEADER"):
            held(places)
