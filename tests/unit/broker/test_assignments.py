"""What the assignments of a fetch stream read: one that cannot be served costs no other."""

import asyncio
from typing import cast

import pytest

from dledger_broker.read.assignments import assignments_of
from dledger_broker.usecases.messaging import Messaging, Queue
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import FETCH_ASSIGNMENTS_MAX
from dledger_proto.v1 import broker_pb2 as pb
from tests.unit.broker.fakes import TOPIC

GONE = b"g" * 16


class Core:
    """Knows TOPIC with two queues; queue 2 lies elsewhere."""

    def __init__(self) -> None:
        self.resolved: list[tuple[bytes, int]] = []
        self.error: DledgerError | None = None

    async def resolve(self, topic: str, topic_id: bytes, queue: int) -> Queue:
        self.resolved.append((topic_id, queue))
        if self.error is not None:
            raise self.error
        if topic_id != TOPIC and topic != "t":
            raise DledgerError(Code.TOPIC_NOT_FOUND, "no topic has the id")
        return Queue(TOPIC, queue)

    async def bounds(self, queue: Queue) -> tuple[int, int]:
        if queue.number == 2:
            raise DledgerError(Code.WRONG_GROUP, "held by another group")
        return 0, 9


def asked(*queues: tuple[bytes, int]) -> pb.FetchRequest:
    return pb.FetchRequest(
        assignments=[
            pb.FetchRequest.Assignment(queue=pb.QueueRef(topic_id=topic, queue=queue), offset=3)
            for topic, queue in queues
        ]
    )


def test_what_cannot_be_read_is_refused_by_itself() -> None:
    core = Core()
    sources = asyncio.run(
        assignments_of(
            cast("Messaging", core), asked((TOPIC, 0), (GONE, 0), (TOPIC, 2), (GONE, 1), (TOPIC, 1))
        )
    )
    assert [(each.number, each.queue, each.offset) for each in sources] == [
        (0, 0, 3),
        (1, 0, 3),
        (2, 2, 3),
        (3, 1, 3),
        (4, 1, 3),
    ]
    assert [each.refusal and each.refusal.code for each in sources] == [
        None,
        Code.TOPIC_NOT_FOUND,
        Code.WRONG_GROUP,
        Code.TOPIC_NOT_FOUND,
        None,
    ]
    assert [topic for topic, _ in core.resolved].count(GONE) == 1, "a quorum is asked once"


def test_a_queue_is_named_by_its_topic_too() -> None:
    request = pb.FetchRequest(
        assignments=[pb.FetchRequest.Assignment(queue=pb.QueueRef(topic="t", queue=1))]
    )
    (source,) = asyncio.run(assignments_of(cast("Messaging", Core()), request))
    assert (source.topic_id, source.queue, source.refusal) == (TOPIC, 1, None)


@pytest.mark.parametrize("code", [Code.NO_LEADER, Code.INVALID_ARGUMENT])
def test_what_says_nothing_about_a_queue_ends_the_stream(code: Code) -> None:
    core = Core()
    core.error = DledgerError(code, "election")
    with pytest.raises(DledgerError) as refused:
        asyncio.run(assignments_of(cast("Messaging", core), asked((TOPIC, 0))))
    assert refused.value.code is code


@pytest.mark.parametrize("count", [0, FETCH_ASSIGNMENTS_MAX + 1])
def test_the_number_of_assignments_is_bounded(count: int) -> None:
    with pytest.raises(
        DledgerError, match=f"{count} assignments, must be 1 to {FETCH_ASSIGNMENTS_MAX}"
    ):
        asyncio.run(assignments_of(cast("Messaging", Core()), asked(*[(TOPIC, 0)] * count)))
