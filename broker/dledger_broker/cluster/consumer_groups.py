"""Consumer groups of the whole cluster: what the control group's leader does about them (D20).

Owns: the layout of a new consumer group over all eligible broker groups, its coordinator, automatic
creation. Not owned: the rules of a consumer group (`dledger.state.consumers.groups`), telling other
groups of a decision (`topic_authority`), broker groups that join later (`group.widening`).
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from crc32c import crc32c

from dledger.state.commands.command import Command
from dledger.state.consumers.groups import (
    CreateConsumerGroup,
    DeleteConsumerGroup,
    UpdateConsumerGroup,
    check_fields,
)
from dledger.state.consumers.settings import GroupSettings
from dledger.state.consumers.table import Subscribed
from dledger.state.queries import Queries
from dledger.state.results import ConsumerGroupChanged
from dledger.state.values import LayoutPart, Topic
from dledger_broker.cluster.topic_authority import TopicAuthority
from dledger_broker.cluster.view import ClusterView
from dledger_broker.delivery.group_proto import group_message
from dledger_broker.delivery.subscribed import OF_A_GROUP, Subscription, check_patterns
from dledger_broker.group.group_view import CALL_SECONDS_MAX
from dledger_broker.rpc.topic_proto import settings_from_proto
from dledger_broker.usecases.messaging import ID_SIZE, Messaging, check_id
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import SUBSCRIPTIONS_MAX
from dledger_proto.names import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX, check_group_name
from dledger_proto.v1 import delivery_pb2 as pb


class ConsumerGroupAuthority:
    """What the control group's leader does about consumer groups."""

    def __init__(
        self,
        messaging: Messaging,
        cluster_view: ClusterView,
        topics: TopicAuthority,
        random: Random,
        *,
        auto_create: bool,
    ) -> None:
        self._messaging = messaging
        self._cluster = cluster_view
        self._topics = topics
        self._random = random
        self._auto_create = auto_create

    async def create(self, request: pb.CreateConsumerGroupRequest) -> pb.ConsumerGroupReply:
        """Create a consumer group; a caller that draws its id calls twice, as for a topic."""
        check_group_name("name", request.name)
        if request.id:
            check_id("id", request.id)
        if request.HasField("settings") and not request.fields:
            raise invalid("fields is empty: it must name the settings that are to be taken")
        view = self._messaging.view
        await view.confirm(CALL_SECONDS_MAX)
        applied = view.machine.applied_index
        if request.known_index > applied:
            raise invalid(f"known_index {request.known_index}, at most {applied} here")
        if request.automatic:
            known = view.machine.queries.group_by_name(request.name)
            if known is not None:
                return _reply(known[0])
            if not self._auto_create:
                raise DledgerError(
                    Code.CONSUMER_GROUP_NOT_FOUND,
                    f"consumer group {request.name} does not exist, and "
                    "consumer_groups.auto_create is false",
                )
            await self._check_subscriptions(request)
        _check_new_name(view.machine.queries, request.name)
        if request.id and not request.known_index:
            return pb.ConsumerGroupReply(known_index=applied)
        return await self._propose_create(request)

    async def _check_subscriptions(self, request: pb.CreateConsumerGroupRequest) -> None:
        """Raise what the Join of the first consumer would: a mistake leaves no group behind."""
        if len(request.subscriptions) > SUBSCRIPTIONS_MAX:
            raise invalid(
                f"{len(request.subscriptions)} subscriptions, at most {SUBSCRIPTIONS_MAX}"
            )
        subscribed = [
            Subscribed(each.topic, each.pattern)
            for each in request.subscriptions
            if each.pattern or not each.topic.startswith(OF_A_GROUP)  # its own come with it
        ]
        await check_patterns(subscribed)
        await Subscription(subscribed).check(self._messaging.view.machine.queries)

    async def _propose_create(
        self, request: pb.CreateConsumerGroupRequest
    ) -> pb.ConsumerGroupReply:
        broker_groups = self._cluster.groups()
        fields = tuple(request.fields)
        defaults = GroupSettings(
            coordinator=coordinator_of(request.name, broker_groups),
            dead_letter_topic_id=self._random.randbytes(ID_SIZE),
        )
        command = CreateConsumerGroup(
            group_id=request.id or self._random.randbytes(ID_SIZE),
            name=request.name,
            layout=tuple(LayoutPart(name, 1) for name in broker_groups),
            settings=_chosen(defaults, request.settings, fields),
            known_index=request.known_index or self._messaging.view.machine.applied_index,
        )
        try:
            return await self._changed(command)
        except DledgerError as error:
            found = self._messaging.view.machine.queries.group_by_name(request.name)
            # Two first consumers may ask at once, each for what it needs.
            if request.automatic and error.code is Code.CONSUMER_GROUP_EXISTS and found is not None:
                return _reply(found[0])
            raise

    async def update(self, request: pb.UpdateConsumerGroupRequest) -> pb.ConsumerGroupReply:
        """Change the settings that the request names."""
        if not request.fields:
            raise invalid("fields is empty: it must name the settings that are to change")
        fields = tuple(request.fields)
        check_fields(fields)
        retry, settings = await self._known(request.name)
        wanted = _chosen(settings, request.settings, fields)
        return await self._changed(UpdateConsumerGroup(retry.topic_id, fields, wanted))

    async def delete(self, request: pb.DeleteConsumerGroupRequest) -> pb.ConsumerGroupReply:
        """Delete a consumer group, with its retries and dead letters; its name is free again."""
        retry, _ = await self._known(request.name)
        return await self._changed(DeleteConsumerGroup(retry.topic_id))

    async def delete_all(
        self, group_ids: Sequence[bytes]
    ) -> tuple[list[Topic], list[DledgerError]]:
        """Delete consumer groups by id; return the retry topics of those, and the refusals."""
        commands = [DeleteConsumerGroup(group_id) for group_id in group_ids]
        results = await self._messaging.view.commands.propose_all(commands)
        refused = [result for result in results if isinstance(result, DledgerError)]
        deleted = [result for result in results if not isinstance(result, DledgerError)]
        if deleted:
            await self._topics.carry(
                *(topic for each in deleted for topic in (each.dead_letters, each.retry))
            )
        return [each.retry for each in deleted], refused

    async def _known(self, name: str) -> tuple[Topic, GroupSettings]:
        """Return a consumer group behind a barrier; CONSUMER_GROUP_NOT_FOUND."""
        check_group_name("name", name)
        view = self._messaging.view
        await view.confirm(CALL_SECONDS_MAX)
        found = view.machine.queries.group_by_name(name)
        if found is None:
            raise DledgerError(
                Code.CONSUMER_GROUP_NOT_FOUND, f"consumer group {name} does not exist"
            )
        return found

    async def _changed(self, command: Command[ConsumerGroupChanged]) -> pb.ConsumerGroupReply:
        result = await self._messaging.view.commands.propose(command)
        missing = await self._topics.carry(result.dead_letters, result.retry)
        return _reply(result.retry, missing)


def coordinator_of(name: str, broker_groups: Sequence[str]) -> str:
    """Return the broker group that is to keep the consumers of a new consumer group."""
    return broker_groups[crc32c(name.encode()) % len(broker_groups)]


def _check_new_name(queries: Queries, name: str) -> None:
    """Raise INVALID_ARGUMENT for a new group whose name looks like that of a group's topic."""
    for prefix in (RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX):
        if name.startswith(prefix) and queries.group_by_name(name) is None:
            raise invalid(
                f"name {name!r}: begins with {prefix}, as topics of consumer groups do; the group "
                f"is called {name.removeprefix(prefix)!r}"
            )


def _chosen(
    settings: GroupSettings, wanted: pb.ConsumerGroupSettings, fields: tuple[str, ...]
) -> GroupSettings:
    """Return the settings with those of `wanted` that `fields` names."""
    check_fields(fields)
    taken = settings_from_proto(wanted, settings.coordinator, settings.dead_letter_topic_id)
    return replace(settings, **{field: getattr(taken, field) for field in fields})


def _reply(retry: Topic, missing: Sequence[str] = ()) -> pb.ConsumerGroupReply:
    (settings,) = retry.settings
    return pb.ConsumerGroupReply(group=group_message(retry, settings), missing_groups=missing)
