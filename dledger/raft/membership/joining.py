"""What a member without data writes to become part of its group (D18).

Owns: the order of the writes. The hard state with the lives and the quarantine flag is on disk
before the first entry, and the member takes part when the first entry is on disk, too. Does not own
the decision (`formation.py`).
"""

from collections.abc import Mapping

from dledger.raft.context import Context
from dledger.raft.membership.formation import Decision, Forming, decide
from dledger.raft.wire.messages import Hello
from dledger.types import MemberId
from dledger_proto.entry import parse_genesis


class Joining:
    """One way from no data to a first entry; it begins anew with a new life."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._decision: Decision | None = None
        """What is being written."""
        self._version = 0
        """Of the hard state that must be on disk before the first entry."""
        self._genesis_written = False
        self.reason = ""
        """What this member waits for; empty when it waits for its own disk only."""

    def begin_anew(self) -> None:
        """Decide again: this member has a new life."""
        self._decision = None

    def advance(self, incarnation: bytes, views: Mapping[MemberId, Hello]) -> bytes:
        """Take the next step; return the payload of the first entry once it is on disk."""
        if self._decision is None:
            self._decide(incarnation, views)
        return b"" if self._decision is None else self._write(self._decision)

    def _decide(self, incarnation: bytes, views: Mapping[MemberId, Hello]) -> None:
        context = self._context
        decision = decide(
            cluster=context.settings.cluster,
            group=context.settings.group,
            member=context.member,
            incarnation=incarnation,
            members=context.settings.members,
            views=views,
        )
        self.reason = decision.reason
        if decision.step is Forming.WAIT:
            return
        self._decision = decision
        genesis = parse_genesis(decision.genesis)
        lives = {context.member: incarnation}
        if decision.step is Forming.FORM:
            lives.update((MemberId(name), life) for name, life in genesis.members)
        else:
            # Others may have begun new lives since the first entry was written. Each is recorded
            # when it introduces itself.
            lives.update((peer, view.incarnation) for peer, view in views.items())
        context.durability.begin_life(lives, quarantined=decision.step is Forming.QUARANTINE)
        self._version = context.durability.version

    def _write(self, decision: Decision) -> bytes:
        context = self._context
        if context.durability.durable_version < self._version:
            return b""
        group_id = parse_genesis(decision.genesis).group_id
        if not self._genesis_written:
            self._genesis_written = True
            context.log.write_genesis(decision.genesis, group_id)
        if context.log.durable_index < 1:
            return b""
        self._decision = None
        context.trace.event("formed", group_id=group_id.hex(), step=decision.step.value)
        return decision.genesis
