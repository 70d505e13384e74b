"""Topics of the whole cluster: decided by the control group, taken over by the others (D1, D14).

Owns: creating with a layout over all eligible groups (S19-S21), carrying the decision to each
group at once, and the loop by which a group's leader fetches what it missed. Not owned: the rules
of a single topic (`dledger.state.topics`). Every step is idempotent and stamped with the control
group's log index, so repeating and reordering do no harm.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from dledger.raft.host import Leadership
from dledger.raft.tasks import end_task
from dledger.state import command as commands
from dledger.state.queries import Queries
from dledger.state.results import TopicChanged
from dledger.state.values import PERMISSION_READ, PERMISSION_WRITE, LayoutPart, Topic, TopicType
from dledger_broker.cluster_view import ClusterView
from dledger_broker.convert import topic_from_proto, topic_to_proto, topic_type
from dledger_broker.forward import GROUP_KEY, Channels
from dledger_broker.messaging import ID_SIZE, Messaging, check_id
from dledger_broker.tasks import keep_running
from dledger_proto import raw, status
from dledger_proto.errors import Code, DledgerError
from dledger_proto.names import check_topic_name
from dledger_proto.v1 import broker_pb2 as pb

IMPORT_METHOD: Final = "/dledger.v1.Admin/ImportTopics"
LIST_METHOD: Final = "/dledger.v1.Admin/ListTopics"
CARRY_SECONDS: Final = 2.0
"""How long another group is waited for before it is reported as missing: it takes it later."""
PULL_SECONDS: Final = 5.0
"""How often a leader asks the control group what it missed; at once when it becomes leader."""
TOPICS_PER_CALL_MAX: Final = 256
FINAL_REFUSALS: Final = (Code.STALE_LAYOUT, Code.TOPIC_NOT_FOUND, Code.INVALID_ARGUMENT)
"""Refusals that repeating does not change: known already, deleted here for good, no such topic."""


SecondsLeft = Callable[[], float]
"""Until a call must be answered."""

OFFERED_TYPES = (TopicType.NORMAL, TopicType.FIFO)
"""The others are reserved: a topic that promised delays and did not keep them would be a lie."""


def _offered_type(number: int) -> TopicType:
    """Return the type; INVALID_ARGUMENT for no type, UNIMPLEMENTED for a reserved one (D19)."""
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
        view: ClusterView,
        channels: Channels,
        local: Mapping[str, Messaging],
        random: Random,
        *,
        auto_create: bool,
        default_queues_per_group: int,
    ) -> None:
        self._messaging = messaging
        self._view = view
        self._channels = channels
        self._local = local
        self._random = random
        self._auto_create = auto_create
        self._default_queues = default_queues_per_group
        self._log = structlog.get_logger().bind(group=messaging.served.names.group)

    async def create(
        self, request: pb.CreateTopicRequest, seconds_left: SecondsLeft
    ) -> tuple[Topic, list[str]]:
        """Create a topic; returns it, and the groups that have not taken it yet.

        Here and below `seconds_left` bounds what comes before a proposal and behind its commit.
        """
        check_topic_name(request.name)
        if request.topic_id:
            check_id("topic_id", request.topic_id)
        await self._messaging.served.confirm(seconds_left())
        known = self._messaging.served.machine.topic_by_name(request.name)
        if request.automatic:
            if known is not None:
                return known, []
            if not self._auto_create:
                raise DledgerError(
                    Code.TOPIC_NOT_FOUND,
                    f"topic {request.name} does not exist, and topics.auto_create is false",
                )
        topic = await self._propose_create(request, known)
        return topic, await self.carry(topic, seconds_left())

    async def _propose_create(self, request: pb.CreateTopicRequest, known: Topic | None) -> Topic:
        groups = list(request.groups) or self._view.groups()
        unknown = [name for name in groups if self._view.place(name) is None]
        if unknown:
            raise DledgerError(
                Code.INVALID_ARGUMENT,
                f"groups: {', '.join(map(repr, unknown))} not known, known are "
                f"{', '.join(self._view.groups())}",
            )
        queues = request.write_queues_per_group or self._default_queues
        layout = tuple(LayoutPart(name, queues) for name in dict.fromkeys(groups))
        # The same call again finds the same topic, whatever groups have come up since.
        asked = request.write_queues_per_group
        if (
            known is not None
            and not request.groups
            and (not asked or all(part.write_queues == asked for part in known.layout))
        ):
            layout = known.layout
        command = commands.CreateTopic(
            topic_id=request.topic_id or self._random.randbytes(ID_SIZE),
            name=request.name,
            type=_offered_type(request.type),
            layout=layout,
            read_queues=request.read_queues or sum(part.write_queues for part in layout),
            permission=request.permission or PERMISSION_READ | PERMISSION_WRITE,
        )
        try:
            return await self._changed(command)
        except DledgerError as error:
            found = self._messaging.served.machine.topic_by_name(request.name)
            if request.automatic and error.code is Code.TOPIC_EXISTS and found is not None:
                return found
            raise

    async def update(self, request: pb.UpdateTopicRequest, seconds_left: SecondsLeft) -> Topic:
        """Change permission, read queues or layout of a topic."""
        # Behind a barrier: a new leader may not have applied that its name has another topic now.
        topic = await self._messaging.topic_now(request.name, seconds_left())
        command = commands.UpdateTopic(
            topic.topic_id,
            layout=tuple(LayoutPart(part.group, part.write_queues) for part in request.layout),
            read_queues=request.read_queues,
            permission=request.permission,
        )
        changed = await self._changed(command)
        await self.carry(changed, seconds_left())
        return changed

    async def delete(self, request: pb.DeleteTopicRequest, seconds_left: SecondsLeft) -> Topic:
        """Delete a topic; its name is free for another one."""
        topic = await self._messaging.topic_now(request.name, seconds_left())
        deleted = await self._changed(commands.DeleteTopic(topic.topic_id))
        await self.carry(deleted, seconds_left())
        return deleted

    async def carry(self, topic: Topic, seconds: float) -> list[str]:
        """Give a decision to every other group; returns those that have not taken it in time."""
        limit = min(seconds, CARRY_SECONDS)

        async def took(group: str) -> bool:
            try:
                async with asyncio.timeout(limit):
                    return await self._carry_to(group, topic)
            except TimeoutError:
                return False

        names = [name for name in self._view.groups() if name != self._own_group]
        names += [
            part.group for part in topic.layout if part.group not in (*names, self._own_group)
        ]
        taken = await asyncio.gather(*map(took, names))
        missing = [name for name, done in zip(names, taken, strict=True) if not done]
        if missing:
            self._log.warning("topic not carried yet", topic=topic.name, missing=missing)
        return missing

    @property
    def _own_group(self) -> str:
        return self._messaging.served.names.group

    async def _carry_to(self, group: str, topic: Topic) -> bool:
        local = self._local.get(group)
        if local is not None and local.served.leads:
            try:
                return not await import_topics(local, [topic])
            except DledgerError:
                return False
        place = self._view.place(group)
        request = pb.ImportTopicsRequest(topics=[topic_to_proto(topic)]).SerializeToString()
        for address in place.where_to_ask() if place is not None else ():
            try:
                unary = raw.raw_unary(self._channels.to(address), IMPORT_METHOD)
                await unary(request, timeout=CARRY_SECONDS, metadata=((GROUP_KEY, group),))
            except grpc.aio.AioRpcError as error:
                if status.from_rpc_error(error).code is Code.STALE_LAYOUT:
                    return True  # it knows a newer decision
                continue
            return True
        return False

    async def _changed(self, command: commands.Command) -> Topic:
        result = await self._messaging.served.commands.propose(command)
        assert isinstance(result, TopicChanged), result
        return result.topic


async def import_topics(messaging: Messaging, topics: Sequence[Topic]) -> list[DledgerError]:
    """Take over decisions of the control group; older ones than known are passed over.

    Returns the refusals of topics that will never be taken over, the others were. DledgerError for
    anything else, and then some may not have been.
    """
    served = messaging.served
    # What is known is not stored again: a leader asks for everything, and its disk may be low.
    news = [topic for topic in topics if not _knows(served.machine, topic)]
    results = await asyncio.gather(
        *(served.commands.propose(commands.ImportTopic(topic)) for topic in news),
        return_exceptions=True,
    )
    refused: list[DledgerError] = []
    for result in results:
        if isinstance(result, DledgerError) and result.code in FINAL_REFUSALS:
            refused.append(result)
        elif isinstance(result, BaseException):
            raise result
    return [error for error in refused if error.code is not Code.STALE_LAYOUT]


def _knows(machine: Queries, topic: Topic) -> bool:
    known = machine.topic_by_id(topic.topic_id)
    return known is not None and known.control_index >= topic.control_index


class TopicFollower:
    """Keeps a group that is not the control group up to date while this member leads it."""

    def __init__(
        self, messaging: Messaging, control_group: str, view: ClusterView, channels: Channels
    ) -> None:
        self._messaging = messaging
        self._control_group = control_group
        self._view = view
        self._channels = channels
        self._log = structlog.get_logger()
        self._wake = asyncio.Event()
        self._complete_up_to = 0
        """Everything the control group decided up to here is known; starts anew with each term."""
        self._task: asyncio.Task[None] | None = None
        messaging.served.host.watch_leadership(self._leadership_changed)

    def start(self) -> None:
        """Begin to follow."""
        work = keep_running(self._run, "topics")
        self._task = asyncio.get_running_loop().create_task(work, name="topics")

    async def stop(self) -> None:
        """End."""
        await end_task(self._task)

    def _leadership_changed(self, _leadership: Leadership) -> None:
        self._complete_up_to = 0
        self._wake.set()

    async def _run(self) -> None:
        while True:
            if self._messaging.served.leads:
                await self._pull()
            self._wake.clear()
            try:
                async with asyncio.timeout(PULL_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _pull(self) -> None:
        place = self._view.place(self._control_group)
        term = self._messaging.served.host.leadership.term
        request = pb.ListTopicsRequest(
            since_control_index=self._complete_up_to, with_deleted=True
        ).SerializeToString()
        for address in place.where_to_ask() if place is not None else ():
            try:
                unary = raw.raw_unary(self._channels.to(address), LIST_METHOD)
                metadata = ((GROUP_KEY, self._control_group),)
                answer = await unary(request, timeout=CARRY_SECONDS, metadata=metadata)
                reply = pb.ListTopicsReply.FromString(answer)
                topics = [topic_from_proto(topic) for topic in reply.topics]
                for first in range(0, len(topics), TOPICS_PER_CALL_MAX):
                    some = topics[first : first + TOPICS_PER_CALL_MAX]
                    for error in await import_topics(self._messaging, some):
                        # The others must not wait for it; once for each leader.
                        self._log.warning("topic not taken over", reason=str(error))
            except (grpc.aio.AioRpcError, DledgerError, DecodeError):
                continue  # the next address, or the next round
            if term == self._messaging.served.host.leadership.term:
                self._complete_up_to = max(self._complete_up_to, reply.control_index)
            return
