"""The call that tells what became of a record.

Owns the translation of protobuf. Not owned: what the call does (`usecases.explain`).
"""

from dledger_broker.rpc.calls import Call
from dledger_broker.usecases import explain
from dledger_broker.usecases.queues import resolve
from dledger_proto.v1 import delivery_pb2 as dpb


async def explain_record(call: Call, request: dpb.ExplainRecordRequest) -> dpb.ExplainRecordReply:
    """Return a page of what became of a record."""
    messaging = call.messaging
    if request.message_id:
        page = await explain.explain_message(messaging, request.message_id, request.cursor)
    else:
        queue = await resolve(messaging, request.queue)
        page = await explain.explain_place(messaging, queue, request.offset, request.cursor)
    reply = dpb.ExplainRecordReply(cursor=page.cursor)
    for line in page.lines:
        topic = messaging.view.machine.queries.topic_by_id(line.topic_id)
        reply.lines.add(
            index=line.entry,
            time_ms=line.time_ms,
            event=line.event,
            topic_id=line.topic_id,
            topic="" if topic is None or topic.deleted else topic.name,
            queue=line.queue,
            offset=line.offset,
            consumer_group=line.group,
            member_id=line.member,
            epoch=line.epoch,
            text=line.text,
        )
    return reply
