"""What the control group's leader does about consumer groups: ids, layout, automatic creation."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, cast

import pytest

from dledger.state.commands.command import Command
from dledger.state.consumers.groups import CreateConsumerGroup, UpdateConsumerGroup
from dledger.state.consumers.settings import GroupSettings
from dledger.state.results import Refused
from dledger.state.values import LayoutPart
from dledger_broker.cluster.channels import Channels
from dledger_broker.cluster.consumer_groups import ConsumerGroupAuthority, coordinator_of
from dledger_broker.cluster.topic_authority import TopicAuthority
from dledger_broker.cluster.view import ClusterView
from dledger_broker.group.group_view import ANSWER_BY
from dledger_broker.usecases.messaging import ID_SIZE
from dledger_proto.errors import Code, DledgerError
from dledger_proto.v1 import delivery_pb2 as pb
from tests.unit.broker.fakes import NAMES, FakeCommands
from tests.unit.broker.test_messaging import FakeQueries, Host, messaging
from tests.unit.broker.test_topic_authority import OTHER_GROUP, Knowing, Taking, View
from tests.unit.state.kit import Driven

GIVEN = b"n" * ID_SIZE
LAYOUT = LayoutPart(NAMES.group, 1), LayoutPart(OTHER_GROUP, 1)


class Applying(FakeCommands):
    """Applies what is proposed to a state machine."""

    def __init__(self) -> None:
        self.driven = Driven(group=NAMES.group)
        self.driven.idle(9)
        self.proposed: list[Command[object]] = []
        self.before: Callable[[], object] = lambda: None

    async def propose(self, command: Command[Any]) -> Any:
        self.before()
        self.proposed.append(command)
        result = self.driven.one(command)
        if isinstance(result, Refused):
            raise DledgerError(result.code, result.detail)
        return result


class Cluster:
    """The control group's leader, and another group."""

    def __init__(self, *, auto_create: bool = True) -> None:
        self.applying = Applying()
        queries = cast("FakeQueries", self.applying.driven.machine.queries)
        mine = messaging(Host(), b"", 0, queries, self.applying, applied_index=9)
        ANSWER_BY.set(mine.view.clock.monotonic() + 0.05)
        view, random = cast("ClusterView", View()), Random(1)
        topics = TopicAuthority(
            mine, view, cast("Channels", None),
            {OTHER_GROUP: messaging(Host(), b"", 0, Knowing(), Taking())},
            random, auto_create=True, default_queues_per_group=2,
        )  # fmt: skip
        self.authority = ConsumerGroupAuthority(mine, view, topics, random, auto_create=auto_create)

    async def create(self, **fields: Any) -> pb.ConsumerGroupReply:
        request = pb.CreateConsumerGroupRequest(**{"name": "billing", **fields})
        return await self.authority.create(request)


def in_cluster(
    test: Callable[[Cluster], Coroutine[Any, Any, None]], *, auto_create: bool = True
) -> None:
    async def run() -> None:
        await asyncio.wait_for(test(Cluster(auto_create=auto_create)), 20)

    asyncio.run(run())


def test_a_group_lies_in_all_broker_groups_and_has_the_defaults() -> None:
    async def test(cluster: Cluster) -> None:
        reply = await cluster.create()
        (command,) = cluster.applying.proposed
        assert isinstance(command, CreateConsumerGroup)
        assert command.layout == LAYOUT
        assert command.known_index == 9, "nobody was told the id before"
        assert reply.group.coordinator == coordinator_of("billing", (NAMES.group, OTHER_GROUP))
        assert reply.group.settings.retries_max == 16
        assert reply.group.id != reply.group.dead_letter_topic_id
        assert reply.missing_groups == []

    in_cluster(test)


def test_the_name_decides_the_coordinator() -> None:
    """CRC32C modulo the groups, as docs/delivery.md says."""
    assert coordinator_of("123456789", tuple("abcdefg")) == "c", "0xe3069283 % 7"
    drawn = {coordinator_of(f"group{number}", ("a", "b", "c")) for number in range(20)}
    assert drawn == {"a", "b", "c"}


def test_only_what_is_named_is_taken() -> None:
    async def test(cluster: Cluster) -> None:
        wanted = pb.ConsumerGroupSettings(retries_max=3, paused=True, session_ms=99)
        reply = await cluster.create(settings=wanted, fields=["retries_max"])
        assert reply.group.settings.retries_max == 3
        assert reply.group.settings.session_ms == 10_000
        assert not reply.group.settings.paused
        changed = await cluster.authority.update(
            pb.UpdateConsumerGroupRequest(name="billing", settings=wanted, fields=["paused"])
        )
        assert changed.group.settings.paused
        assert changed.group.coordinator == reply.group.coordinator
        update = cluster.applying.proposed[-1]
        assert isinstance(update, UpdateConsumerGroup)
        assert update.fields == ("paused",)

    in_cluster(test)


def test_who_draws_the_id_asks_for_an_index_first() -> None:
    async def test(cluster: Cluster) -> None:
        for automatic in (False, True):
            reply = await cluster.create(id=GIVEN, automatic=automatic)
            assert reply == pb.ConsumerGroupReply(known_index=9)
        assert cluster.applying.proposed == []
        with pytest.raises(DledgerError, match="known_index 10, at most 9"):
            await cluster.create(id=GIVEN, known_index=10)
        assert (await cluster.create(id=GIVEN, known_index=8)).group.id == GIVEN
        (command,) = cluster.applying.proposed
        assert isinstance(command, CreateConsumerGroup)
        assert command.known_index == 8

    in_cluster(test)


def test_a_first_consumer_finds_the_group_whatever_its_settings() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create(settings={"order": pb.CONSUME_ORDER_KEY}, fields=["order"])
        reply = await cluster.create(automatic=True)
        assert reply.group.settings.order == pb.CONSUME_ORDER_KEY
        with pytest.raises(DledgerError, match="order KEY, not CONCURRENT") as caught:
            await cluster.create()
        assert caught.value.code is Code.CONSUMER_GROUP_EXISTS

    in_cluster(test)


def test_of_two_first_consumers_at_once_the_second_finds_the_group() -> None:
    async def test(cluster: Cluster) -> None:
        def other() -> None:
            cluster.applying.before = lambda: None
            settings = GroupSettings(NAMES.group, b"d" * ID_SIZE, retries_max=1)
            cluster.applying.driven.one(CreateConsumerGroup(GIVEN, "billing", LAYOUT, settings))

        cluster.applying.before = other
        reply = await cluster.create(automatic=True)
        assert reply.group.id == GIVEN
        assert reply.group.settings.retries_max == 1

    in_cluster(test)


def test_automatic_creation_can_be_switched_off() -> None:
    async def test(cluster: Cluster) -> None:
        with pytest.raises(DledgerError, match=r"consumer_groups\.auto_create is false") as caught:
            await cluster.create(automatic=True)
        assert caught.value.code is Code.CONSUMER_GROUP_NOT_FOUND
        await cluster.create()
        assert (await cluster.create(automatic=True)).group.name == "billing"

    in_cluster(test, auto_create=False)


def test_deletion_takes_the_group_away() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create()
        deleted = await cluster.authority.delete(pb.DeleteConsumerGroupRequest(name="billing"))
        assert deleted.group.name == "billing"
        with pytest.raises(DledgerError, match="billing does not exist") as caught:
            await cluster.authority.delete(pb.DeleteConsumerGroupRequest(name="billing"))
        assert caught.value.code is Code.CONSUMER_GROUP_NOT_FOUND

    in_cluster(test)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "a b"}, "name 'a b'"),
        ({"name": "%RETRY%x"}, "name '%RETRY%x': begins with %RETRY%.* is called 'x'"),
        ({"name": "%DLQ%x", "automatic": True}, "name '%DLQ%x': begins with %DLQ%"),
        ({"id": b"short"}, "id of 5 bytes"),
        ({"settings": {"retries_max": 1}}, "fields is empty"),
        ({"fields": ["coordinator"]}, "fields 'coordinator'"),
        ({"settings": {"session_ms": 5}, "fields": ["session_ms"]}, "session_ms 5"),
        ({"settings": {"order": 7}, "fields": ["order"]}, "order 7, must be one of"),
        ({"settings": {"strategy": "x"}, "fields": ["strategy"]}, "strategy 'x'"),
    ],
)
def test_bad_input_is_named_and_creates_nothing(fields: dict[str, Any], words: str) -> None:
    async def test(cluster: Cluster) -> None:
        with pytest.raises(DledgerError, match=words) as caught:
            await cluster.create(**fields)
        assert caught.value.code is Code.INVALID_ARGUMENT
        assert cluster.applying.driven.machine.queries.topics() == []

    in_cluster(test)


@pytest.mark.parametrize(
    ("subscription", "code", "words"),
    [
        ({"topic": "nothing"}, Code.TOPIC_NOT_FOUND, "topic 'nothing' does not exist"),
        ({"topic": "a(", "pattern": True}, Code.INVALID_ARGUMENT, "without its"),
        ({"topic": "a+", "pattern": True}, Code.TOPIC_NOT_FOUND, "matches none of 0 topics"),
    ],
)
def test_a_first_consumer_that_would_be_refused_creates_nothing(
    subscription: dict[str, Any], code: Code, words: str
) -> None:
    async def test(cluster: Cluster) -> None:
        with pytest.raises(DledgerError, match=words) as caught:
            await cluster.create(automatic=True, subscriptions=[subscription])
        assert caught.value.code is code
        assert cluster.applying.driven.machine.queries.topics() == []
        own = [{"topic": "%RETRY%billing"}]
        assert (await cluster.create(automatic=True, subscriptions=own)).group.name == "billing"

    in_cluster(test)


def test_an_update_names_what_changes() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.create()
        with pytest.raises(DledgerError, match="fields is empty"):
            await cluster.authority.update(pb.UpdateConsumerGroupRequest(name="billing"))
        with pytest.raises(DledgerError, match="nobody does not exist"):
            await cluster.authority.update(
                pb.UpdateConsumerGroupRequest(name="nobody", fields=["paused"])
            )

    in_cluster(test)
