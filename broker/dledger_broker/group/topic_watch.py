"""Which topics changed: what routes and registrations wait for.

Owns a version number that grows with every change of any topic, and which topics the newest changes
were of. The control group's index of a decision does not tell what is new here: a group may take
over an older decision behind a newer one.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from dledger.state.events import Applied
from dledger.state.queries import Queries
from dledger.state.values import Topic

CHANGES_MAX: Final = 4_096
"""Changes remembered; a reader that is further behind is told everything."""


class TopicWatch:
    """The changes of one group's topics; `changed` is called within apply."""

    def __init__(self, queries: Queries, changed: Callable[[], None]) -> None:
        self._queries = queries
        self._changed = changed
        self._changes: deque[bytes] = deque(maxlen=CHANGES_MAX)
        self.version = 1

    def applied(self, applied: Applied) -> None:
        """Note the topics that an entry changed."""
        if applied.topics:
            self._changes.extend(topic.topic_id for topic in applied.topics)
            self.version += len(applied.topics)
            self._changed()

    def changed_since(self, version: int) -> list[Topic]:
        """Return the topics that changed after `version`, deleted ones too, each as it is now."""
        count = self.version - version
        if count > len(self._changes):
            return self._queries.topics(with_deleted=True)
        newest = list(self._changes)[len(self._changes) - count :]
        found = (self._queries.topic_by_id(topic_id) for topic_id in dict.fromkeys(newest))
        return [topic for topic in found if topic is not None]
