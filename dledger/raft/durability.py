"""Which of a member's promises are on disk: versions of the hard state, and when to write.

Owns: the newest hard state and its versions, which version a write round covers, when a round is
due (also without news: a sync with `flush: async`, a checkpoint of an idle log), and whether the
disk hangs. Does not own the round itself (`log/writing/rounds.py`), nor which messages wait for it
(`gate.py`).
"""

import math
from dataclasses import replace
from typing import Final

from dledger.log.commit_log import CommitLog
from dledger.log.hard_state import HardState
from dledger.log.writing.write_round import Round
from dledger.types import FlushMode, MemberId, Term

FLUSH_BYTES: Final = 4 << 20
"""`flush: async`: with so many unsynced bytes the next round syncs. Acknowledgements wait for that
sync, because rounds never overlap, so it must be short. Memory holds unsynced bytes (I17)."""
CHECKPOINT_IDLE_SECONDS: Final = 1.0
"""A log without a write for so long gets a checkpoint that covers its end. Until then no stamp
proves that the last round was synced, and recovery would cut damage in it as a torn tail."""


class Durability:
    """Hard state and rounds. Invariant: durable_version <= version. Times in seconds."""

    def __init__(
        self,
        log: CommitLog,
        state: HardState,
        flush: FlushMode,
        *,
        hang_limit: float,
        flush_interval: float,
        now: float,
    ) -> None:
        self._log = log
        self._syncs_each_round = flush is FlushMode.SYNC
        self._hang_limit = hang_limit
        self._flush_interval = flush_interval
        self._idle_since = now
        self._unsynced_since: float | None = None
        self.state = state
        """The newest. Its content may be told to others once `version` is durable."""
        self.durable_state = state
        self.version = 0
        self.durable_version = 0
        self._round: Round | None = None
        self._round_state: HardState | None = None
        self._round_version = 0
        self._round_since = 0.0
        self._touched = True

    # Hard state.

    def _change(self, state: HardState) -> None:
        if state != self.state:
            self.state = state
            self.version += 1

    def set_term(self, term: int, vote: str | None) -> None:
        """Take the core's term and vote."""
        self._change(replace(self.state, term=Term(term), vote=vote))

    def set_incarnation(self, member: MemberId, incarnation: bytes) -> None:
        """Answer to this life of a member and to no earlier one (D18 a)."""
        lives = {**self.state.incarnations, member: incarnation}
        self._change(replace(self.state, incarnations=lives))

    def begin_life(self, lives: dict[MemberId, bytes], *, quarantined: bool) -> None:
        """Set what a member knows before its genesis entry is written."""
        self._change(HardState(incarnations=lives, quarantined=quarantined))

    def end_quarantine(self, *, lifted: bool) -> None:
        """Be a member like others again."""
        self._change(replace(self.state, quarantined=False, lifted=lifted))

    def end_lift(self) -> None:
        """Drop the operator's word: every member takes this life without it now."""
        self._change(replace(self.state, lifted=False))

    def renew_life(self, member: MemberId, incarnation: bytes) -> None:
        """Begin a new life in quarantine, keeping the data; other members introduce themselves."""
        lives = {member: incarnation}
        self._change(replace(self.state, incarnations=lives, quarantined=True, lifted=False))

    # Rounds.

    @property
    def covered_index(self) -> int:
        """Up to here an entry may be acknowledged: synced, or with `async` at least written."""
        if self._syncs_each_round:
            return self._log.durable_index
        return self._log.written_index

    @property
    def round_in_flight(self) -> bool:
        """A round is being written."""
        return self._round is not None

    def take_round(self, now: float) -> Round | None:
        """Return what the driver has to write; at most one at a time."""
        if self._round is not None:
            return None
        sync = now >= self._flush_at
        checkpoint = now >= self._checkpoint_at
        if not (sync or checkpoint or self.is_dirty):
            return None
        self._touched = False
        state = self.state if self.version != self.durable_version else None
        taken = self._log.take_round(
            state, sync=sync or self._syncs_each_round, checkpoint=checkpoint
        )
        if taken is None:
            # Nothing is dirty: what changed has changed back to what is on disk.
            self.durable_state = self.state
            self.durable_version = self.version
        else:
            self._round = taken
            self._round_state = state
            self._round_version = self.version
            self._round_since = now
        return taken

    def touch(self) -> None:
        """Note a change of the log that its indexes do not show: a cut, a trimmed head."""
        self._touched = True

    @property
    def is_dirty(self) -> bool:
        """Something is not written, and no round is in the way of writing it."""
        log = self._log
        return self._round is None and (
            log.last_index != log.written_index
            or self.version != self.durable_version
            or self._touched
        )

    @property
    def next_deadline(self) -> float:
        """Return when `take_round` has something to do though nothing is new; may be infinite."""
        if self._round is not None:
            return math.inf
        return min(self._flush_at, self._checkpoint_at)

    @property
    def _flush_at(self) -> float:
        """When what was written without a sync must be synced; infinite when all is."""
        if self._unsynced_since is None:
            return math.inf
        if self._log.unsynced_bytes >= FLUSH_BYTES:
            return self._unsynced_since
        return self._unsynced_since + self._flush_interval

    @property
    def _checkpoint_at(self) -> float:
        """When the log counts as idle; infinite once a checkpoint covers its end."""
        if not self._log.checkpoint_is_behind:
            return math.inf
        return self._idle_since + CHECKPOINT_IDLE_SECONDS

    def finish_round(self, finished: Round, now: float) -> float:
        """Move the watermarks to what the round covered; return the seconds that it took."""
        assert finished is self._round, "the round that finished is not the one in flight"
        self._log.round_finished(finished)
        if self._round_state is not None:
            self.durable_state = self._round_state
            self.durable_version = self._round_version
        self._idle_since = now
        if not self._log.unsynced_bytes:
            self._unsynced_since = None
        elif self._unsynced_since is None:
            self._unsynced_since = self._round_since
        self._round = None
        self._round_state = None
        return now - self._round_since

    # A hanging disk.

    @property
    def hang_at(self) -> float | None:
        """When the round in flight counts as hanging, in seconds of the monotonic clock."""
        return None if self._round is None else self._round_since + self._hang_limit

    def hangs(self, now: float) -> bool:
        """Tell whether a round is in flight for longer than the limit."""
        return self._round is not None and now >= self._round_since + self._hang_limit
