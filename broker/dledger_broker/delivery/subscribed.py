"""What a consumer group reads: from subscriptions and topics to queues. Pure.

Owns: which topics a subscription means, and which of their queues are read. Patterns match topics
of users: names with a % at the begin are those of consumer groups, and are meant by name only. A
concurrent group reads its own retry topic, too, without asking.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dledger.state.consumers.table import Subscribed
from dledger.state.queries import Queries
from dledger.state.values import PERMISSION_READ, Topic
from dledger_broker.delivery.strategies.model import Queue
from dledger_proto.errors import Code, DledgerError
from dledger_proto.patterns import Pattern

OF_A_GROUP = "%"
"""The first character of the names of retry and dead letter topics."""


@dataclass(slots=True)
class Subscription:
    """Topics and patterns, compiled. INVALID_ARGUMENT when a pattern is wrong."""

    subscribed: Sequence[Subscribed]
    _names: frozenset[str] = field(init=False)
    _patterns: Sequence[tuple[str, Pattern]] = field(init=False)

    def __post_init__(self) -> None:
        self._names = frozenset(each.topic for each in self.subscribed if not each.pattern)
        self._patterns = [
            (each.topic, Pattern(each.topic)) for each in self.subscribed if each.pattern
        ]

    def wants(self, topic: Topic) -> bool:
        """Tell whether a topic is meant."""
        if topic.deleted or not topic.permission & PERMISSION_READ:
            return False
        if topic.name in self._names:
            return True
        return not topic.name.startswith(OF_A_GROUP) and any(
            pattern.matches(topic.name) for _, pattern in self._patterns
        )

    def topics(self, topics: Iterable[Topic]) -> dict[bytes, Topic]:
        """Return the topics that are meant, by id."""
        return {topic.topic_id: topic for topic in topics if self.wants(topic)}

    def check(self, queries: Queries) -> None:
        """Raise TOPIC_NOT_FOUND naming what means no topic, NO_PERMISSION what may not be read."""
        for name in sorted(self._names):
            topic = queries.topic_by_name(name)
            if topic is None:
                raise DledgerError(Code.TOPIC_NOT_FOUND, f"topic {name!r} does not exist")
            if not topic.permission & PERMISSION_READ:
                raise DledgerError(Code.NO_PERMISSION, f"topic {name} may not be read")
        topics = queries.topics() if self._patterns else []
        names = [topic.name for topic in topics if not topic.name.startswith(OF_A_GROUP)]
        for text, pattern in self._patterns:
            if not any(pattern.matches(name) for name in names):
                raise DledgerError(
                    Code.TOPIC_NOT_FOUND, f"pattern {text!r} matches none of {len(names)} topics"
                )


def queues_of(topics: Iterable[Topic]) -> list[Queue]:
    """Return the queues of topics that are read (S22)."""
    return [
        Queue(topic.name, topic.owner_of(number), number, topic.topic_id)
        for topic in topics
        for number in range(max(topic.read_queues, topic.write_queues))
    ]
