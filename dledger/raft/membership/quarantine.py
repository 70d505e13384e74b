"""The way out of a quarantine: recorded by all, term raised, caught up to a read barrier (D18).

Owns: the stages of a quarantine, and its end. Does not own who has recorded what (`formation.py`),
hellos and the record of lives (`hellos.py`), nor what the group does afterwards (the hooks).
"""

import math

from dledger.raft.context import Context
from dledger.raft.leadership.barrier import Barriers
from dledger.raft.membership.formation import recorded_by
from dledger.raft.membership.hellos import Hooks, Membership
from dledger.types import LogIndex


class Quarantine:
    """The way out of a quarantine: (a) recorded, (b) term raised, (c) caught up to a barrier."""

    def __init__(self, context: Context, membership: Membership, barriers: Barriers) -> None:
        self._context = context
        self._membership = membership
        self._barriers = barriers
        self._asked = False
        self._asked_at = -math.inf
        self._barrier: int | None = None
        self._version = 0
        """The hard state with the raised term and its spent vote."""

    def advance(self, hooks: Hooks) -> None:
        """Take the next step that can be taken."""
        context = self._context
        if not context.formed or not context.quarantined:
            return
        membership = self._membership
        recorded = recorded_by(
            incarnation=membership.incarnation,
            group_id=membership.group_id,
            peers=context.peers,
            views=membership.views,
        )
        if recorded.missing:
            names = ", ".join(recorded.missing)
            membership.reason = f"in quarantine until {names} has recorded its new incarnation"
            self._barrier = None
            self._version = 0
            return
        if not self._term_is_spent(recorded.term):
            membership.reason = "in quarantine while its term is raised"
            return
        if self._barrier is None:
            membership.reason = "in quarantine until a leader confirms a read barrier"
            self._ask()
            return
        barrier = LogIndex(self._barrier)
        if context.engine.commit_index < barrier or context.log.durable_index < barrier:
            held = min(context.engine.commit_index, context.log.durable_index)
            membership.reason = f"in quarantine, refilled to entry {held} of {barrier}"
            return
        self.end(hooks, lifted=False)

    def _term_is_spent(self, told: int) -> bool:
        """(b): this member's term is durably the highest that was told, and its vote is spent."""
        context = self._context
        engine = context.engine
        if self._version == 0:
            term = max(told, engine.term)
            if (context.journal.term, context.journal.vote) != (term, context.member):
                engine.spend_vote(term, context.member)
            self._version = max(context.durability.version, 1)
        durable = context.durability.durable_version
        return durable >= min(self._version, context.durability.version)

    def _ask(self) -> None:
        context = self._context
        if self._asked or context.now < self._asked_at + context.settings.heartbeat:
            return
        self._asked = True
        self._asked_at = context.now
        life = self._membership.incarnation

        def done(index: LogIndex | None, _reason: str) -> None:
            self._asked = False
            # A barrier that an earlier life asked for came before anybody had recorded this life.
            self._barrier = index if life == self._membership.incarnation else None

        self._barriers.add(done)

    def end(self, hooks: Hooks, *, lifted: bool) -> None:
        """Be a member like others, once that is on disk."""
        context = self._context
        context.durability.end_quarantine(lifted=lifted)
        context.trace.event("quarantine_ended", index=context.log.durable_index, lifted=lifted)
        self._membership.reason = ""
        hooks.quarantine_ended()

    def lift(self, hooks: Hooks) -> None:
        """End the quarantine at an operator's word; spend the vote of every term heard of."""
        context = self._context
        told = max((view.term for view in self._membership.views.values()), default=0)
        context.engine.spend_vote(max(told, context.engine.term), context.member)
        self.end(hooks, lifted=True)
