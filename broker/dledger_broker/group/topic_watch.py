"""A state machine that tells when a topic changed: what routes and registrations wait for.

Owns a version number that grows with every change of any topic, as seen by the results of apply,
and which topics the newest changes were of. The control group's index of a decision does not tell
what is new here: a group may take over an older decision behind a newer one. Everything else passes
through. It stands between the Raft group and the machine.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from dledger.raft.api import Machine
from dledger.state.machine import StateMachine
from dledger.state.results import TopicChanged
from dledger.state.values import Topic
from dledger.types import Entry, EntryKind, LogIndex

CHANGES_MAX: Final = 4_096
"""Changes remembered; who is further behind is told everything."""


class TopicWatch(Machine):
    """See `dledger.raft.api.Machine`; `changed` is called within apply."""

    def __init__(self, machine: StateMachine, changed: Callable[[], None]) -> None:
        self._machine = machine
        self._changed = changed
        self._changes: deque[bytes] = deque(maxlen=CHANGES_MAX)
        self.version = 1

    def changed_since(self, version: int) -> list[Topic]:
        """Return the topics that changed after `version`, deleted ones too, each as it is now."""
        count = self.version - version
        if count > len(self._changes):
            return self._machine.queries.topics(with_deleted=True)
        newest = list(self._changes)[len(self._changes) - count :]
        found = (self._machine.queries.topic_by_id(topic_id) for topic_id in dict.fromkeys(newest))
        return [topic for topic in found if topic is not None]

    @property
    def applied_index(self) -> LogIndex:
        """See `Machine.applied_index`."""
        return self._machine.applied_index

    @property
    def saved_index(self) -> LogIndex:
        """See `Machine.saved_index`."""
        return self._machine.saved_index

    def apply(self, entry: Entry) -> Sequence[object]:
        """See `Machine.apply`."""
        results = self._machine.apply(entry)
        if entry.kind == EntryKind.COMMANDS:
            changed = [result for result in results if isinstance(result, TopicChanged)]
            if changed:
                self._changes.extend(result.topic.topic_id for result in changed)
                self.version += len(changed)
                self._changed()
        return results

    def head_needed(self) -> int:
        """See `Machine.head_needed`."""
        return self._machine.head_needed()
