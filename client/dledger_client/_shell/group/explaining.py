"""What became of a record: the pages of its story, put together."""

from collections.abc import Iterable

from dledger_client._shell import calls
from dledger_client._shell.cluster import Cluster
from dledger_client.errors import ClientError, error_of
from dledger_client.model import StoryLine
from dledger_proto.errors import Code
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import delivery_pb2 as dpb

LINES_MAX = 100_000
"""Lines of one story; the rest is left out."""


async def explain_record(
    cluster: Cluster, group: str, ref: pb.QueueRef, offset: int
) -> list[StoryLine]:
    """Return the story of the record at an offset of a queue of a broker group."""
    return await _told(cluster, group, dpb.ExplainRecordRequest(queue=ref, offset=offset))


async def explain_message(
    cluster: Cluster, groups: Iterable[str], message_id: bytes
) -> list[StoryLine]:
    """Return the story of a message; NOT_FOUND when no broker group has it.

    A message id does not say where its message is, so every broker group is asked until one has it.
    """
    failed: ClientError | None = None
    for group in groups:
        try:
            return await _told(cluster, group, dpb.ExplainRecordRequest(message_id=message_id))
        except ClientError as error:
            if error.code is not Code.NOT_FOUND:
                failed = error
    raise failed or error_of(
        Code.NOT_FOUND, f"no message has the id {message_id.hex()}; it may be trimmed"
    )


async def _told(cluster: Cluster, group: str, request: dpb.ExplainRecordRequest) -> list[StoryLine]:
    lines: list[StoryLine] = []
    while len(lines) < LINES_MAX:
        reply = await cluster.call(calls.EXPLAIN_RECORD, request, group=group)
        lines += [_line(row, group) for row in reply.lines]
        if not reply.cursor:
            break
        request.cursor = reply.cursor
    return lines


def _line(row: dpb.ExplainRecordReply.Line, group: str) -> StoryLine:
    return StoryLine(
        broker_group=group,
        index=row.index,
        time_ms=row.time_ms,
        event=row.event,
        topic=row.topic,
        topic_id=row.topic_id,
        queue=row.queue,
        offset=row.offset,
        consumer_group=row.consumer_group,
        member_id=row.member_id,
        epoch=row.epoch,
        text=row.text,
    )
