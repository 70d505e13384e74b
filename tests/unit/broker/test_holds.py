"""The page of holds that a member answers with."""

import asyncio
from typing import Any

import pytest

from dledger.state.values import KeptFrom, LayoutPart, Topic, TopicType
from dledger_broker.usecases.holds import AFTER_SIZE_MAX, HOLDS_PER_PAGE_MAX, list_holds
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
