"""Cuts large registrations (S6) and tables of routes into messages of about 1 MiB."""

from collections.abc import Iterable, Iterator, Sequence

from dledger_proto.limits import FRAME_SIZE_TARGET
from dledger_proto.v1.broker_pb2 import Topic
from dledger_proto.v1.routes_pb2 import GroupRoute, Registration, RoutesReply

_ROW_OVERHEAD = 8
"""Tag and length of a row, at most."""


def chunks_of(registration: Registration) -> Iterator[Registration]:
    """Cut a full registration of any size into messages of about 1 MiB, numbered consecutively.

    Members send registrations in this form; tests and tools use it too.
    """
    part = Registration()
    part.CopyFrom(registration)
    del part.topics[:]
    size = base = part.ByteSize()
    sequence = registration.sequence
    for topic in registration.topics:
        topic_size = topic.ByteSize() + _ROW_OVERHEAD
        if part.topics and size + topic_size > FRAME_SIZE_TARGET:
            yield part
            sequence += 1
            rest = Registration()
            rest.CopyFrom(part)
            del rest.topics[:]
            rest.full, rest.sequence = False, sequence
            part, size = rest, base
        part.topics.append(topic)
        size += topic_size
    yield part


def routes_in_parts(
    cluster: str, groups: Iterable[GroupRoute], topics: Iterable[Topic], *, full: bool
) -> list[RoutesReply]:
    """Return routes as messages of about 1 MiB, at least one.

    The first message of a full table is `full`. All messages but the last have `more`.
    """
    parts = [RoutesReply(full=full, cluster=cluster)]
    size = 0

    def part_for(row_size: int) -> RoutesReply:
        nonlocal size
        if size and size + row_size > FRAME_SIZE_TARGET:
            parts[-1].more = full
            parts.append(RoutesReply(cluster=cluster))
            size = 0
        size += row_size + _ROW_OVERHEAD
        return parts[-1]

    for group in groups:
        part_for(group.ByteSize()).groups.append(group)
    for topic in topics:
        part_for(topic.ByteSize()).topics.append(topic)
    return parts


def routes_at_once(parts: Sequence[RoutesReply]) -> RoutesReply:
    """Return the first message, to answer a call; it is not `full` when others follow it."""
    first = parts[0]
    if first.more:
        first.full = False
    return first
