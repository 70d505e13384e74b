"""What a consumer group reads: from subscriptions and topics to queues.

Owns: which topics a subscription means, and which of their queues are read. Patterns match topics
of users: names with a % at the begin are those of consumer groups, and are meant by name only. A
concurrent group reads its own retry topic, too, without asking.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from dledger.state.consumers.table import Subscribed
from dledger.state.queries import Queries
from dledger.state.values import PERMISSION_READ, Topic
from dledger_broker.delivery.strategies.model import Queue
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import PATTERN_STATES_MAX, PATTERNS_MAX
from dledger_proto.patterns import Pattern

OF_A_GROUP = "%"
"""The first character of the names of retry and dead letter topics."""
WORK_AT_ONCE: Final = 20_000
"""States of patterns that are looked at before the loop goes on: some milliseconds."""
NAMES_AT_ONCE: Final = 256
"""Names that are matched before the loop goes on."""


@dataclass(slots=True)
class Subscription:
    """Topics and patterns, compiled. INVALID_ARGUMENT when a pattern is wrong."""

    subscribed: Sequence[Subscribed]
    _names: frozenset[str] = field(init=False)
    _patterns: Sequence[tuple[str, Pattern]] = field(init=False)
    _work: int = field(init=False, default=0)
    _matched: int = field(init=False, default=0)
    """Work and names at the last time that it gave way."""

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

    def may_mean(self, topic: Topic) -> bool:
        """Tell, without matching patterns, whether a topic can be meant."""
        return bool(self._patterns) or topic.name in self._names

    async def topics(self, topics: Iterable[Topic]) -> dict[bytes, Topic]:
        """Return the topics that are meant, by id; others of the loop get their turns."""
        found: dict[bytes, Topic] = {}
        for topic in topics:
            if self.wants(topic):
                found[topic.topic_id] = topic
            await self.give_way()
        return found

    async def give_way(self) -> None:
        """Let others of the loop go on when much was matched since the last time."""
        work = sum(pattern.work for _, pattern in self._patterns)
        self._matched += 1
        if work - self._work > WORK_AT_ONCE or self._matched > NAMES_AT_ONCE:
            self._work, self._matched = work, 0
            await asyncio.sleep(0)

    async def check(self, queries: Queries) -> None:
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
            if not await self._matches_any(pattern, names):
                raise DledgerError(
                    Code.TOPIC_NOT_FOUND, f"pattern {text!r} matches none of {len(names)} topics"
                )

    async def _matches_any(self, pattern: Pattern, names: Iterable[str]) -> bool:
        for name in names:
            if pattern.matches(name):
                return True
            await self.give_way()
        return False


async def check_patterns(subscribed: Iterable[Subscribed]) -> None:
    """Raise INVALID_ARGUMENT when a pattern is wrong, or matching one name may take too long."""
    texts = [each.topic for each in subscribed if each.pattern]
    if len(texts) > PATTERNS_MAX:
        raise invalid(f"{len(texts)} patterns, at most {PATTERNS_MAX}")
    states = 0
    for text in texts:
        states += Pattern(text).size
        if states > PATTERN_STATES_MAX:
            raise invalid(
                f"pattern {text!r}: the patterns have over {PATTERN_STATES_MAX} states together"
            )
        await asyncio.sleep(0)


def queues_of(topics: Iterable[Topic]) -> list[Queue]:
    """Return the queues of topics that are read (S22)."""
    return [
        Queue(topic.name, topic.owner_of(number), number, topic.topic_id)
        for topic in topics
        for number in range(max(topic.read_queues, topic.write_queues))
    ]
