"""The product's state machine with a witness: every applied entry is shown to the invariants."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dledger.state.machine import StateMachine
from dledger.types import Entry, LogIndex

if TYPE_CHECKING:
    from tests.sim.member.process import Process


class WatchedMachine:
    """`raft.api.Machine` that delegates to the real one."""

    def __init__(self, process: "Process", machine: StateMachine) -> None:
        self._process = process
        self._observer = process.member.world.observer
        self.real: StateMachine = machine

    @property
    def applied_index(self) -> LogIndex:
        """See `Machine.applied_index`."""
        return self.real.applied_index

    @property
    def saved_index(self) -> LogIndex:
        """See `Machine.saved_index`."""
        return self.real.saved_index

    def apply(self, entry: Entry) -> Sequence[object]:
        """Apply, and tell."""
        results = self.real.apply(entry)
        self._observer.applied(self._process, entry, results, self.real.digest)
        return results

    def head_needed(self) -> int:
        """See `Machine.head_needed`."""
        return self.real.head_needed()
