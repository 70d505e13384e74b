"""Lists of topics in pages: what a member answers, and which answers a reader may believe.

Owns the order of topics (by their last change), the cursor, the bounds of a page. A topic that
changes between two pages moves to the end and comes again, so a reader misses no change.
"""

import struct
from typing import Final

from dledger.log.identity import GROUP_ID_SIZE
from dledger.state.queries import Queries
from dledger_broker.group.group_view import GroupView
from dledger_broker.rpc.topic_proto import topic_to_proto
from dledger_proto.errors import invalid
from dledger_proto.limits import TOPICS_PAGE_SIZE, TOPICS_PER_PAGE_MAX
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1.users_pb2 import FollowUsersReply

CURSOR: Final = struct.Struct(">Q16s")
"""Control index and id of the last topic that was told."""
ROW_OVERHEAD: Final = 8
"""Tag and length of a topic in its answer, at most."""
LAST_ID: Final = b"\xff" * 16


class BadPage(Exception):
    """An answer to ListTopics that the control group cannot have given; the message says why."""


def topics_page(
    view: GroupView, request: pb.ListTopicsRequest, count: int = TOPICS_PER_PAGE_MAX
) -> pb.ListTopicsReply:
    """Return the page that a request asks for, from the state applied here; INVALID_ARGUMENT.

    The caller took a read barrier: `confirmed_index` covers every decision before the barrier.
    """
    after = _after(request)
    queries = view.machine.queries
    found = queries.topics_after(after, count + 1, with_deleted=request.with_deleted)
    page: list[pb.Topic] = []
    size = 0
    for topic in found[:count]:
        wire = topic_to_proto(topic)
        size += wire.ByteSize() + ROW_OVERHEAD
        if page and size > TOPICS_PAGE_SIZE:
            break
        page.append(wire)
    reply = pb.ListTopicsReply(
        topics=page,
        control_index=max(
            request.since_control_index,
            queries.newest_control_index,
            queries.forgotten_index,
        ),
        cluster=view.names.cluster,
        group=view.names.group,
        confirmed_index=view.machine.applied_index,
        forgotten_index=queries.forgotten_index,
        group_id=view.log.group_id,
    )
    if len(page) < len(found):
        last = page[-1]
        # The next page may begin with topics that the same entry of the log decided.
        reply.control_index = max(request.since_control_index, last.control_index - 1)
        reply.cursor = CURSOR.pack(last.control_index, last.id)
    return reply


def _after(request: pb.ListTopicsRequest) -> tuple[int, bytes]:
    """Return (control index, id) behind which a page begins."""
    if not request.cursor:
        return request.since_control_index, LAST_ID
    if len(request.cursor) != CURSOR.size:
        raise invalid(
            f"cursor of {len(request.cursor)} bytes: must be the one of the answer before"
        )
    index, topic_id = CURSOR.unpack(request.cursor)
    return index, topic_id


def check_page(
    request: pb.ListTopicsRequest, reply: pb.ListTopicsReply, cluster: str, control_group: str
) -> None:
    """Raise BadPage unless the configured control group can have given this answer.

    A group takes over only decisions above those that it knows. If it took over one decision with
    an index that the control group has not reached, it would refuse all real decisions up to there.
    """
    if (reply.cluster, reply.group) != (cluster, control_group):
        raise BadPage(
            f"cluster {reply.cluster!r}, group {reply.group!r} answers, "
            f"not the control group {control_group} of {cluster}"
        )
    before = _after(request)
    for topic in reply.topics:
        place = topic.control_index, topic.id
        if place <= before:
            raise BadPage(f"topic {topic.name!r}: index {topic.control_index} is out of order")
        if topic.control_index > reply.confirmed_index:
            raise BadPage(
                f"topic {topic.name!r}: index {topic.control_index} is above what the control "
                f"group has confirmed, {reply.confirmed_index}"
            )
        before = place
    if reply.control_index > reply.confirmed_index:
        raise BadPage(f"complete up to {reply.control_index}, confirmed is {reply.confirmed_index}")
    if reply.forgotten_index > reply.confirmed_index:
        raise BadPage(
            f"forgotten up to {reply.forgotten_index}, confirmed is {reply.confirmed_index}"
        )
    if reply.cursor and (not reply.topics or reply.cursor != CURSOR.pack(*before)):
        raise BadPage("the cursor does not continue behind the last topic")


def check_history(
    reply: pb.ListTopicsReply | FollowUsersReply, control_id: bytes, newest: int
) -> None:
    """Raise BadPage when a group that knows decisions up to `newest` cannot go on with an answer.

    A control group that was formed anew, or restored from an old copy, does not list all topics
    that this group holds. By its lists this group would delete these topics with their messages.
    `control_id`: the control group whose decisions are known; empty: none are known yet.
    """
    told = reply.group_id
    if len(told) != GROUP_ID_SIZE:
        raise BadPage(f"group id of {len(told)} bytes, must be {GROUP_ID_SIZE}")
    if control_id not in (b"", told):
        raise BadPage(
            f"another control group answers, its id is {told.hex()}: only the control group of id "
            f"{control_id.hex()} may change the topics here"
        )
    if reply.confirmed_index < newest:
        raise BadPage(
            f"the log of the control group ends at {reply.confirmed_index}, this group knows its "
            f"decisions up to {newest}: the control group was restored from an old copy"
        )


def knows(queries: Queries, topic_id: bytes, control_index: int) -> bool:
    """Tell whether this decision or a later one is known, or the topic is forgotten since."""
    known = queries.topic_by_id(topic_id)
    newest = queries.forgotten_index if known is None else known.control_index
    return newest >= control_index
