"""Who should have which queue: from the rows of a consumer group to the Assign to propose. Pure.

Owns the translation between rows and what strategies deal out. It computes the same for the same
rows, whoever leads: so a change of the leader moves nothing. Not: the strategies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dledger.state.consumers.granting import Assign, TopicTargets
from dledger.state.consumers.settings import GroupSettings
from dledger.state.consumers.table import Consumer, ConsumerGroup, QueueKey
from dledger.state.values import Topic
from dledger_broker.delivery.strategies.choose import deal
from dledger_broker.delivery.strategies.model import Consumer as Dealee
from dledger_broker.delivery.strategies.model import Queue, Standing
from dledger_broker.delivery.subscribed import queues_of
from dledger_proto.errors import DledgerError
from dledger_proto.limits import QUEUES_PER_CONSUMER_GROUP_MAX


@dataclass(frozen=True, slots=True)
class Planned:
    """What a leader computed."""

    command: Assign | None
    """None: what is stored is right."""
    problems: Sequence[str]
    """What keeps queues from being dealt out, in a sentence each."""


def plan(
    group: ConsumerGroup, settings: GroupSettings, retry: Topic, topics: Mapping[bytes, Topic]
) -> Planned:
    """Return what to propose, given the topics that the group subscribes to."""
    strategy = group.epochs.strategy or settings.strategy
    others = [topic for topic_id, topic in topics.items() if topic_id != retry.topic_id]
    queues, retries = queues_of(others), queues_of([retry])
    count = len(queues) + len(retries)
    if count > QUEUES_PER_CONSUMER_GROUP_MAX:
        return Planned(
            None,
            [f"{count} queues are subscribed to, at most {QUEUES_PER_CONSUMER_GROUP_MAX}"],
        )
    names = {each.place(name): name for name, each in sorted(group.consumers.items())}
    try:
        planned = deal(
            strategy, queues, retries, _dealees(group, topics), _standings(group, queues + retries)
        )
    except DledgerError as error:
        return Planned(None, [error.detail])
    targets = {
        QueueKey(queue.topic_id, queue.number): names[place]
        for queue, place in planned.targets.items()
    }
    stored = {key: grant.target for key, grant in group.grants.items() if grant.target}
    if targets == stored and not _is_new(group):
        return Planned(None, planned.warnings)
    return Planned(_assign(group, targets), planned.warnings)


def _is_new(group: ConsumerGroup) -> bool:
    return group.epochs.assignment != group.epochs.group


def _dealees(group: ConsumerGroup, topics: Mapping[bytes, Topic]) -> list[Dealee]:
    return [
        Dealee(each.place(name), each.room, _wanted(each, topics))
        for name, each in group.consumers.items()
    ]


def _wanted(consumer: Consumer, topics: Mapping[bytes, Topic]) -> tuple[Queue, ...]:
    found = ((topics.get(key.topic_id), key.queue) for key in consumer.wanted)
    return tuple(
        Queue(topic.name, topic.owner_of(number), number, topic.topic_id)
        for topic, number in found
        if topic is not None
    )


def _standings(group: ConsumerGroup, queues: Sequence[Queue]) -> dict[Queue, Standing]:
    def place(name: str) -> str:
        consumer = group.consumers.get(name)
        return "" if consumer is None else consumer.place(name)

    found: dict[Queue, Standing] = {}
    for queue in queues:
        grant = group.grants.get(QueueKey(queue.topic_id, queue.number))
        if grant is not None:
            found[queue] = Standing(place(grant.holder), place(grant.target))
    return found


def _assign(group: ConsumerGroup, targets: Mapping[QueueKey, str]) -> Assign:
    consumers = sorted(set(targets.values()))
    places = {name: place for place, name in enumerate(consumers, 1)}
    rows: dict[bytes, list[int]] = {}
    for key in sorted(targets):
        row = rows.setdefault(key.topic_id, [])
        row += [0] * (key.queue - len(row))
        row.append(places[targets[key]])
    topics = tuple(TopicTargets(topic_id, tuple(row)) for topic_id, row in rows.items())
    return Assign(group.id, group.epochs.group, tuple(consumers), topics)
