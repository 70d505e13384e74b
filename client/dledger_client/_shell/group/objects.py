"""Consumer groups as objects of the cluster: create, change, delete, find, list.

Owns: which calls that takes, and the values of the wire. Not: who is in a group, and where it is
(`membership.py`, `admin.py`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from dledger_client import _machine
from dledger_client._core.arguments import UINT32_MAX, check_integer
from dledger_client._core.ids import ID_SIZE
from dledger_client._core.message_checks import check_group
from dledger_client._shell import calls
from dledger_client._shell.cluster import Cluster
from dledger_client._shell.queries import Queries
from dledger_client.config import ConsumeOrder
from dledger_client.errors import ConsumerGroupNotFound, TopicNotFound, invalid
from dledger_client.model import ConsumerGroup, ConsumerGroupSettings, StartFrom
from dledger_proto.errors import Code
from dledger_proto.names import RETRY_TOPIC_PREFIX
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import delivery_pb2 as dpb

NUMBERS: Final = frozenset(
    ("retries_max", "session_ms", "lease_ms", "pause_failures", "pause_share")
)


class ConsumerGroups:
    """Calls about consumer groups, to the control group."""

    def __init__(self, cluster: Cluster, queries: Queries) -> None:
        self._cluster = cluster
        self._queries = queries

    async def create(
        self,
        name: str,
        settings: ConsumerGroupSettings,
        *,
        automatic: bool = False,
        only_find: bool = False,
        subscriptions: Sequence[dpb.Subscription] = (),
    ) -> dpb.ConsumerGroup:
        """Create a consumer group by two calls, as `Queries.create` does a topic.

        `automatic`: take the group as it is when it exists. `only_find`: do not create it.
        `subscriptions` of its first consumer: none of them may be a mistake.
        """
        check_group(name)
        request = dpb.CreateConsumerGroupRequest(
            name=name,
            automatic=automatic,
            id=_machine.random_bytes(ID_SIZE),
            fields=settings.keys(),
            subscriptions=subscriptions,
        )
        if settings:
            request.settings.CopyFrom(wire_settings(settings))
        control = await self._queries.control_group()
        loop = asyncio.get_running_loop()
        budget_ms = self._cluster.config.call_timeout_ms
        deadline = loop.time() + budget_ms / 1_000
        reply = await self._cluster.call(calls.LOOK_FOR_GROUP, request, group=control)
        if not reply.HasField("group"):
            if only_find:
                raise _not_found(name)
            request.known_index = reply.known_index
            left_ms = max(1.0, (deadline - loop.time()) * 1_000)
            reply = await self._cluster.call(
                calls.CREATE_GROUP, request, group=control, timeout_ms=left_ms
            )
        return reply.group

    async def update(self, name: str, settings: ConsumerGroupSettings) -> ConsumerGroup:
        """Change the settings that are given."""
        check_group(name)
        if not settings:
            raise invalid("settings: none is given, nothing to change")
        request = dpb.UpdateConsumerGroupRequest(
            name=name, settings=wire_settings(settings), fields=settings.keys()
        )
        control = await self._queries.control_group()
        reply = await self._cluster.call(calls.UPDATE_GROUP, request, group=control)
        return group_of(reply.group)

    async def delete(self, name: str) -> ConsumerGroup:
        """Delete a consumer group; return it as it was."""
        check_group(name)
        control = await self._queries.control_group()
        request = dpb.DeleteConsumerGroupRequest(name=name)
        reply = await self._cluster.call(calls.DELETE_GROUP, request, group=control)
        return group_of(reply.group)

    async def find(self, name: str) -> ConsumerGroup:
        """Return a consumer group as the control group has it; ConsumerGroupNotFound."""
        check_group(name)
        request = pb.DescribeTopicRequest(name=RETRY_TOPIC_PREFIX + name)
        control = await self._queries.control_group()
        try:
            reply = await self._cluster.call(calls.DESCRIBE_TOPIC, request, group=control)
        except TopicNotFound:
            raise _not_found(name) from None
        if not reply.topic.HasField("consumer_group"):
            raise _not_found(name)
        return _group_of_topic(reply.topic)

    async def all(self) -> list[ConsumerGroup]:
        """Return all consumer groups as the control group has them, by name."""
        topics = await self._queries.all_topics()
        found = [_group_of_topic(topic) for topic in topics if topic.HasField("consumer_group")]
        return sorted(found, key=lambda group: group.name)


def wire_settings(settings: ConsumerGroupSettings) -> pb.ConsumerGroupSettings:
    """Return the settings that are given; INVALID_ARGUMENT for a value of the wrong kind."""
    values: dict[str, object] = dict(settings)
    for name in NUMBERS & values.keys():
        check_integer(name, values[name], UINT32_MAX)
    if "start_time_ms" in settings:
        check_integer("start_time_ms", settings["start_time_ms"])
    for place, delay in enumerate(settings.get("retry_delays_ms", ())):
        check_integer(f"retry_delays_ms[{place}]", delay, UINT32_MAX)
    kinds: Mapping[str, type] = {
        "order": ConsumeOrder, "start": StartFrom, "dead_letters": bool, "paused": bool,
        "strategy": str,
    }  # fmt: skip
    for name, kind in kinds.items():
        if name in values and not isinstance(values[name], kind):
            raise invalid(f"{name} {values[name]!r}: must be {kind.__name__}")
    try:
        return pb.ConsumerGroupSettings(**values)  # type: ignore[arg-type]
    except ValueError as error:  # a name that is none, or text that is none
        raise invalid(f"settings: {error}") from None


def group_of(group: dpb.ConsumerGroup) -> ConsumerGroup:
    """Return a consumer group as users see it."""
    settings = group.settings
    return ConsumerGroup(
        name=group.name,
        id=group.id,
        coordinator=group.coordinator,
        dead_letter_topic_id=group.dead_letter_topic_id,
        control_index=group.control_index,
        order=ConsumeOrder(settings.order),
        retry_delays_ms=tuple(settings.retry_delays_ms),
        retries_max=settings.retries_max,
        dead_letters=settings.dead_letters,
        start=StartFrom(settings.start),
        start_time_ms=settings.start_time_ms,
        session_ms=settings.session_ms,
        lease_ms=settings.lease_ms,
        strategy=settings.strategy,
        pause_failures=settings.pause_failures,
        pause_share=settings.pause_share,
        paused=settings.paused,
    )


def _group_of_topic(topic: pb.Topic) -> ConsumerGroup:
    return group_of(
        dpb.ConsumerGroup(
            id=topic.id,
            name=topic.name.removeprefix(RETRY_TOPIC_PREFIX),
            settings=topic.consumer_group,
            coordinator=topic.coordinator,
            dead_letter_topic_id=topic.dead_letter_topic_id,
            control_index=topic.control_index,
        )
    )


def _not_found(name: str) -> ConsumerGroupNotFound:
    return ConsumerGroupNotFound(
        Code.CONSUMER_GROUP_NOT_FOUND, f"consumer group {name} does not exist"
    )
