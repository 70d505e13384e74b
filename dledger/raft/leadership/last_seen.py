"""Role, term and leader as this member last saw them: who is told of a change, and when.

A change of the core goes through three steps:

1. After each input `wiring.py` calls `notice`. The parts of the group follow the change at once.
2. `is_new` makes `RaftGroup.has_outputs` true, so the driver drains the group soon.
3. When messages have left, the driver calls `tell`. `told` changes, and the watchers hear of it.

So everybody outside the group sees one value until the next `tell`.

Threads: only the thread that drives the group calls or reads this; in a member that is the thread
of the event loop. A `Leadership` never changes, so any thread may keep one.
"""

from dledger.raft.api import Leadership, OnLeadership, Role
from dledger.raft.context import Context
from dledger.types import MemberId, Term


class LastSeen:
    """See the module header."""

    def __init__(self) -> None:
        self.core = Leadership(Role.UNFORMED, Term(0), None)
        """What the core said at the newest input; its role is never QUARANTINED or STOPPED."""
        self.told = self.core
        """What the watchers heard last."""
        self.is_new = False
        """The core has changed since the driver drained the group."""
        self._signature: object = None
        self._watchers: list[OnLeadership] = []

    def notice(self, context: Context) -> Leadership | None:
        """Note what the core says now. Return what it said before, or None if nothing changed."""
        engine = context.engine
        signature = engine.signature
        if signature == self._signature:
            return None
        self._signature = signature
        before, self.core = self.core, Leadership(engine.role, Term(engine.term), engine.leader)
        self.is_new = True
        return before

    def watch(self, watcher: OnLeadership) -> None:
        """Call `watcher` at every `tell` of another role, term or leader."""
        self._watchers.append(watcher)

    def tell(self, role: Role, term: Term, leader: MemberId | None) -> None:
        """Tell the watchers what this member is to its group now, if they do not know it."""
        told = self.told
        if (role, term, leader) != (told.role, told.term, told.leader):
            self.told = Leadership(role, term, leader)
            for watcher in list(self._watchers):
                watcher(self.told)
