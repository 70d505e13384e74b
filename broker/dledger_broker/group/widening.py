"""A duty: the control group's leader gives consumer groups a queue in each new broker group (D20).

A record that fails in a broker group is retried there, so the retry topic and the topic of dead
letters need a queue there. A consumer group that cannot be widened rests, and the others go on.
Pure. Not owned: which broker groups there are (`cluster.view`), the
command (`dledger.state.consumers.groups`).
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from dledger.state.consumers.groups import WidenConsumerGroup
from dledger.state.queries import Queries
from dledger.state.results import ConsumerGroupChanged
from dledger.state.values import LayoutPart, Topic
from dledger_broker.group.duty import Duty, Look
from dledger_proto.errors import MEANINGS, DledgerError
from dledger_proto.limits import QUEUES_PER_TOPIC_MAX

LOOK_SECONDS: Final = 5.0
"""How often a leader looks whether a broker group joined."""
LOOK_AT_ALL_SECONDS: Final = 60.0
"""How often it looks at all consumer groups although none did: one that was created meanwhile may
lack a broker group."""
WIDENED_AT_ONCE_MAX: Final = 256
"""Consumer groups that one look widens; the next look finds the others."""
REST_SECONDS: Final = (60.0, 3_600.0)
"""How long a consumer group that was refused rests at first, and at most: twice as long each time.
"""
RESTING_MAX: Final = 4_096
"""Consumer groups that rest; above it those that were refused first are tried again."""


class GroupWidening(Duty):
    """Asks only when a consumer group lacks a broker group."""

    name = "widen consumer groups"

    def __init__(self, broker_groups: Callable[[], Sequence[str]]) -> None:
        super().__init__(LOOK_SECONDS)
        self._broker_groups = broker_groups
        self._look_at = 0.0
        self._look_at_all = 0.0
        self._looked_for: tuple[int, Sequence[str]] = (0, ())
        """The term and the broker groups of the last look at all consumer groups."""
        self._left: list[WidenConsumerGroup] = []
        self._proposed: WidenConsumerGroup | None = None
        self._resting: dict[bytes, tuple[float, float]] = {}
        """Until when a consumer group rests, and for how long."""
        self._now = 0.0

    def due(self, look: Look) -> WidenConsumerGroup | None:
        if look.leads_term is None or look.now < self._look_at:
            return None
        self._look_at = look.now + self.period
        self._now = look.now
        looked_for = look.leads_term, self._broker_groups()
        if looked_for == self._looked_for and look.now < self._look_at_all:
            return None
        resting = {group for group, (until, _) in self._resting.items() if look.now < until}
        self._left = lacking(look.state, looked_for[1], resting)
        if len(self._left) < WIDENED_AT_ONCE_MAX:
            self._looked_for = looked_for
            self._look_at_all = look.now + LOOK_AT_ALL_SECONDS
        return self._next()

    def rest(self, result: object) -> WidenConsumerGroup | None:
        """See `Duty.rest`: the next consumer group."""
        assert isinstance(result, ConsumerGroupChanged), result
        return self._next()

    def refused(self, error: DledgerError) -> WidenConsumerGroup | None:
        """See `Duty.refused`: the next consumer group, unless it would be refused, too."""
        assert self._proposed is not None
        if MEANINGS[error.code].retriable or not MEANINGS[error.code].definite:
            # This member leads no more, or the disk is low: another look finds them all.
            self._left, self._looked_for = [], (0, ())
            return None
        group = self._proposed.group_id
        _, seconds = self._resting.pop(group, (0.0, REST_SECONDS[0] / 2))
        seconds = min(2 * seconds, REST_SECONDS[1])
        self._resting[group] = self._now + seconds, seconds
        if len(self._resting) > RESTING_MAX:
            del self._resting[next(iter(self._resting))]
        return self._next()

    def count(self, result: object) -> int:
        """See `Duty.count`: consumer groups."""
        assert isinstance(result, ConsumerGroupChanged), result
        return 1

    def _next(self) -> WidenConsumerGroup | None:
        self._proposed = self._left.pop() if self._left else None
        return self._proposed


def lacking(
    state: Queries, broker_groups: Sequence[str], resting: Collection[bytes] = ()
) -> list[WidenConsumerGroup]:
    """Return what to propose for the first consumer groups that lack a broker group."""
    commands: list[WidenConsumerGroup] = []
    for retry in state.consumer_groups():
        if retry.topic_id in resting:
            continue
        layout = widened(retry, broker_groups)
        if layout != retry.layout:
            commands.append(WidenConsumerGroup(retry.topic_id, layout))
        if len(commands) == WIDENED_AT_ONCE_MAX:
            break
    return commands


def widened(retry: Topic, broker_groups: Sequence[str]) -> tuple[LayoutPart, ...]:
    """Return the layout with one more queue for each broker group that has none."""
    known = {part.group for part in retry.layout}
    missing = [name for name in broker_groups if name not in known]
    room = QUEUES_PER_TOPIC_MAX - len(known)
    return (*retry.layout, *(LayoutPart(name, 1) for name in missing[:room]))
