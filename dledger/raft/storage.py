"""What of a member's promises is on disk: hard state versions, write rounds, a hanging disk.

Owns: the newest hard state and the versions of it, which round covers which version, how long a
round has been in flight. Does not own the log's bytes, nor what waits for a round (`gate.py`).
"""

from dataclasses import replace

from dledger.log.hard_state import HardState
from dledger.raft.api import WriteRound
from dledger.raft.ports import RaftLog
from dledger.types import Durability, MemberId, Term


class Storage:
    """Hard state and rounds. Invariant: durable_version <= version."""

    def __init__(
        self, log: RaftLog, state: HardState, durability: Durability, hang_limit: float
    ) -> None:
        self._log = log
        self._durability = durability
        self._hang_limit = hang_limit
        self.state = state
        """The newest; what it says may be told to others once `version` is durable."""
        self.durable_state = state
        self.version = 0
        self.durable_version = 0
        self._round: WriteRound | None = None
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
        """Be a life like others: nobody needs the operator's word to take it any more."""
        self._change(replace(self.state, lifted=False))

    # Rounds.

    @property
    def covered_index(self) -> int:
        """Up to here an entry may be acknowledged: on disk, or with `async` in the log at all."""
        if self._durability is Durability.SYNC:
            return self._log.durable_index
        return self._log.last_index

    @property
    def round_in_flight(self) -> bool:
        """A round is being written."""
        return self._round is not None

    def take_round(self, now: float) -> WriteRound | None:
        """Return what the driver has to write; at most one at a time."""
        if self._round is not None or not self._is_dirty():
            return None
        self._touched = False
        state = self.state if self.version != self.durable_version else None
        taken = self._log.take_round(state)
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

    def _is_dirty(self) -> bool:
        log = self._log
        return (
            log.last_index != log.durable_index
            or self.version != self.durable_version
            or self._touched
        )

    def finish_round(self, finished: WriteRound) -> None:
        """Move the watermarks to what the round covered."""
        assert finished is self._round, "the round that finished is not the one in flight"
        self._log.round_finished(finished)
        if self._round_state is not None:
            self.durable_state = self._round_state
            self.durable_version = self._round_version
        self._round = None
        self._round_state = None

    # A hanging disk.

    @property
    def hang_at(self) -> float | None:
        """When the round in flight counts as hanging, in seconds of the monotonic clock."""
        return None if self._round is None else self._round_since + self._hang_limit

    def hangs(self, now: float) -> bool:
        """Tell whether a round is in flight for longer than the limit."""
        return self._round is not None and now >= self._round_since + self._hang_limit
