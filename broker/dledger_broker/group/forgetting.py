"""A duty: the leader asks to free the rows of topics that were deleted long ago (D1).

Owns the duty's period, and what it asks. Pure. Not owned: which topics are forgotten
(`dledger.state.topics`), what a group knows without a gap (`cluster.topic_follower`).
"""

from typing import Final

from dledger.state.results import TopicsForgotten
from dledger.state.topics.commands import ForgetTopics
from dledger_broker.group.duty import Duty, Look
from dledger_proto.limits import DELETED_TOPIC_KEPT_MS

LOOK_SECONDS: Final = 60.0
"""How often a leader looks."""


class TopicForgetting(Duty):
    """Asks only when something would be freed."""

    name = "forget deleted topics"

    def __init__(self) -> None:
        super().__init__(LOOK_SECONDS)
        self._look_at = 0.0
        self._asked = ForgetTopics(DELETED_TOPIC_KEPT_MS, 0)

    def due(self, look: Look) -> ForgetTopics | None:
        if look.leads_term is None or look.now < self._look_at:
            return None
        self._look_at = look.now + self.period
        self._asked = ForgetTopics(DELETED_TOPIC_KEPT_MS, look.known_index)
        return self._asked if look.state.is_forgetting_due(self._asked) else None

    def rest(self, result: object) -> ForgetTopics | None:
        """See `Duty.rest`: the same command again."""
        assert isinstance(result, TopicsForgotten), result
        return self._asked if result.more else None

    def count(self, result: object) -> int:
        """See `Duty.count`: topics."""
        assert isinstance(result, TopicsForgotten), result
        return len(result.topic_ids)
