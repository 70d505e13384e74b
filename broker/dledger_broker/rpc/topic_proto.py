"""Turns topics from their replicated form into protobuf and back. Apply checks their rules."""

from collections.abc import Iterable

from dledger.state.values import LayoutPart, Topic, TopicType
from dledger_proto.errors import invalid
from dledger_proto.v1 import broker_pb2 as pb


def topic_to_proto(topic: Topic) -> pb.Topic:
    """Return the wire form of a topic."""
    return pb.Topic(
        id=topic.topic_id,
        name=topic.name,
        type=pb.TopicType.ValueType(int(topic.type)),
        layout_version=topic.layout_version,
        layout=[pb.LayoutPart(group=part.group, queues=part.queues) for part in topic.layout],
        write_queues=topic.write_queues,
        read_queues=topic.read_queues,
        permission=topic.permission,
        control_index=topic.control_index,
        deleted=topic.deleted,
    )


def topic_type(number: int) -> TopicType:
    """Return the type of a wire number; INVALID_ARGUMENT when there is none."""
    try:
        return TopicType(number)
    except ValueError:
        types = ", ".join(f"{each} ({each.name.lower()})" for each in TopicType)
        raise invalid(f"topic type {number}, must be one of {types}") from None


def layout_from_proto(parts: Iterable[pb.LayoutPart]) -> tuple[LayoutPart, ...]:
    """Return the replicated form of a layout."""
    return tuple(LayoutPart(part.group, part.queues) for part in parts)


def topic_from_proto(topic: pb.Topic) -> Topic:
    """Return the replicated form of a topic."""
    return Topic(
        topic_id=topic.id,
        name=topic.name,
        type=topic_type(topic.type),
        layout_version=topic.layout_version,
        layout=layout_from_proto(topic.layout),
        write_queues=topic.write_queues,
        read_queues=topic.read_queues,
        permission=topic.permission,
        control_index=topic.control_index,
        deleted=topic.deleted,
    )
