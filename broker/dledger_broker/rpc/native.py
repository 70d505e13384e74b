"""The unary calls of `dledger.v1.Broker`: what clients ask about messages.

Owns the translation of protobuf. Not owned: what the calls do (`usecases.messaging`, `read`), which
member executes them (`table`, `calls`), the streams (`streams`).
"""

from collections.abc import Iterable, Sequence

from dledger.state.offsets import CommitOffset, DoneRange
from dledger.state.results import Taken
from dledger.state.users.values import Action
from dledger_broker.read import plan_reads as planning
from dledger_broker.read.lookups import Found, KeyQuestion
from dledger_broker.rpc.calls import Call
from dledger_broker.security import deciding
from dledger_broker.usecases import progress
from dledger_broker.usecases.messaging import Messaging, Queue
from dledger_broker.usecases.queues import resolve, resolve_each
from dledger_proto.limits import DETAIL_SIZE_MAX
from dledger_proto.v1 import broker_pb2 as pb


async def register_producer(
    call: Call, request: pb.RegisterProducerRequest
) -> pb.RegisterProducerReply:
    """Give a producer's life an epoch, or tell which life it would take over from (D11)."""
    registered = await call.messaging.register_producer(
        request.producer_id, request.life_id, request.epoch, call.user
    )
    if isinstance(registered, Taken):
        return pb.RegisterProducerReply(epoch=registered.epoch, taken=True)
    rows = [
        pb.QueueSequence(topic_id=row.topic_id, queue=row.queue, last_sequence=row.last_sequence)
        for row in registered.last
    ]
    return pb.RegisterProducerReply(epoch=registered.epoch, last=rows)


async def queue_offsets(call: Call, request: pb.QueueOffsetsRequest) -> pb.QueueOffsetsReply:
    """Return minimum and maximum of each queue."""
    queues = await _resolve_all(call.messaging, request.queues)
    bounds = await call.messaging.queue_offsets(queues, linearizable=request.linearizable)
    return pb.QueueOffsetsReply(
        rows=[
            pb.QueueOffsetsReply.Row(minimum=minimum, maximum=maximum)
            for minimum, maximum in bounds
        ]
    )


async def offset_by_time(call: Call, request: pb.OffsetByTimeRequest) -> pb.OffsetByTimeReply:
    """Return the offset of the first record that was stored at or after a time."""
    queue = await resolve(call.messaging, request.queue)
    offset = await call.messaging.offset_by_time(queue, request.time_ms)
    return pb.OffsetByTimeReply(offset=offset)


async def commit_offsets(call: Call, request: pb.CommitOffsetsRequest) -> pb.CommitOffsetsReply:
    """Store the next offset to consume of each queue."""
    queues = await resolve_each(call.messaging, [row.queue for row in request.offsets])
    done = [
        (
            queue,
            CommitOffset(
                b"",
                0,
                row.offset,
                row.metadata,
                row.epoch,
                row.resets,
                tuple(DoneRange(each.first, each.end) for each in row.done),
            ),
        )
        for queue, row in zip(queues, request.offsets, strict=True)
    ]
    committed = await progress.commit_offsets(
        call.messaging,
        request.consumer_group,
        done,
        reset=request.reset,
        member_id=request.member_id,
    )
    return pb.CommitOffsetsReply(
        codes=[int(code) for code in committed.codes], stored_offsets=committed.stored_offsets
    )


async def read_offsets(call: Call, request: pb.ReadOffsetsRequest) -> pb.ReadOffsetsReply:
    """Return the stored offset of each queue."""
    queues = await _resolve_all(call.messaging, request.queues)
    stored = await call.messaging.read_offsets(request.consumer_group, queues)
    return pb.ReadOffsetsReply(
        offsets=[
            pb.GroupOffset(queue=ref, offset=offset, metadata=metadata)
            for ref, (offset, metadata) in zip(request.queues, stored, strict=True)
        ]
    )


async def lookup_key(call: Call, request: pb.LookupKeyRequest) -> pb.LookupReply:
    """Return records of a topic with a key."""
    queue = await call.messaging.resolve(request.queue.topic, request.queue.topic_id, 0)
    question = KeyQuestion(
        queue.topic_id,
        request.key,
        request.begin_time_ms,
        request.end_time_ms,
        request.limit,
        request.cursor,
        request.places_only,
    )
    found, cursor = await call.messaging.lookups.by_key(question)
    return _lookup_reply(found, cursor)


async def lookup_message(call: Call, request: pb.LookupMessageRequest) -> pb.LookupReply:
    """Return the record of a message id."""
    found = await call.messaging.lookups.by_message_id(request.message_id)
    if found is None:
        return _lookup_reply([])
    topic = call.find_topic(found.topic_id)
    is_known = topic is not None and call.caller.may(Action.SUBSCRIBE, deciding.topic(topic.name))
    return _lookup_reply([found] if is_known else [])


async def lookup_offset(call: Call, request: pb.LookupOffsetRequest) -> pb.LookupReply:
    """Return the record at an offset of a queue."""
    queue = await resolve(call.messaging, request.queue)
    return _lookup_reply([await call.messaging.lookup_offset(queue, request.offset)])


async def plan_reads(call: Call, request: pb.PlanReadsRequest) -> pb.PlanReadsReply:
    """Return bounds, offsets by time and samples of many queues."""
    return await planning.plan_reads(call.messaging, request)


async def _resolve_all(messaging: Messaging, refs: Iterable[pb.QueueRef]) -> list[Queue]:
    return [await resolve(messaging, ref) for ref in refs]


def _lookup_reply(found: Sequence[Found], cursor: bytes = b"") -> pb.LookupReply:
    reply = pb.LookupReply(cursor=cursor)
    for each in found:
        row = reply.records.add(
            topic_id=each.topic_id,
            queue=each.queue,
            offset=each.offset,
            store_time_ms=each.store_time_ms,
            batch=each.batch,
        )
        if each.problem is not None:
            row.code, row.detail = int(each.problem.code), each.problem.detail[:DETAIL_SIZE_MAX]
    return reply
