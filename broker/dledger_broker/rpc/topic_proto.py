"""Turns topics and settings of consumer groups from their replicated form into protobuf and back.

Apply checks their rules.
"""

import enum
from collections.abc import Iterable
from typing import TypeVar

from dledger.state.consumers.settings import (
    RETRY_DELAYS_MS,
    ConsumeOrder,
    GroupSettings,
    StartFrom,
)
from dledger.state.values import LayoutPart, Retention, Topic, TopicType
from dledger_proto.errors import invalid
from dledger_proto.v1 import broker_pb2 as pb

E = TypeVar("E", bound=enum.IntEnum)


def topic_to_proto(topic: Topic) -> pb.Topic:
    """Return the wire form of a topic."""
    wire = pb.Topic(
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
        retention_ms=topic.retention.time_ms,
        retention_bytes=topic.retention.size,
    )
    if topic.consumer_group is not None:
        wire.consumer_group.CopyFrom(settings_to_proto(topic.consumer_group))
        wire.coordinator = topic.consumer_group.coordinator
        wire.dead_letter_topic_id = topic.consumer_group.dead_letter_topic_id
    return wire


def topic_type(number: int) -> TopicType:
    """Return the type of a wire number; INVALID_ARGUMENT when there is none."""
    return _known(TopicType, "topic type", number)


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
        settings=_settings(topic),
        retention=Retention(topic.retention_ms, topic.retention_bytes),
    )


def settings_to_proto(settings: GroupSettings) -> pb.ConsumerGroupSettings:
    """Return the wire form of the settings that may change."""
    return pb.ConsumerGroupSettings(
        order=pb.ConsumeOrder.ValueType(int(settings.order)),
        retry_delays_ms=settings.retry_delays_ms,
        retries_max=settings.retries_max,
        dead_letters=settings.dead_letters,
        start=pb.StartFrom.ValueType(int(settings.start)),
        start_time_ms=settings.start_time_ms,
        session_ms=settings.session_ms,
        lease_ms=settings.lease_ms,
        strategy=settings.strategy,
        pause_failures=settings.pause_failures,
        pause_share=settings.pause_share,
        paused=settings.paused,
    )


def settings_from_proto(
    settings: pb.ConsumerGroupSettings, coordinator: str, dead_letter_topic_id: bytes
) -> GroupSettings:
    """Return the replicated form of settings; INVALID_ARGUMENT for a number without a name."""
    return GroupSettings(
        coordinator=coordinator,
        dead_letter_topic_id=dead_letter_topic_id,
        order=_known(ConsumeOrder, "order", settings.order),
        retry_delays_ms=tuple(settings.retry_delays_ms) or RETRY_DELAYS_MS,
        retries_max=settings.retries_max,
        dead_letters=settings.dead_letters,
        start=_known(StartFrom, "start", settings.start),
        start_time_ms=settings.start_time_ms,
        session_ms=settings.session_ms,
        lease_ms=settings.lease_ms,
        strategy=settings.strategy,
        pause_failures=settings.pause_failures,
        pause_share=settings.pause_share,
        paused=settings.paused,
    )


def _settings(topic: pb.Topic) -> tuple[GroupSettings, ...]:
    if not topic.HasField("consumer_group"):
        return ()
    wire = topic.consumer_group
    return (settings_from_proto(wire, topic.coordinator, topic.dead_letter_topic_id),)


def _known(kind: type[E], field: str, number: int) -> E:
    try:
        return kind(number)
    except ValueError:
        members = ", ".join(f"{each} ({each.name.lower()})" for each in kind)
        raise invalid(f"{field} {number}, must be one of {members}") from None
