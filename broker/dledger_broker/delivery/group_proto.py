"""What consumers and people are told of a consumer group, as protobuf.

Owns the translation, and which queues an assignment names: all that the consumer holds now, those
that it has to give back marked as revoked.
"""

from typing import TYPE_CHECKING, Final

from dledger.state.consumers.settings import GroupSettings
from dledger.state.consumers.table import ConsumerGroup
from dledger.state.queries import Queries
from dledger.state.values import Topic
from dledger_broker.group.group_view import GroupView
from dledger_broker.rpc.topic_proto import settings_to_proto
from dledger_proto.names import RETRY_TOPIC_PREFIX
from dledger_proto.v1 import delivery_pb2 as pb

if TYPE_CHECKING:
    from dledger_broker.delivery.led_group import LedGroup

SILENT_MS_MAX: Final = (1 << 32) - 1


def assignment_message(queries: Queries, rows: ConsumerGroup, consumer: str) -> pb.SessionReply:
    """Return what a consumer holds."""
    assignment = pb.Assignment(member_epoch=rows.consumers[consumer].epoch)
    for key, grant in sorted(rows.grants.items()):
        if grant.holder != consumer:
            continue
        topic = queries.topic_by_id(key.topic_id)
        assignment.queues.add(
            topic_id=key.topic_id,
            topic="" if topic is None else topic.name,
            queue=key.queue,
            epoch=grant.epoch,
            revoked=grant.is_revoked,
            broker_group="" if topic is None else topic.owner_of(key.queue),
        )
    return pb.SessionReply(assignment=assignment)


def joined_message(group: "LedGroup", session: int) -> pb.SessionReply:
    """Return the consumer group as it is now, to a session."""
    joined = pb.Joined(
        group=group_message(group.retry, group.settings),
        group_epoch=group.rows.epochs.group,
        session=session,
    )
    return pb.SessionReply(joined=joined)


def group_message(retry: Topic, settings: GroupSettings) -> pb.ConsumerGroup:
    """Return a consumer group: what its topic and its settings say."""
    return pb.ConsumerGroup(
        id=retry.topic_id,
        name=retry.name.removeprefix(RETRY_TOPIC_PREFIX),
        settings=settings_to_proto(settings),
        coordinator=settings.coordinator,
        dead_letter_topic_id=settings.dead_letter_topic_id,
        control_index=retry.control_index,
    )


def described(view: GroupView, led: "LedGroup") -> pb.DescribeConsumerGroupReply:
    """Return all that the leader of its coordinator knows of a consumer group."""
    rows, queries = led.rows, view.machine.queries
    now = view.clock.monotonic()
    reply = pb.DescribeConsumerGroupReply(
        group=group_message(led.retry, led.settings),
        group_epoch=rows.epochs.group,
        assignment_epoch=rows.epochs.assignment,
        strategy=rows.epochs.strategy or led.settings.strategy,
        problems=led.problems,
        now_ms=view.host.time_ms or 0,
    )
    subscriptions = [
        pb.Subscription(topic=each.topic, pattern=each.pattern)
        for each in rows.epochs.subscriptions
    ]
    for name, consumer in sorted(rows.consumers.items()):
        connected, silent = led.sessions.status(name, now)
        reply.members.add(
            id=name,
            instance=consumer.instance,
            client=consumer.client,
            member_epoch=consumer.epoch,
            connected=connected,
            silent_ms=min(int(silent * 1_000), SILENT_MS_MAX),
            subscriptions=subscriptions,
            room=consumer.room,
        )
    for key, grant in sorted(rows.grants.items()):
        topic = queries.topic_by_id(key.topic_id)
        reply.queues.add(
            topic=key.topic_id.hex() if topic is None else topic.name,
            queue=key.queue,
            target=grant.target,
            holder=grant.holder,
            epoch=grant.epoch,
            broker_group="" if topic is None else topic.owner_of(key.queue),
            since_ms=grant.since_ms,
        )
    for key in led.unassigned():
        topic = queries.topic_by_id(key.topic_id)
        name = "" if topic is None else topic.name
        reply.unassigned.add(topic=name, topic_id=key.topic_id, queue=key.queue)
    return reply
