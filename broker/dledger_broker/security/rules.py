"""What each call needs: the words in which the table of calls says it.

Owns: how the resources of a request are found. Not owned: which call needs what (the table), what a
caller may (`gate`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dledger.state.users.values import Action, ResourceKind
from dledger.state.values import Topic
from dledger_broker.security import deciding
from dledger_broker.security.deciding import CLUSTER, SOME, UNKNOWN
from dledger_broker.security.gate import Need
from dledger_proto.batch.header import ID_SIZE, TOPIC_ID_AT
from dledger_proto.errors import invalid
from dledger_proto.limits import QUEUES_PER_CALL_MAX, SUBSCRIPTIONS_MAX
from dledger_proto.names import check_group_name, check_topic_name
from dledger_proto.v1 import broker_pb2 as pb

FindTopic = Callable[[bytes], Topic | None]
"""Returns the topic of an id, as it is applied where the call arrived."""
FindNeeds = Callable[[Any, FindTopic], Iterable[Need]]


CHANGES: Final = Action.CREATE | Action.UPDATE | Action.DELETE
"""What changes the cluster itself."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a request needs."""

    says: str
    """For people: docs/calls.md has a table of it."""
    _find: FindNeeds = lambda _request, _topic: ()
    is_noted: bool = False
    """True: the audit has a line of it, also when it is done."""

    def needs(self, request: object, find_topic: FindTopic) -> Iterable[Need]:
        """Yield each need of a request; those of an unknown id ask for a right to all names."""
        return self._find(request, find_topic)


ANYONE: Final = Rule("every user; it sees what it may know")
MEMBERS: Final = Rule("members of the cluster alone, also without users")
ADMINISTRATORS: Final = Rule("administrators, and members", is_noted=True)
BEFORE_LOGIN: Final = Rule("whoever may connect")


def cluster(action: Action) -> Rule:
    """Something that concerns the whole cluster."""
    return _of(action, "cluster", lambda _request, _topic: (Need(action, CLUSTER),))


def topic(action: Action, field: str = "name") -> Rule:
    """Something about the topic whose name is in a field; empty: about all, so the cluster's."""

    def find(request: object, _find: FindTopic) -> Iterator[Need]:
        name = getattr(request, field)
        yield topic_need(action, name) if name else Need(action, CLUSTER)

    return _of(action, "topic", find)


def group(action: Action, field: str = "consumer_group") -> Rule:
    """Something about the consumer group whose name is in a field."""

    def find(request: object, _find: FindTopic) -> Iterator[Need]:
        name = getattr(request, field)
        check_group_name(field, name)
        yield Need(action, deciding.group(name), f"consumer group {name!r} does not exist")

    return _of(action, "group", find)


def queue(action: Action, field: str = "queue") -> Rule:
    """Something about the topic of the queue in a field."""
    return _of(
        action, "topic", lambda request, find: (queue_need(action, getattr(request, field), find),)
    )


def queues(action: Action, field: str = "queues", inner: str = "") -> Rule:
    """Something about the topics of the queues in a repeated field, or within its items."""

    def find(request: object, find_topic: FindTopic) -> Iterator[Need]:
        seen: set[tuple[str, bytes]] = set()
        items = getattr(request, field)
        _check_count(field, len(items), QUEUES_PER_CALL_MAX)
        for item in items:
            ref = getattr(item, inner) if inner else item
            if (ref.topic, ref.topic_id) not in seen:
                seen.add((ref.topic, ref.topic_id))
                yield queue_need(action, ref, find_topic)

    return _of(action, "topic, of each", find)


def group_and_queues(action: Action, field: str, inner: str = "") -> Rule:
    """Something that a consumer group does in the queues of a repeated field."""
    of_group, of_queues = group(action), queues(action, field, inner)

    def find(request: object, find_topic: FindTopic) -> Iterator[Need]:
        yield from of_group.needs(request, find_topic)
        yield from of_queues.needs(request, find_topic)

    return _of(action, "group, and topic of each queue", find)


def _of(action: Action, what: str, find: FindNeeds) -> Rule:
    return Rule(f"{action.name} {what}", find, action in CHANGES)


def _new_group(request: Any, _find: FindTopic) -> Iterator[Need]:
    action = Action.SUBSCRIBE if request.automatic else Action.CREATE
    check_group_name("name", request.name)
    yield Need(action, deciding.group(request.name))
    yield from _subscribed(request.subscriptions)


def _joined(join: Any, find: FindTopic) -> Iterator[Need]:
    yield from group(Action.SUBSCRIBE).needs(join, find)
    yield from _subscribed(join.subscriptions)
    yield from queues(Action.SUBSCRIBE, "wanted").needs(join, find)


def _new_topic(request: Any, _find: FindTopic) -> Iterator[Need]:
    check_topic_name(request.name)
    yield Need(Action.CREATE, deciding.topic(request.name))


def _check_count(field: str, count: int, most: int) -> None:
    """Refuse what no call takes before it is looked at: the gate is where strangers come first."""
    if count > most:
        raise invalid(f"{count} {field} in one call, at most {most}")


def _subscribed(subscriptions: Sequence[Any]) -> Iterator[Need]:
    """Yield the needs of subscriptions: a member says of each whether it means a topic."""
    _check_count("subscriptions", len(subscriptions), SUBSCRIPTIONS_MAX)
    for each in subscriptions:
        if each.pattern:
            yield Need(Action.SUBSCRIBE, deciding.topic(UNKNOWN))
        else:
            yield topic_need(Action.SUBSCRIBE, each.topic)


def _scheduled(request: Any, find: FindTopic) -> Iterator[Need]:
    yield id_need(Action.PUBLISH, bytes(request.batch[TOPIC_ID_AT]), find)


def _registered(_request: Any, _find: FindTopic) -> Iterator[Need]:
    yield Need(Action.PUBLISH, deciding.Resource(ResourceKind.TOPIC, SOME))


PRODUCERS: Final = Rule("PUBLISH some topic; not for the producer of another user", _registered)
NEW_TOPIC: Final = Rule(
    "CREATE topic; a no tells nothing of whether it exists", _new_topic, is_noted=True
)
NEW_GROUP: Final = Rule(
    "CREATE group; of a first consumer: as its Session", _new_group, is_noted=True
)
FETCHED: Final = queues(Action.SUBSCRIBE, "assignments", "queue")
JOINED: Final = Rule("SUBSCRIBE group and topics; of a pattern: all topics", _joined)
SCHEDULED: Final = Rule("PUBLISH topic of the batch", _scheduled)


OF_LOG: Final = cluster(Action.GET)
"""Also of the story of a record: it names groups and consumers, and goes where its cursor says."""
APPENDED: Final = Rule("PUBLISH topic, of each batch")


def topic_need(action: Action, name: str) -> Need:
    """Return the need of a call that names a topic; INVALID_ARGUMENT when none can be called so.

    Of what a caller sends, the gate remembers and notes names alone, and those are short.
    """
    check_topic_name(name)
    return Need(action, deciding.topic(name), f"topic {name!r} does not exist")


def batch_need(topic_id: bytes, find: FindTopic) -> Need:
    """Return what a batch that is sent needs."""
    return id_need(Action.PUBLISH, topic_id, find)


def id_need(action: Action, topic_id: bytes, find: FindTopic) -> Need:
    """Return the need of a call that names a topic by its id; INVALID_ARGUMENT when it is none."""
    if len(topic_id) != ID_SIZE:
        raise invalid(f"topic id of {len(topic_id)} bytes, must be {ID_SIZE}")
    known = find(topic_id)
    name = UNKNOWN if known is None else known.name  # of a deleted one, callers are told so
    return Need(action, deciding.topic(name), f"no topic has the id {topic_id.hex()}")


def queue_need(action: Action, ref: pb.QueueRef, find: FindTopic) -> Need:
    """Return the need of a call about a queue; an id counts before a name, as in `resolve`."""
    if ref.topic_id:
        return id_need(action, ref.topic_id, find)
    return topic_need(action, ref.topic)
