"""When waiting proposals become entries of the leader's log (group commit).

Owns: the conditions of a cut, and that each entry gets its place in the journal. A leader cuts
unless it hands over leadership or does not know the group's time. It cuts

- at once whatever fills an entry (`ENTRY_SIZE_TARGET`);
- from `gather_bytes` on as soon as no write round is in flight;
- less when every entry before is committed and the expected callers are there (`gathering.py`).

Does not own how proposals are packed into entries, nor their fate (`proposals.py`).
"""

from collections.abc import Sequence

from dledger.raft.commit.proposals import Proposals
from dledger.raft.context import Context
from dledger.raft.leadership.clocks import GroupClock
from dledger.raft.leadership.transfer import Transfer
from dledger.raft.replication.leader import Replication
from dledger.types import Buffer, EntryKind, LogIndex, Term
from dledger_proto.limits import ENTRY_SIZE_TARGET


class Cutting:
    """Makes entries of waiting proposals."""

    def __init__(
        self,
        context: Context,
        proposals: Proposals,
        replication: Replication,
        transfer: Transfer,
        clocks: GroupClock,
    ) -> None:
        self._context = context
        self._proposals = proposals
        self._replication = replication
        self._transfer = transfer
        self._clocks = clocks

    @property
    def cuts_now(self) -> bool:
        """Tell whether a cut now would make an entry, on a leader."""
        if self._transfer.active or not self._clocks.is_known:
            return False
        waiting_bytes = self._proposals.waiting_bytes
        return waiting_bytes >= ENTRY_SIZE_TARGET or (waiting_bytes > 0 and self.may_cut())

    def may_cut(self) -> bool:
        """Tell whether all that waits becomes entries now, also what does not fill one."""
        context = self._context
        if context.durability.round_in_flight:
            return False
        proposals = self._proposals
        if proposals.waiting_bytes >= context.settings.gather_bytes:
            return True
        is_all_committed = context.engine.commit_index >= context.log.last_index
        return is_all_committed and proposals.are_gathered

    def cut(self, *, everything: bool) -> None:
        """Make entries; without `everything` only full ones."""
        waits = self._proposals.are_waiting and not self._transfer.active
        if waits and self._context.engine.is_leader and self._clocks.is_known:
            self._proposals.cut(self._append, self._context.now, everything=everything)

    def _append(
        self, kind: EntryKind, payloads: Sequence[Buffer], frees_space: bool
    ) -> tuple[LogIndex, Term]:
        ref = self._context.journal.append_new(kind, payloads, self._context.engine.term)
        if frees_space:
            self._replication.freeing_index = ref.index
        return ref.index, ref.term
