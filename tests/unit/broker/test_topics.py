"""What the control group's leader does about topics: whose id they get, how long a caller waits."""

import asyncio
from random import Random
from typing import cast

from dledger.state.command import Command, CreateTopic
from dledger.state.machine import QueueSpan
from dledger.state.results import TopicChanged
from dledger.state.values import Topic
from dledger_broker.cluster_view import ClusterView
from dledger_broker.forward import Channels
from dledger_broker.messaging import ID_SIZE
from dledger_broker.served import Commands
from dledger_broker.topics import TopicAuthority
from dledger_proto.v1 import broker_pb2 as pb
from tests.unit.broker.fakes import NAMES
from tests.unit.broker.test_messaging import Host, Machine, messaging

GIVEN = b"n" * ID_SIZE
OTHER_GROUP = "h"


class Unknown(Machine):
    """Knows no topic."""

    def topic_by_name(self, name: str) -> Topic | None:
        return None

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return None


class Making(Commands):
    """Makes every topic that is asked for."""

    def __init__(self) -> None:
        pass

    async def propose(self, command: Command) -> object:
        assert isinstance(command, CreateTopic)
        return TopicChanged(
            Topic(
                command.topic_id, command.name, command.type, 1, command.layout,
                command.read_queues, command.permission, 1,
            )
        )  # fmt: skip


class Hanging(Commands):
    """Never answers."""

    def __init__(self) -> None:
        pass

    async def propose(self, command: Command) -> object:
        return await asyncio.Event().wait()


class View:
    """Two groups."""

    def groups(self) -> list[str]:
        return [NAMES.group, OTHER_GROUP]

    def place(self, group: str) -> object:
        return group


def created(topic_id: bytes, commands_of_the_other: Commands) -> tuple[Topic, list[str]]:
    async def run() -> tuple[Topic, list[str]]:
        machine = Unknown(QueueSpan(0, 0, 0, 1, 1, 1))
        authority = TopicAuthority(
            messaging(Host(), b"", 0, machine, Making()),
            cast("ClusterView", View()),
            cast("Channels", None),
            {OTHER_GROUP: messaging(Host(), b"", 0, machine, commands_of_the_other)},
            Random(1),
            auto_create=True,
            default_queues_per_group=2,
        )
        request = pb.CreateTopicRequest(name="orders", topic_id=topic_id)
        return await asyncio.wait_for(authority.create(request, lambda: 0.05), 20)

    return asyncio.run(run())


class Taking(Commands):
    """Takes what it is given."""

    def __init__(self) -> None:
        pass

    async def propose(self, command: Command) -> object:
        return None


def test_a_topic_has_the_id_that_its_caller_drew() -> None:
    """So that a late copy of the call is known as one."""
    topic, missing = created(GIVEN, Taking())
    assert topic.topic_id == GIVEN
    assert missing == []
    drawn, _ = created(b"", Taking())
    assert len(drawn.topic_id) == ID_SIZE
    assert drawn.topic_id != GIVEN


def test_another_group_that_does_not_answer_is_missing_and_not_waited_for() -> None:
    """The topic exists: a caller who waits in vain would take it for unknown."""
    _, missing = created(GIVEN, Hanging())
    assert missing == [OTHER_GROUP]
