"""Topics of the whole cluster: decided by the control group, taken over by the others (D1, D14).

Owns: creating with a layout over all eligible groups (S19-S21), carrying the decision to each
group at once, and the loop by which a group's leader fetches what it missed. Not owned: the rules
of a single topic (`dledger.state.topics`). Every step is idempotent and stamped with the control
group's log index, so repeating and reordering do no harm.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
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
from dledger.state.topics import first_queues, queues_of
from dledger.state.values import PERMISSION_READ, PERMISSION_WRITE, LayoutPart, Topic, TopicType
from dledger_broker.calls import DEADLINE_MAX_SECONDS
from dledger_broker.cluster_view import ClusterView
from dledger_broker.convert import layout_from_proto, topic_from_proto, topic_to_proto, topic_type
from dledger_broker.forward import GROUP_KEY, Channels
from dledger_broker.messaging import ID_SIZE, Messaging, check_id
from dledger_broker.served import ANSWER_BY
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

    async def create(self, request: pb.CreateTopicRequest) -> tuple[Topic, list[str]]:
        """Create a topic; returns it, and the groups that have not taken it yet.

        Here and below ANSWER_BY bounds what comes before a proposal and behind its commit.
        """
        check_topic_name(request.name)
        if request.topic_id:
            check_id("topic_id", request.topic_id)
        await self._messaging.served.confirm(DEADLINE_MAX_SECONDS)
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
        return topic, await self.carry(topic)

    async def _propose_create(self, request: pb.CreateTopicRequest, known: Topic | None) -> Topic:
        groups = list(dict.fromkeys(request.groups)) or self._view.groups()
        self._check_known("groups", groups)
        queues = request.write_queues_per_group or self._default_queues
        layout = tuple(LayoutPart(name, queues) for name in groups)
        read_queues = queues_of(layout)
        if known is not None and _is_as_asked(known, request):
            layout, read_queues = first_queues(known.layout, known.write_queues), known.read_queues
        command = commands.CreateTopic(
            topic_id=request.topic_id or self._random.randbytes(ID_SIZE),
            name=request.name,
            type=_offered_type(request.type),
            layout=layout,
            read_queues=request.read_queues or read_queues,
            permission=request.permission or PERMISSION_READ | PERMISSION_WRITE,
        )
        try:
            return await self._changed(command)
        except DledgerError as error:
            found = self._messaging.served.machine.topic_by_name(request.name)
            if request.automatic and error.code is Code.TOPIC_EXISTS and found is not None:
                return found
            raise

    async def update(self, request: pb.UpdateTopicRequest) -> tuple[Topic, list[str]]:
        """Change permission, read queues or layout of a topic; returns as `create`."""
        # Behind a barrier: a new leader may not have applied that its name has another topic now.
        topic = await self._messaging.topic_now(request.name, DEADLINE_MAX_SECONDS)
        layout = layout_from_proto(request.layout)
        known = {part.group for part in topic.layout}
        self._check_known("layout", [part.group for part in layout if part.group not in known])
        command = commands.UpdateTopic(
            topic.topic_id,
            layout=layout,
            read_queues=request.read_queues,
            permission=request.permission,
        )
        changed = await self._changed(command)
        return changed, await self.carry(changed)

    async def delete(self, request: pb.DeleteTopicRequest) -> tuple[Topic, list[str]]:
        """Delete a topic; its name is free for another one. Returns as `create`."""
        topic = await self._messaging.topic_now(request.name, DEADLINE_MAX_SECONDS)
        deleted = await self._changed(commands.DeleteTopic(topic.topic_id))
        return deleted, await self.carry(deleted)

    def _check_known(self, field: str, groups: Sequence[str]) -> None:
        """Raise INVALID_ARGUMENT for a group that nobody has heard of."""
        unknown = [name for name in groups if self._view.place(name) is None]
        if unknown:
            raise DledgerError(
                Code.INVALID_ARGUMENT,
                f"{field}: {', '.join(map(repr, unknown))} not known, known are "
                f"{', '.join(self._view.groups())}",
            )

    async def carry(self, topic: Topic) -> list[str]:
        """Give a decision to every other group; returns those that have not taken it in time."""
        left = ANSWER_BY.get() - self._messaging.served.clock.monotonic()
        limit = max(0.0, min(left, CARRY_SECONDS))

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


def _is_as_asked(known: Topic, request: pb.CreateTopicRequest) -> bool:
    """Tell whether a topic has what a creation asks for, however it came to have it.

    The same call again finds the same topic, whatever groups have come up since.
    """
    written: Counter[str] = Counter()
    for part in first_queues(known.layout, known.write_queues):
        written[part.group] += part.queues
    asked = request.write_queues_per_group
    if asked and any(queues != asked for queues in written.values()):
        return False
    return not request.groups or set(request.groups) == written.keys()


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
