"""Applies committed entries to the state machine in slices, and trims the log's head.

Owns: how far a member may apply (D6), the size of a slice (L13), whether a saved state and a log
fit each other, and when the head is trimmed. Does not own the machine, nor what its results mean.
"""

from typing import Final

from dledger.log.errors import DamagedFile, DamagedLog
from dledger.raft.commit.proposals import Proposals
from dledger.raft.context import Context
from dledger.types import LogIndex, Position

SLICE_ENTRIES_MAX: Final = 32
SLICE_BYTES_MAX: Final = 2 << 20
TRIM_PERIOD: Final = 1.0
"""Seconds between two looks at the head of the log."""


def check_state(place: str, applied: int, first_index: int, last_index: int) -> None:
    """Raise DamagedFile, naming `place`, when a log with these ends cannot complete the state.

    The state is saved after the log (D6), and the head is trimmed after the state is saved (D16).
    So the state is ahead of the log, or the log's head ahead of the state, only when files were
    lost or exchanged.
    """
    if applied > last_index:
        raise DamagedFile(
            place,
            f"the state has applied entry {applied}, but the log ends at entry {last_index}: "
            f"the log's newest entries are gone, or the state is not this log's",
        )
    if applied + 1 < first_index:
        raise DamagedFile(
            place,
            f"the state has applied entry {applied} and needs entry {applied + 1} next, but the "
            f"first entry that the log still has is {first_index}: the state was removed, "
            f"emptied or replaced by an older one",
        )


class Applying:
    """Apply and trim."""

    def __init__(self, context: Context, proposals: Proposals) -> None:
        self._context = context
        self._proposals = proposals
        self._trim_at = 0.0
        self.waits_for_mending = False
        """The next entry cannot be read, and is being mended."""

    @property
    def limit(self) -> int:
        """Up to here entries may be applied: committed, and covered by this member's own disk."""
        context = self._context
        return min(context.engine.commit_index, context.durability.covered_index)

    @property
    def ready(self) -> bool:
        """Something may be applied."""
        return not self.waits_for_mending and self._context.machine.applied_index < self.limit

    def slice(self) -> bool:
        """Apply a bounded number of entries; True when more may be applied."""
        context = self._context
        machine = context.machine
        first = machine.applied_index + 1
        last = min(self.limit, machine.applied_index + SLICE_ENTRIES_MAX)
        if first > last or self.waits_for_mending:
            return False
        try:
            entries = context.log.entries(LogIndex(first), LogIndex(last), SLICE_BYTES_MAX)
        except DamagedLog as damage:
            if not context.is_mended(damage):
                raise
            self.waits_for_mending = True
            return False
        for entry in entries:
            results = machine.apply(entry)
            self._proposals.applied(entry.ref.index, entry.ref.term, results)
        return self.ready

    @property
    def trim_is_due(self) -> bool:
        """The head was not looked at for a while."""
        return self._context.now >= self._trim_at

    def trim(self, floor: int) -> None:
        """Let go of log segments that neither the state nor any member needs."""
        context = self._context
        self._trim_at = context.now + TRIM_PERIOD
        # A follower that continues after the newest committed entry must find that entry here.
        limit = min(context.machine.saved_index, floor)
        if limit >= context.log.first_index:
            needed = Position(context.machine.head_needed())
            segments = context.log.trim_head(needed, LogIndex(limit))
            if segments:
                context.durability.touch()
                context.trace.event("head_trimmed", segments=len(segments))
