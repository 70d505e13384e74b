"""Only what the coordinator granted raises the fence of a queue (D21).

Owns the rule: a claim whose epoch is above that of the row is proposed only when the coordinator
says that this consumer has this queue, now, by this epoch. So no number that somebody made up can
close a queue. All other epochs that consumers send are compared for equality, and raise nothing.
Both ends of the question are here. Not: what a claim does (`dledger.state.progress.claims`).

The home group of a queue and the coordinator may be two broker groups, so the leader of the home
group asks before it proposes. The answer may be old when the claim is applied: another consumer was
granted the queue since. Then its epoch is higher, and the fence decides as ever.

The answer also says for how long the group has wanted each queue. A group that begins last begins
there (`dledger.state.progress.start`). It is a length of time, since the clocks of two leaders
differ. The home group counts it back from the moment at which it asked: so nothing is missed, and
at most what came while the question was on its way is read, too.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

import grpc.aio
from google.protobuf.message import DecodeError

from dledger.state.consumers.settings import GroupSettings, StartFrom
from dledger.state.consumers.table import ConsumerGroup, Epochs, QueueKey
from dledger.state.progress.start import NewQueue
from dledger.state.values import Topic
from dledger_broker.cluster.channels import GROUP_KEY, Channels
from dledger_broker.cluster.view import ClusterView
from dledger_broker.delivery.subscribed import Subscription
from dledger_broker.group.group_view import GroupView
from dledger_broker.usecases.messaging import Queue
from dledger_broker.usecases.progress import Wanted
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc import raw, status
from dledger_proto.v1 import delivery_pb2 as pb

CHECK_METHOD: Final = "/dledger.v1.Delivery/CheckGrants"
ASK_SECONDS: Final = 1.0
"""How long a claim waits for the coordinator, in all. Renewals that came with it wait, too."""
NOT_KNOWN: Final = -1


class Checked(NamedTuple):
    """What may be proposed."""

    wanted: list[Wanted]
    """In the place of a claim that may not be proposed: why not."""
    begin: list[NewQueue]
    """Where the group has not begun, and it is known since when it wants the queue."""


class Grants:
    """Asks the coordinators of consumer groups, for one broker group."""

    def __init__(self, view: GroupView, cluster: ClusterView, channels: Channels) -> None:
        self._view = view
        self._cluster = cluster
        self._channels = channels

    async def checked(
        self, consumer_group: str, member_id: str, wanted: Sequence[Wanted]
    ) -> Checked:
        """Ask the coordinator about all that raises a fence."""
        retry, settings = await self._group(consumer_group)
        asked: list[tuple[int, Queue, int]] = []
        new: set[int] = set()
        for at, (queue, epoch) in enumerate(wanted):
            if isinstance(queue, Queue):
                fence = self._fence(consumer_group, queue)
                if epoch > (fence or 0):
                    asked.append((at, queue, epoch))
                if fence is None:
                    new.add(at)
        checked = Checked(list(wanted), [])
        if not asked:
            return checked
        request = pb.CheckGrantsRequest(consumer_group=consumer_group, member_id=member_id)
        for _, queue, epoch in asked:
            request.queues.add(topic_id=queue.topic_id, queue=queue.number, epoch=epoch)
        asked_ms = self._view.host.time_ms or 0
        try:
            if settings.coordinator == self._view.names.group:
                await self._view.confirm()
                reply = await granted(self._view, retry, settings, request, asked_ms)
            else:
                reply = await self._asked(settings.coordinator, request)
        except DledgerError as error:
            for at, _, epoch in asked:
                checked.wanted[at] = error, epoch
            return checked
        for (at, queue, epoch), is_granted, ms in zip(
            asked, reply.granted, reply.wanted_ms, strict=True
        ):
            if not is_granted:
                refusal = f"epoch {epoch}: the coordinator did not grant the queue to {member_id}"
                checked.wanted[at] = DledgerError(Code.FENCED, refusal), epoch
            elif at in new and ms != NOT_KNOWN:
                since_ms = max(1, asked_ms - ms)
                checked.begin.append(NewQueue(queue.topic_id, queue.number, since_ms))
        return checked

    async def _group(self, consumer_group: str) -> tuple[Topic, GroupSettings]:
        queries = self._view.machine.queries
        known = queries.group_by_name(consumer_group)
        if known is None:
            await self._view.confirm()
            known = queries.group_by_name(consumer_group)
        if known is None:
            raise DledgerError(
                Code.CONSUMER_GROUP_NOT_FOUND, f"no consumer group is called {consumer_group!r}"
            )
        return known

    def _fence(self, consumer_group: str, queue: Queue) -> int | None:
        queries = self._view.machine.queries
        try:
            return queries.fence_of(consumer_group, queue.topic_id, queue.number)
        except DledgerError:  # what is not known here yet may be known when the claim is applied
            return None

    async def _asked(self, coordinator: str, request: pb.CheckGrantsRequest) -> pb.CheckGrantsReply:
        data, metadata = request.SerializeToString(), ((GROUP_KEY, coordinator),)
        until = self._view.clock.monotonic() + ASK_SECONDS
        problem = "no member of it is known here"
        for member in self._cluster.members(coordinator):
            left = until - self._view.clock.monotonic()
            if left <= 0:
                break
            unary = raw.raw_unary(self._channels.to(member), CHECK_METHOD)
            try:
                answer = await unary(data, timeout=left, metadata=metadata)
                reply = pb.CheckGrantsReply.FromString(answer)
            except grpc.aio.AioRpcError as error:
                refusal = status.from_rpc_error(error, write=False)
                if refusal.code is Code.CONSUMER_GROUP_NOT_FOUND:
                    raise refusal from None
                problem = f"{member}: {refusal}"
            except DecodeError as error:
                problem = f"{member}: {error}"
            else:
                count = len(request.queues)
                if (len(reply.granted), len(reply.wanted_ms)) == (count, count):
                    return reply
                problem = f"{member}: {len(reply.granted)} answers to {count} questions"
        raise DledgerError(
            Code.UNAVAILABLE, f"cannot ask broker group {coordinator} for its grant: {problem}"
        )


async def granted(
    view: GroupView,
    retry: Topic,
    settings: GroupSettings,
    request: pb.CheckGrantsRequest,
    now_ms: int | None = None,
) -> pb.CheckGrantsReply:
    """Say which of the queues the consumer has by the epoch that it names, and since when."""
    rows = view.machine.queries.consumers(retry.topic_id)
    since: dict[bytes, int] = {}
    if settings.start is StartFrom.LAST:
        since = await _since(view, rows.epochs, {each.topic_id for each in request.queues})
    now_ms = (view.host.time_ms or 0) if now_ms is None else now_ms
    reply = pb.CheckGrantsReply()
    for each in request.queues:
        reply.granted.append(_is_granted(rows, request.member_id, each))
        since_ms = since.get(each.topic_id, 0)
        reply.wanted_ms.append(max(0, now_ms - since_ms) if since_ms else NOT_KNOWN)
    return reply


def _is_granted(rows: ConsumerGroup, consumer: str, asked: pb.GrantedQueue) -> bool:
    grant = rows.grants.get(QueueKey(asked.topic_id, asked.queue))
    return grant is not None and (grant.holder, grant.epoch) == (consumer, asked.epoch)


async def _since(view: GroupView, epochs: Epochs, topic_ids: set[bytes]) -> dict[bytes, int]:
    """Return since when a group wants topics, by the stamps of its coordinator."""
    since: dict[bytes, int] = {}
    subscriptions = [Subscription((each,)) for each in epochs.subscriptions]
    for topic_id in sorted(topic_ids):
        topic = view.machine.queries.topic_by_id(topic_id)
        if topic is None:
            continue
        times = zip(subscriptions, epochs.since_ms, strict=False)
        since[topic_id] = min((time_ms for each, time_ms in times if each.wants(topic)), default=0)
        await asyncio.sleep(0)
    return since
