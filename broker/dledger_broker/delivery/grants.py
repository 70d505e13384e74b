"""Only what the coordinator granted raises the fence of a queue (D21).

Owns the rule: a claim whose epoch is above that of the row is proposed only when the coordinator
says that this consumer has this queue, now, by this epoch. So no number that somebody made up can
close a queue. All other epochs that consumers send are compared for equality, and raise nothing.
Both ends of the question are here. Not: what a claim does (`dledger.state.progress.claims`).

The home group of a queue and the coordinator may be two broker groups, so the leader of the home
group asks before it proposes. The answer may be old when the claim is applied: another consumer was
granted the queue since. Then its epoch is higher, and the fence decides as ever.
"""

from collections.abc import Sequence
from typing import Final

import grpc.aio
from google.protobuf.message import DecodeError

from dledger.state.consumers.table import ConsumerGroup, QueueKey
from dledger_broker.cluster.channels import GROUP_KEY, Channels
from dledger_broker.cluster.view import ClusterView
from dledger_broker.group.group_view import GroupView
from dledger_broker.usecases.messaging import Queue
from dledger_broker.usecases.progress import Wanted
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc import raw, status
from dledger_proto.v1 import delivery_pb2 as pb

CHECK_METHOD: Final = "/dledger.v1.Delivery/CheckGrants"
ASK_SECONDS: Final = 1.0
"""How long a claim waits for the coordinator, in all. Renewals that came with it wait, too."""


class Grants:
    """Asks the coordinators of consumer groups, for one broker group."""

    def __init__(self, view: GroupView, cluster: ClusterView, channels: Channels) -> None:
        self._view = view
        self._cluster = cluster
        self._channels = channels

    async def checked(
        self, consumer_group: str, member_id: str, wanted: Sequence[Wanted]
    ) -> list[Wanted]:
        """Return what may be proposed; in the place of a claim that may not be: why not."""
        known = self._view.machine.queries.group_by_name(consumer_group)
        if known is None:
            await self._view.confirm()
            known = self._view.machine.queries.group_by_name(consumer_group)
        if known is None:
            raise DledgerError(
                Code.CONSUMER_GROUP_NOT_FOUND, f"no consumer group is called {consumer_group!r}"
            )
        retry, settings = known
        asked = [
            (at, queue, epoch)
            for at, (queue, epoch) in enumerate(wanted)
            if isinstance(queue, Queue) and self._raises(consumer_group, queue, epoch)
        ]
        checked = list(wanted)
        if not asked:
            return checked
        request = pb.CheckGrantsRequest(consumer_group=consumer_group, member_id=member_id)
        for _, queue, epoch in asked:
            request.queues.add(topic_id=queue.topic_id, queue=queue.number, epoch=epoch)
        try:
            if settings.coordinator == self._view.names.group:
                await self._view.confirm()
                reply = granted(self._view.machine.queries.consumers(retry.topic_id), request)
            else:
                reply = await self._asked(settings.coordinator, request)
        except DledgerError as error:
            for at, _, epoch in asked:
                checked[at] = error, epoch
            return checked
        for (at, _, epoch), is_granted in zip(asked, reply.granted, strict=True):
            if not is_granted:
                refusal = f"epoch {epoch}: the coordinator did not grant the queue to {member_id}"
                checked[at] = DledgerError(Code.FENCED, refusal), epoch
        return checked

    def _raises(self, consumer_group: str, queue: Queue, epoch: int) -> bool:
        try:
            fence = self._view.machine.queries.fence_of(
                consumer_group, queue.topic_id, queue.number
            )
        except DledgerError:  # what is not known here yet may be known when the claim is applied
            fence = 0
        return epoch > fence

    async def _asked(self, coordinator: str, request: pb.CheckGrantsRequest) -> pb.CheckGrantsReply:
        place = self._cluster.place(coordinator)
        data, metadata = request.SerializeToString(), ((GROUP_KEY, coordinator),)
        until = self._view.clock.monotonic() + ASK_SECONDS
        problem = "no member of it is known here"
        for address in place.where_to_ask() if place is not None else []:
            left = until - self._view.clock.monotonic()
            if left <= 0:
                break
            unary = raw.raw_unary(self._channels.to(address), CHECK_METHOD)
            try:
                answer = await unary(data, timeout=left, metadata=metadata)
                reply = pb.CheckGrantsReply.FromString(answer)
            except grpc.aio.AioRpcError as error:
                refusal = status.from_rpc_error(error, write=False)
                if refusal.code is Code.CONSUMER_GROUP_NOT_FOUND:
                    raise refusal from None
                problem = f"{address}: {refusal}"
            except DecodeError as error:
                problem = f"{address}: {error}"
            else:
                if len(reply.granted) == len(request.queues):
                    return reply
                problem = f"{address}: {len(reply.granted)} answers to {len(request.queues)}"
        raise DledgerError(
            Code.UNAVAILABLE, f"cannot ask broker group {coordinator} for its grant: {problem}"
        )


def granted(rows: ConsumerGroup, request: pb.CheckGrantsRequest) -> pb.CheckGrantsReply:
    """Say which of the queues the consumer has, by the epoch that it names."""
    reply = pb.CheckGrantsReply()
    for each in request.queues:
        grant = rows.grants.get(QueueKey(each.topic_id, each.queue))
        is_held = grant is not None and grant.holder == request.member_id
        reply.granted.append(grant is not None and is_held and grant.epoch == each.epoch)
    return reply
