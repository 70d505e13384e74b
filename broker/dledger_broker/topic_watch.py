"""A state machine that tells when a topic changed: what routes and registrations wait for.

Owns a version number that grows with every change of any topic, as seen by the results of apply.
Everything else passes through. It stands between the Raft group and the machine.
"""

from collections.abc import Callable, Sequence

from dledger.raft.api import Machine
from dledger.state.machine import StateMachine
from dledger.state.results import TopicChanged
from dledger.types import Entry, EntryKind, LogIndex


class TopicWatch(Machine):
    """See `dledger.raft.api.Machine`; `changed` is called within apply."""

    def __init__(self, machine: StateMachine, changed: Callable[[], None]) -> None:
        self._machine = machine
        self._changed = changed
        self.version = 1

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
        if entry.kind == EntryKind.COMMANDS and any(
            isinstance(result, TopicChanged) for result in results
        ):
            self.version += 1
            self._changed()
        return results

    def head_needed(self) -> int:
        """See `Machine.head_needed`."""
        return self._machine.head_needed()
