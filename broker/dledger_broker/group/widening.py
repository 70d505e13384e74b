"""A duty: the control group's leader gives consumer groups a queue in each new broker group (D20).

A record that fails in a broker group is retried there, so the retry topic and the topic of dead
letters need a queue there. Pure. Not owned: which broker groups there are (`cluster.view`), the
command (`dledger.state.consumers.groups`).
"""

from collections.abc import Callable, Sequence
from typing import Final

from dledger.state.consumers.groups import WidenConsumerGroup
from dledger.state.queries import Queries
from dledger.state.results import ConsumerGroupChanged
from dledger.state.values import LayoutPart, Topic
from dledger_broker.group.duty import Duty, Look
from dledger_proto.limits import QUEUES_PER_TOPIC_MAX

LOOK_SECONDS: Final = 5.0
"""How often a leader looks whether a broker group joined."""
LOOK_AT_ALL_SECONDS: Final = 60.0
"""How often it looks at all consumer groups although none did: one that was created meanwhile may
lack a broker group."""
WIDENED_AT_ONCE_MAX: Final = 256
"""Consumer groups that one look widens; the next look finds the others."""


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

    def due(self, look: Look) -> WidenConsumerGroup | None:
        if look.leads_term is None or look.now < self._look_at:
            return None
        self._look_at = look.now + self.period
        looked_for = look.leads_term, self._broker_groups()
        if looked_for == self._looked_for and look.now < self._look_at_all:
            return None
        self._left = lacking(look.state, looked_for[1])
        if len(self._left) < WIDENED_AT_ONCE_MAX:
            self._looked_for = looked_for
            self._look_at_all = look.now + LOOK_AT_ALL_SECONDS
        return self._next()

    def rest(self, result: object) -> WidenConsumerGroup | None:
        """See `Duty.rest`: the next consumer group."""
        assert isinstance(result, ConsumerGroupChanged), result
        return self._next()

    def count(self, result: object) -> int:
        """See `Duty.count`: consumer groups."""
        assert isinstance(result, ConsumerGroupChanged), result
        return 1

    def _next(self) -> WidenConsumerGroup | None:
        return self._left.pop() if self._left else None


def lacking(state: Queries, broker_groups: Sequence[str]) -> list[WidenConsumerGroup]:
    """Return what to propose for the first consumer groups that lack a broker group."""
    commands: list[WidenConsumerGroup] = []
    for retry in state.consumer_groups():
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
