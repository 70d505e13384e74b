"""What the control group's leader does about topics: whose id they get, how long a caller waits."""

import asyncio
from random import Random
from typing import Any, cast

import pytest

from dledger.state.commands.command import Command
from dledger.state.results import TopicChanged
from dledger.state.topics.commands import CreateTopic
from dledger.state.topics.layout import queues_of
from dledger.state.values import LayoutPart, QueueSpan, Topic, TopicType
from dledger_broker.cluster import telling
from dledger_broker.cluster.channels import Channels
from dledger_broker.cluster.topic_authority import TopicAuthority
from dledger_broker.cluster.view import ClusterView
from dledger_broker.group.commands import Commands
from dledger_broker.group.group_view import ANSWER_BY
from dledger_broker.rpc.topic_proto import topic_from_proto, topic_to_proto
from dledger_broker.usecases.messaging import ID_SIZE
from dledger_proto.errors import DledgerError
from dledger_proto.network.tls import Callee
from dledger_proto.v1 import broker_pb2 as pb
from tests.unit.broker.fakes import NAMES, FakeCommands
from tests.unit.broker.test_messaging import FakeQueries, Host, messaging

GIVEN = b"n" * ID_SIZE
OTHER_GROUP = "h"


class Knowing(FakeQueries):
    """Knows one topic, or none."""

    def __init__(self, topic: Topic | None = None) -> None:
        super().__init__(QueueSpan(0, 0, 0, 1, 1, 1))
        self.topic = topic

    @property
    def forgotten_index(self) -> int:
        return 0

    def topic_by_name(self, name: str) -> Topic | None:
        return self.topic

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self.topic


class Making(FakeCommands):
    """Makes every topic that is asked for, and changes nothing of one that is there."""

    def __init__(self, known: Topic | None = None) -> None:
        self.known = known
        self.proposed: list[Command[object]] = []

    async def propose(self, command: Command[Any]) -> Any:
        self.proposed.append(command)
        if not isinstance(command, CreateTopic):
            assert self.known is not None
            return TopicChanged(self.known)
        return TopicChanged(
            Topic(
                command.topic_id, command.name, command.type, 1, command.layout,
                queues_of(command.layout), command.read_queues, command.permission, 1,
            )
        )  # fmt: skip


class Taking(FakeCommands):
    """Takes what it is given."""

    async def propose(self, command: Command[Any]) -> Any:
        return None


class Hanging(FakeCommands):
    """Never answers."""

    async def propose(self, command: Command[Any]) -> Any:
        return await asyncio.Event().wait()


class View:
    """Two groups."""

    def groups(self) -> list[str]:
        return [NAMES.group, OTHER_GROUP]

    def place(self, group: str) -> object:
        return group if group in self.groups() else None

    def members(self, _group: str) -> list[Callee]:
        return []


def authority_of(
    making: Making, known: Topic | None, commands_of_the_other: Commands
) -> TopicAuthority:
    queries = Knowing(known)
    mine = messaging(Host(), b"", 0, queries, making, applied_index=9)
    ANSWER_BY.set(mine.view.clock.monotonic() + 0.05)
    return TopicAuthority(
        mine,
        cast("ClusterView", View()),
        cast("Channels", None),
        {OTHER_GROUP: messaging(Host(), b"", 0, Knowing(), commands_of_the_other)},
        Random(1),
        auto_create=True,
        default_queues_per_group=2,
    )


def created(topic_id: bytes, commands_of_the_other: Commands) -> tuple[Topic, list[str]]:
    async def run() -> tuple[Topic, list[str]]:
        authority = authority_of(Making(), None, commands_of_the_other)
        request = pb.CreateTopicRequest(
            name="orders", topic_id=topic_id, known_index=7 if topic_id else 0
        )
        reply = await asyncio.wait_for(authority.create(request), 20)
        return topic_from_proto(reply.topic), list(reply.missing_groups)

    return asyncio.run(run())


def test_a_topic_has_the_id_that_its_caller_drew() -> None:
    """So that a late copy of the call is known as one."""
    topic, missing = created(GIVEN, Taking())
    assert topic.topic_id == GIVEN
    assert missing == []
    drawn, _ = created(b"", Taking())
    assert len(drawn.topic_id) == ID_SIZE
    assert drawn.topic_id != GIVEN


def test_who_draws_the_id_asks_for_an_index_first() -> None:
    """And creates nothing by that, so that no copy of it does, however late."""

    async def run() -> None:
        making = Making()
        authority = authority_of(making, None, Taking())
        request = pb.CreateTopicRequest(name="orders", topic_id=GIVEN)
        for automatic in (False, True):
            request.automatic = automatic
            assert await authority.create(request) == pb.CreateTopicReply(known_index=9)
        assert making.proposed == []
        request.known_index = 10
        with pytest.raises(DledgerError, match="known_index 10, at most 9"):
            await authority.create(request)
        request.known_index = 8
        assert (await authority.create(request)).topic.id == GIVEN
        (command,) = making.proposed
        assert isinstance(command, CreateTopic)
        assert command.known_index == 8
        await authority.create(pb.CreateTopicRequest(name="orders"))
        drawn = making.proposed[-1]
        assert isinstance(drawn, CreateTopic)
        assert drawn.known_index == 9, "its id was never told to anybody before"

    asyncio.run(run())


def test_another_group_that_does_not_answer_is_missing_and_not_waited_for() -> None:
    """The topic exists: a caller who waits in vain would take it for unknown."""
    _, missing = created(GIVEN, Hanging())
    assert missing == [OTHER_GROUP]


RESIZED = Topic(
    GIVEN, "orders", TopicType.NORMAL, 3,
    (LayoutPart(NAMES.group, 2), LayoutPart(OTHER_GROUP, 2), LayoutPart(NAMES.group, 1),
     LayoutPart(OTHER_GROUP, 1), LayoutPart(NAMES.group, 9)), 6, 8, 6, 4,
)  # fmt: skip


@pytest.mark.parametrize(
    "request_",
    [
        pb.CreateTopicRequest(name="orders"),
        pb.CreateTopicRequest(name="orders", write_queues_per_group=3),
        pb.CreateTopicRequest(name="orders", groups=[OTHER_GROUP, NAMES.group]),
    ],
)
def test_a_topic_that_was_resized_is_found_by_its_creation(
    request_: pb.CreateTopicRequest,
) -> None:
    async def run() -> None:
        making = Making(RESIZED)
        await authority_of(making, RESIZED, Taking()).create(request_)
        (command,) = making.proposed
        assert isinstance(command, CreateTopic)
        assert (command.layout, command.read_queues) == (RESIZED.layout[:4], 8)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("request_", "layout"),
    [
        (
            pb.CreateTopicRequest(name="orders", write_queues_per_group=2),
            ((NAMES.group, 2), (OTHER_GROUP, 2)),
        ),
        (pb.CreateTopicRequest(name="orders", groups=[OTHER_GROUP]), ((OTHER_GROUP, 2),)),
    ],
)
def test_another_creation_asks_for_what_it_says(
    request_: pb.CreateTopicRequest, layout: tuple[tuple[str, int], ...]
) -> None:
    """And is refused when it is applied, naming what differs."""

    async def run() -> None:
        making = Making(RESIZED)
        await authority_of(making, RESIZED, Taking()).create(request_)
        (command,) = making.proposed
        assert isinstance(command, CreateTopic)
        assert command.layout == layout

    asyncio.run(run())


def test_a_layout_names_groups_that_are_known() -> None:
    async def run() -> None:
        making = Making(RESIZED)
        authority = authority_of(making, RESIZED, Taking())
        request = pb.UpdateTopicRequest(
            name="orders", layout=[*layout_of(RESIZED), pb.LayoutPart(group="nobody", queues=1)]
        )
        with pytest.raises(DledgerError, match="no group has the name 'nobody', known are g, h"):
            await authority.update(request)
        assert making.proposed == []

    asyncio.run(run())


def layout_of(topic: Topic) -> list[pb.LayoutPart]:
    return list(topic_to_proto(topic).layout)


def test_a_change_tells_who_has_not_taken_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "CARRY_SECONDS", 3_600.0)  # the caller's time is the bound

    async def run() -> None:
        authority = authority_of(Making(RESIZED), RESIZED, Hanging())
        update = authority.update(pb.UpdateTopicRequest(name="orders", permission=4))
        assert await asyncio.wait_for(update, 20) == (RESIZED, [OTHER_GROUP])
        delete = authority.delete(pb.DeleteTopicRequest(name="orders"))
        assert await asyncio.wait_for(delete, 20) == (RESIZED, [OTHER_GROUP])

    asyncio.run(run())
