"""Topics of the whole cluster: the control group decides, the others take over (D1, D14).

Owns: creating a topic with a layout over all eligible groups (S19-S21), and telling each other
group at once that there is a decision to fetch. Not owned: how a group takes a decision over
(`topic_follower`), the rules of a single topic (`dledger.state.topics`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

import structlog

from dledger.state.commands.command import Command
from dledger.state.results import TopicChanged
from dledger.state.topics.commands import CreateTopic, DeleteTopic, UpdateTopic
from dledger.state.topics.layout import first_queues, queues_of
from dledger.state.values import (
    PERMISSION_READ,
    PERMISSION_WRITE,
    LayoutPart,
    Retention,
    Topic,
    TopicType,
)
from dledger_broker.cluster.channels import Channels
from dledger_broker.cluster.telling import Telling
from dledger_broker.cluster.topic_follower import import_topics
from dledger_broker.cluster.view import ClusterView
from dledger_broker.group.group_view import CALL_SECONDS_MAX
from dledger_broker.rpc.topic_proto import layout_from_proto, topic_to_proto, topic_type
from dledger_broker.usecases.messaging import ID_SIZE, Messaging, check_id
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.names import check_topic_name
from dledger_proto.v1 import broker_pb2 as pb

PULL_METHOD: Final = "/dledger.v1.Admin/PullTopics"

OFFERED_TYPES = (TopicType.NORMAL, TopicType.FIFO, TopicType.DELAY, TopicType.PRIORITY)
"""The other type is reserved: this version does not do what its name promises."""


def _offered_type(number: int) -> TopicType:
    """Return the type; INVALID_ARGUMENT: unknown, UNIMPLEMENTED: reserved (D19)."""
    known = topic_type(number)
    if known not in OFFERED_TYPES:
        offered = ", ".join(each.name for each in OFFERED_TYPES)
        raise DledgerError(
            Code.UNIMPLEMENTED,
            f"topic type {known.name} is not part of this version, use {offered}",
        )
    return known


class TopicAuthority:
    """What the control group's leader does about topics."""

    def __init__(
        self,
        messaging: Messaging,
        cluster_view: ClusterView,
        channels: Channels,
        local: Mapping[str, Messaging],
        random: Random,
        *,
        auto_create: bool,
        default_queues_per_group: int,
    ) -> None:
        self._messaging = messaging
        self._cluster = cluster_view
        self._telling = Telling(messaging.view, cluster_view, channels)
        self._local = local
        self._random = random
        self._auto_create = auto_create
        self._default_queues = default_queues_per_group
        self._log = structlog.get_logger().bind(group=messaging.view.names.group)

    async def create(self, request: pb.CreateTopicRequest) -> pb.CreateTopicReply:
        """Create a topic; the reply has the topic, and the groups that have not taken it over yet.

        A caller that draws the topic's id calls twice. The first call creates nothing: it returns
        the index that the creation is to name (see `dledger.state.topics`). The second call names
        this index. ANSWER_BY bounds what comes before a proposal and after its commit.
        """
        check_topic_name(request.name)
        if request.topic_id:
            check_id("topic_id", request.topic_id)
        view = self._messaging.view
        await view.confirm(CALL_SECONDS_MAX)
        applied = view.machine.applied_index
        if request.known_index > applied:
            raise invalid(f"known_index {request.known_index}, at most {applied} here")
        known = view.machine.queries.topic_by_name(request.name)
        if request.automatic:
            if known is not None:
                return pb.CreateTopicReply(topic=topic_to_proto(known))
            if not self._auto_create:
                raise DledgerError(
                    Code.TOPIC_NOT_FOUND,
                    f"topic {request.name} does not exist, and topics.auto_create is false",
                )
        if request.topic_id and not request.known_index:
            return pb.CreateTopicReply(known_index=applied)
        topic = await self._propose_create(request, known)
        missing = await self.carry(topic)
        return pb.CreateTopicReply(topic=topic_to_proto(topic), missing_groups=missing)

    async def _propose_create(self, request: pb.CreateTopicRequest, known: Topic | None) -> Topic:
        groups = list(dict.fromkeys(request.groups)) or self._cluster.groups()
        self._check_known("groups", groups)
        queues = request.write_queues_per_group or self._default_queues
        layout = tuple(LayoutPart(name, queues) for name in groups)
        read_queues = queues_of(layout)
        if known is not None and _is_as_asked(known, request):
            layout, read_queues = first_queues(known.layout, known.write_queues), known.read_queues
        command = CreateTopic(
            topic_id=request.topic_id or self._random.randbytes(ID_SIZE),
            name=request.name,
            type=_offered_type(request.type),
            layout=layout,
            read_queues=request.read_queues or read_queues,
            permission=request.permission or PERMISSION_READ | PERMISSION_WRITE,
            known_index=request.known_index or self._messaging.view.machine.applied_index,
            retention=Retention(request.retention_ms, request.retention_bytes),
        )
        try:
            return await self._changed(command)
        except DledgerError as error:
            found = self._messaging.view.machine.queries.topic_by_name(request.name)
            if request.automatic and error.code is Code.TOPIC_EXISTS and found is not None:
                return found
            raise

    async def update(self, request: pb.UpdateTopicRequest) -> tuple[Topic, list[str]]:
        """Change permission, read queues or layout; return the topic, and the missing groups."""
        # Behind a barrier: a new leader may not have applied yet that the name has another topic.
        topic = await self._messaging.topic_now(request.name, CALL_SECONDS_MAX)
        layout = layout_from_proto(request.layout)
        known = {part.group for part in topic.layout}
        self._check_known("layout", [part.group for part in layout if part.group not in known])
        command = UpdateTopic(
            topic.topic_id,
            layout=layout,
            read_queues=request.read_queues,
            permission=request.permission,
            retention_time_ms=(request.retention_ms,) if request.HasField("retention_ms") else (),
            retention_size=(
                (request.retention_bytes,) if request.HasField("retention_bytes") else ()
            ),
        )
        changed = await self._changed(command)
        return changed, await self.carry(changed)

    async def delete(self, request: pb.DeleteTopicRequest) -> tuple[Topic, list[str]]:
        """Delete a topic; its name is free for another one. Return as `update`."""
        topic = await self._messaging.topic_now(request.name, CALL_SECONDS_MAX)
        deleted = await self._changed(DeleteTopic(topic.topic_id))
        return deleted, await self.carry(deleted)

    def _check_known(self, field: str, groups: Sequence[str]) -> None:
        """Raise INVALID_ARGUMENT for a group that this process does not know."""
        unknown = [name for name in groups if self._cluster.place(name) is None]
        if unknown:
            raise invalid(
                f"{field}: no group has the name {', '.join(map(repr, unknown))}, known are "
                f"{', '.join(self._cluster.groups())}"
            )

    async def carry(self, *topics: Topic) -> list[str]:
        """Tell every other group of a decision; return those that did not take it over in time."""
        names = self._telling.others()
        holders = {part.group: None for topic in topics for part in topic.layout}
        names += [name for name in holders if name not in (*names, self._own_group)]
        missing = await self._telling.missing(names, lambda group: self._carry_to(group, topics))
        if missing:
            self._log.warning(
                "some groups do not have the topic yet", topic=topics[-1].name, missing=missing
            )
        return missing

    @property
    def _own_group(self) -> str:
        return self._messaging.view.names.group

    async def _carry_to(self, group: str, topics: Sequence[Topic]) -> bool:
        local = self._local.get(group)
        if local is not None and local.view.leads:
            try:
                return not await import_topics(local, topics, self._messaging.view.log.group_id)
            except DledgerError:
                return False
        last = topics[-1]  # whoever pulls takes over all that was decided
        request = pb.PullTopicsRequest(topic_id=last.topic_id, control_index=last.control_index)
        return await self._telling.pulled(group, PULL_METHOD, request.SerializeToString())

    async def _changed(self, command: Command[TopicChanged]) -> Topic:
        result = await self._messaging.view.commands.propose(command)
        return result.topic


def _is_as_asked(known: Topic, request: pb.CreateTopicRequest) -> bool:
    """Tell whether a topic has what a creation asks for.

    A call that is repeated finds the same topic, whatever groups were added since.
    """
    written: Counter[str] = Counter()
    for part in first_queues(known.layout, known.write_queues):
        written[part.group] += part.queues
    asked = request.write_queues_per_group
    if asked and any(queues != asked for queues in written.values()):
        return False
    return not request.groups or set(request.groups) == written.keys()
