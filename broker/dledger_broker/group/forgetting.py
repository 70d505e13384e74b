"""When a leader asks to free the rows of topics that were deleted long ago.

Owns: that duty's period, and what it asks. Pure: the caller proposes what it gives. Not owned: who
is forgotten (`dledger.state.topics`), nor what a group knows without a gap (`topic_follower`).
"""

from typing import Final

from dledger.state.commands.codec import ForgetTopics
from dledger.state.queries import Queries
from dledger_proto.limits import DELETED_TOPIC_KEPT_MS

LOOK_SECONDS: Final = 60.0
"""How often a leader looks."""
EVERYTHING: Final = (1 << 64) - 1
"""What the control group knows without a gap: what it decides is its own log."""


class TopicForgetting:
    """The duty of one member."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._look_at = 0.0

    def due(self, known_index: int | None, now: float) -> ForgetTopics | None:
        """Return what to propose now, None: nothing is due.

        `known_index`: up to there the control group's decisions are known here without a gap; None
        while this member does not lead. `now` is monotonic seconds.
        """
        if known_index is None or now < self._look_at:
            return None
        self._look_at = now + LOOK_SECONDS
        command = ForgetTopics(DELETED_TOPIC_KEPT_MS, known_index)
        return command if self._queries.is_forgetting_due(command) else None
