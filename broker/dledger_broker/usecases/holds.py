"""The holds of a group, listed in pages. Not owned: placing and releasing them (`messaging`)."""

from typing import Final

from dledger_broker.usecases.messaging import ID_SIZE, Messaging
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import GROUP_NAME_LENGTH_MAX
from dledger_proto.v1 import broker_pb2 as pb

HOLDS_PER_PAGE_MAX: Final = 1_000
AFTER_SIZE_MAX: Final = ID_SIZE + 4 + GROUP_NAME_LENGTH_MAX


async def list_holds(messaging: Messaging, request: pb.ListHoldsRequest) -> pb.ListHoldsReply:
    """Return a page of the holds that have not ended, behind a read barrier.

    TOPIC_NOT_FOUND, QUEUE_NOT_FOUND, WRONG_GROUP; INVALID_ARGUMENT for a cursor that no page gave.
    """
    if len(request.after) > AFTER_SIZE_MAX:
        raise DledgerError(
            Code.INVALID_ARGUMENT,
            f"after of {len(request.after)} bytes, at most {AFTER_SIZE_MAX}",
        )
    queue = request.queue if request.HasField("queue") else None
    if queue is not None and not request.topic:
        raise DledgerError(Code.INVALID_ARGUMENT, f"queue {queue} is given without a topic")
    view = messaging.view
    queries = view.machine.queries
    await view.confirm()
    topic_id = (await messaging.topic_named(request.topic)).topic_id if request.topic else None
    if topic_id is not None and queue is not None:
        queries.queue_bounds(topic_id, queue)  # raises unless this group holds it
    limit = min(request.limit or HOLDS_PER_PAGE_MAX, HOLDS_PER_PAGE_MAX)
    found, following = queries.holds(topic_id, queue, request.after, limit)
    now_ms = max(view.host.time_ms or 0, view.machine.applied_time_ms)
    reply = pb.ListHoldsReply(next=following, now_ms=now_ms)
    for each in found:
        topic = queries.topic_by_id(each.topic_id)
        # The rows of an ended hold and of a deleted topic are deleted some time later.
        if each.until_ms > now_ms and topic is not None and not topic.deleted:
            reply.holds.add(
                topic_id=each.topic_id,
                topic=topic.name,
                queue=each.queue,
                owner=each.owner,
                offset=each.offset,
                until_ms=each.until_ms,
            )
    return reply
