"""A consumer group as progress sees it: its id, its settings, its queues in this broker group.

A consumer group is its retry topic with settings in the topic's row (docs/delivery.md).
"""

from typing import NamedTuple

from dledger.state.consumers.settings import ConsumeOrder, GroupSettings
from dledger.state.queues.table import QueueId
from dledger.state.topics.table import TopicTable
from dledger_proto.errors import Code, DledgerError
from dledger_proto.names import RETRY_TOPIC_PREFIX


class Group(NamedTuple):
    """A consumer group."""

    id: bytes
    name: str
    settings: GroupSettings

    @property
    def name_bytes(self) -> bytes:
        """The name in keys."""
        return self.name.encode()

    @property
    def is_ordered(self) -> bool:
        """True: a claim is a lease, and a record that fails stays where it is."""
        return self.settings.order is not ConsumeOrder.CONCURRENT


def group_named(topics: TopicTable, name: str) -> Group | None:
    """Return the consumer group of a name; None when the name is no consumer group's."""
    topic = topics.by_name(RETRY_TOPIC_PREFIX + name)
    if topic is None or topic.consumer_group is None:
        return None
    return Group(topic.topic_id, name, topic.consumer_group)


def existing_group(topics: TopicTable, name: str) -> Group:
    """Return the consumer group of a name; CONSUMER_GROUP_NOT_FOUND."""
    group = group_named(topics, name)
    if group is None:
        raise DledgerError(Code.CONSUMER_GROUP_NOT_FOUND, f"no consumer group is called {name}")
    return group


def first_queue_of(topics: TopicTable, topic_id: bytes, broker_group: str) -> QueueId:
    """Return the first queue of a topic that this broker group holds; QUEUE_NOT_FOUND."""
    topic = topics.live(topic_id)
    first = 0
    for part in topic.layout:
        if part.group == broker_group and part.queues:
            return topic_id, first
        first += part.queues
    raise DledgerError(
        Code.QUEUE_NOT_FOUND, f"topic {topic.name} has no queue in group {broker_group}"
    )
