"""What each call needs: the words in which the table of calls says it.

Owns: how the resources of a request are found. Not owned: which call needs what (the table), what a
caller may (`gate`).
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from dledger.state.users.values import Action
from dledger.state.values import Topic
from dledger_broker.security import deciding
from dledger_broker.security.deciding import CLUSTER, UNKNOWN
from dledger_broker.security.gate import Need
from dledger_proto.batch.header import TOPIC_ID_AT
from dledger_proto.v1 import broker_pb2 as pb

FindTopic = Callable[[bytes], Topic | None]
"""Returns the topic of an id, as it is applied where the call arrived."""


class Rule(Protocol):
    """What a request needs."""

    def __call__(self, request: Any, find_topic: FindTopic, /) -> Iterator[Need]:
        """Yield each need; those of an unknown id ask for a right to all names."""
        ...


def anyone(_request: object, _find: FindTopic) -> Iterator[Need]:
    """Whoever has logged in; the handler leaves out what the caller may not know."""
    return iter(())


def members(_request: object, _find: FindTopic) -> Iterator[Need]:
    """Members of the cluster alone; their certificates are asked for without users, too."""
    return iter(())


def administrators(_request: object, _find: FindTopic) -> Iterator[Need]:
    """Administrators, and members."""
    return iter(())


def nobody_yet(_request: object, _find: FindTopic) -> Iterator[Need]:
    """Whoever may connect: the calls of a login itself."""
    return iter(())


def cluster(action: Action) -> Rule:
    """Something that concerns the whole cluster."""

    def rule(_request: object, _find: FindTopic) -> Iterator[Need]:
        yield Need(action, CLUSTER)

    return rule


def topic(action: Action, field: str = "name") -> Rule:
    """Something about the topic whose name is in a field; empty: about all, so the cluster's."""

    def rule(request: object, _find: FindTopic) -> Iterator[Need]:
        name = getattr(request, field)
        yield topic_need(action, name) if name else Need(action, CLUSTER)

    return rule


def new_topic(request: pb.CreateTopicRequest, _find: FindTopic) -> Iterator[Need]:
    """Creating a topic: a no tells nothing of whether it exists."""
    yield Need(Action.CREATE, deciding.topic(request.name))


def group(action: Action, field: str = "consumer_group") -> Rule:
    """Something about the consumer group whose name is in a field."""

    def rule(request: object, _find: FindTopic) -> Iterator[Need]:
        name = getattr(request, field)
        yield Need(action, deciding.group(name), f"consumer group {name!r} does not exist")

    return rule


def new_group(request: Any, _find: FindTopic) -> Iterator[Need]:
    """Creating a consumer group. A first consumer may create the group that it may consume with."""
    action = Action.SUBSCRIBE if request.automatic else Action.CREATE
    yield Need(action, deciding.group(request.name))


def queue(action: Action, field: str = "queue") -> Rule:
    """Something about the topic of the queue in a field."""

    def rule(request: object, find: FindTopic) -> Iterator[Need]:
        yield queue_need(action, getattr(request, field), find)

    return rule


def queues(action: Action, field: str = "queues", inner: str = "") -> Rule:
    """Something about the topics of the queues in a repeated field, or within its items."""

    def rule(request: object, find: FindTopic) -> Iterator[Need]:
        seen: set[tuple[str, bytes]] = set()
        for item in getattr(request, field):
            ref = getattr(item, inner) if inner else item
            if (ref.topic, ref.topic_id) not in seen:
                seen.add((ref.topic, ref.topic_id))
                yield queue_need(action, ref, find)

    return rule


def both(first: Rule, second: Rule) -> Rule:
    """Both, in this order."""

    def rule(request: object, find: FindTopic) -> Iterator[Need]:
        yield from first(request, find)
        yield from second(request, find)

    return rule


def fetched(request: pb.FetchRequest, find: FindTopic) -> Iterator[Need]:
    """The topics of a stream of records."""
    return queues(Action.SUBSCRIBE, "assignments", "queue")(request, find)


def joined(join: Any, find: FindTopic) -> Iterator[Need]:
    """What a consumer joins: its group and topics; a pattern may mean any topic."""
    yield from group(Action.SUBSCRIBE)(join, find)
    for each in join.subscriptions:
        if each.pattern:
            yield Need(Action.SUBSCRIBE, deciding.topic(UNKNOWN))
        else:
            yield topic_need(Action.SUBSCRIBE, each.topic)
    yield from queues(Action.SUBSCRIBE, "wanted")(join, find)


def scheduled_batch(request: Any, find: FindTopic) -> Iterator[Need]:
    """The topic of the batch that a schedule sends; bytes that are no batch are refused later."""
    topic_id = bytes(request.batch[TOPIC_ID_AT])
    yield id_need(Action.PUBLISH, topic_id, find)


def explained_record(request: Any, find: FindTopic) -> Iterator[Need]:
    """The story of a record names consumers. By message id it may be of any topic."""
    if request.message_id:
        yield Need(Action.GET, CLUSTER)
    else:
        yield queue_need(Action.SUBSCRIBE, request.queue, find)


def topic_need(action: Action, name: str) -> Need:
    """Return the need of a call that names a topic."""
    return Need(action, deciding.topic(name), f"topic {name!r} does not exist")


def id_need(action: Action, topic_id: bytes, find: FindTopic) -> Need:
    """Return the need of a call that names a topic by its id."""
    known = find(topic_id)
    name = UNKNOWN if known is None or known.deleted else known.name
    return Need(action, deciding.topic(name), f"no topic has the id {topic_id.hex()}")


def queue_need(action: Action, ref: pb.QueueRef, find: FindTopic) -> Need:
    """Return the need of a call about a queue; an id counts before a name, as in `resolve`."""
    if ref.topic_id:
        return id_need(action, ref.topic_id, find)
    return topic_need(action, ref.topic)
