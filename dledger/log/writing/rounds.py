"""The write rounds of a log, one at a time: what a round writes, and what holds once it is over.

Owns: which round is in flight, its steps in their order, and the marks in memory that it moves.
`write_round.py` executes the steps. The group decides when a round is due (`raft/durability.py`).

Recovery's tables lean on the order of the steps:

1. *Hard state first.* A term or vote that is durable without the entries of the same round is
   always safe: it only forbids. Entries without their term are not safe: after a power cut between
   the two this member could vote again in a term in which it took part (I5).
2. *The cut of a suffix* before any byte that replaces it, and before that a checkpoint that
   claims no more than what stays. A cut of everything clears the group id in the identity first.
3. *Entries*, segment by segment. A full segment is sealed and synced, and its index is written,
   before its successor is made. Then the newest segment is synced. With `flush: async` a round may
   leave out that sync, unless one of the following steps is due: they all rely on it.
4. *The identity* with the group id, once the genesis entry is durable.
5. *The head*: a checkpoint with the new head, durably, then the old files.
6. *A checkpoint*, when enough was written since the last or a segment was sealed. Its name is not
   synced: a power cut may bring back the checkpoint before it, which claims less. The group asks
   for a checkpoint when the log is idle, and its name is synced: no later round will prove that the
   last round was synced, and after a power cut damage in it would read as a torn tail.
"""

from dataclasses import replace

from dledger.log.checkpoint import CHECKPOINT_FILE
from dledger.log.folder import IDENTITY_FILE, DataFolder
from dledger.log.hard_state import HARD_STATE_FILE, HardState
from dledger.log.memory.chain import Chain
from dledger.log.memory.log_state import LogState
from dledger.log.memory.segment import Segment, SegmentIndex, index_name
from dledger.log.reading.lookup import Lookup
from dledger.log.reading.span_reader import SpanReader
from dledger.log.space import is_full
from dledger.log.writing.write_round import (
    CreateSegment,
    CutSuffix,
    LogDisk,
    RemoveHead,
    Round,
    RoundStep,
    StoreFile,
    SyncEntries,
    WriteEntries,
)
from dledger.types import LogIndex


class WriteRounds:
    """Makes rounds of what is dirty in a `LogState`, and learns when they are over."""

    def __init__(
        self,
        state: LogState,
        folder: DataFolder,
        lookup: Lookup,
        reader: SpanReader,
        disk: LogDisk,
        checkpoint_bytes: int,
    ) -> None:
        self._state = state
        self._folder = folder
        self._lookup = lookup
        self._reader = reader
        self._disk = disk
        self._checkpoint_bytes = checkpoint_bytes
        self._group_id = folder.identity.group_id
        """What the identity file says after all rounds taken so far."""
        self._hard_state = folder.load_hard_state().encode()
        """What the hard state file says after all rounds taken so far."""
        self.rewrite: set[str] = set()
        """Names of small files that the next round writes again, because they are damaged."""
        self._in_flight: Round | None = None
        self._cut_in_flight: Chain | None = None
        """The lowest cut since the round in flight was taken."""
        self._publish(cut=False)

    def take(self, hard_state: HardState | None, *, sync: bool, checkpoint: bool) -> Round | None:
        """Return the next round; None when nothing is dirty. See `CommitLog.take_round`."""
        self._disk.check()
        assert self._in_flight is None, "a round is in flight"
        content = hard_state.encode() if hard_state is not None else self._hard_state
        changed = content != self._hard_state
        self._in_flight = self._plan(content if changed else None, sync=sync, checkpoint=checkpoint)
        self._hard_state = content
        self._cut_in_flight = None
        if self._state.trim_base is not None:
            # The round removes the files: from now on no reader may be sent to them.
            self._state.drop_head(self._state.trim_base)
            self._publish(cut=False)
        return self._in_flight

    def cut(self, end: Chain) -> None:
        """Note that everything behind `end` was cut from the log in memory."""
        if self._in_flight is not None:
            lowest = self._cut_in_flight
            if lowest is None or end.position < lowest.position:
                self._cut_in_flight = end
        self._publish(cut=True)

    def finish(self, finished: Round) -> None:
        """Move the marks to what an executed round has written and synced."""
        self._disk.check()
        assert finished is self._in_flight, "not the round in flight"
        assert finished.executed, "the round was not executed"
        self._in_flight = None
        state = self._state
        cut = self._cut_in_flight
        state.written = cut if cut is not None and cut.position < finished.end.position else (
            finished.end
        )  # fmt: skip
        if finished.synced:
            state.durable = state.written
        if finished.group_id != self._folder.identity.group_id:
            self._folder.identity = replace(self._folder.identity, group_id=finished.group_id)
        state.sealed_on_disk()
        if finished.trimmed is not None:
            state.trim_base = None
        state.tail.evict(state.durable.index)
        self._publish(cut=False)

    def close(self) -> None:
        """Sync what is written and store a last checkpoint, unless a round is in flight."""
        state = self._state
        if self._disk.failure is not None or self._in_flight is not None:
            return
        if state.written.position != state.durable.position:
            self._disk.sync(state.segments[state.place_of_index(state.written.index)].name)
            state.durable = state.written
        checkpoint = state.checkpoint(state.durable)
        if checkpoint.end.position != state.checkpoint_position:
            self._store_checkpoint(checkpoint.encode())

    def _store_checkpoint(self, content: bytes) -> None:
        path = self._folder.checkpoint_path
        try:
            self._disk.store(self._folder.path, path, content, sync_name=True)
        except OSError as error:
            if not is_full(error):  # without it the next start only reads more
                raise

    def _publish(self, *, cut: bool) -> None:
        bases = [segment.base for segment in self._state.segments]
        self._reader.publish(bases, self._state.written.position, cut=cut)

    # Planning.

    def _plan(self, hard_state: bytes | None, *, sync: bool, checkpoint: bool) -> Round | None:
        """Turn everything that is dirty into steps, and mark it as taken."""
        state = self._state
        steps: list[RoundStep] = []
        again, self.rewrite = self.rewrite, set()
        if hard_state is None and HARD_STATE_FILE in again:
            hard_state = self._hard_state
        if hard_state is not None:
            steps.append(StoreFile(self._folder.path, self._folder.hard_state_path, hard_state))
        if state.cut is not None:
            self._plan_cut(state.cut, steps)
        rolled = self._plan_entries(steps)
        outgrown = state.end.position - state.checkpoint_position >= self._checkpoint_bytes
        forming = state.group_id != self._group_id
        trimmed = state.trim_base
        checkpoint_due = checkpoint or rolled or outgrown or CHECKPOINT_FILE in again
        syncs = sync or checkpoint_due or forming or trimmed is not None
        if syncs and state.end.position > state.durable.position:
            steps.append(SyncEntries(state.segments[-1].name))
        for name, content in self._lookup.rebuilt.items():
            path = f"{self._folder.log_path}/{name}"
            steps.append(StoreFile(self._folder.log_path, path, content))
        self._lookup.rebuilt.clear()
        if forming or IDENTITY_FILE in again:
            self._plan_identity(state.group_id, steps)
        state.taken = state.end
        if trimmed is not None:
            self._plan_trim(steps)
        elif checkpoint_due:
            self._plan_checkpoint(state.end, steps, sync_name=checkpoint)
        if not steps:
            return None
        return Round(self._disk, steps, state.end, syncs, self._group_id, trimmed)

    def _plan_cut(self, cut: Chain, steps: list[RoundStep]) -> None:
        state = self._state
        if cut.position == 0 and self._group_id:
            self._plan_identity(b"", steps)
        if state.checkpoint_position > cut.position:
            self._plan_checkpoint(cut, steps, sync_name=True)
        kept = [s for s in state.segments if s.on_disk and s.base <= cut.position]
        name = kept[-1].name if kept else None
        size = kept[-1].file_offset(cut.position) if kept else 0
        steps.append(CutSuffix(tuple(state.doomed), name, size))
        state.cut = None
        state.doomed.clear()

    def _plan_entries(self, steps: list[RoundStep]) -> bool:
        """Plan writes, seals and new files; return whether a segment was sealed."""
        state = self._state
        sealed = False
        for place in range(self._first_dirty(), len(state.segments)):
            segment = state.segments[place]
            if not segment.on_disk:
                steps.append(CreateSegment(segment.name, segment.header.encode()))
                segment.on_disk = True
            entries = state.unwritten(place)
            seal = place < len(state.segments) - 1 and not segment.sealed
            if not entries and not seal:
                continue
            start = entries[0].ref.position if entries else state.end_of(place)
            steps.append(
                WriteEntries(
                    segment.name,
                    segment.header.salt,
                    segment.file_offset(start),
                    state.durable.position,
                    entries,
                    segment.file_offset(state.end_of(place)) if seal else None,
                )
            )
            if seal:
                steps.append(self._seal(place))
                sealed = True
        return sealed

    def _first_dirty(self) -> int:
        """Return the first segment that may have to be written, sealed or made."""
        segments = self._state.segments
        place = len(segments)
        while place > 0 and not segments[place - 1].sealed:
            place -= 1
        return place

    def _seal(self, place: int) -> RoundStep:
        state = self._state
        segment, following = state.segments[place], state.segments[place + 1]
        assert segment.samples is not None, f"{segment.name} is sealed twice"
        last = LogIndex(following.base_index - 1)
        index = SegmentIndex(
            segment.base, following.base, segment.base_index, last, following.header.previous_crc,
            segment.time_min_ms, segment.time_max_ms, segment.header.salt,
            state.terms.pairs(segment.base_index, last), segment.samples,
        )  # fmt: skip
        segment.sealed = True
        path = f"{self._folder.log_path}/{index_name(segment.base)}"
        # The name becomes durable with that of the next segment, which follows.
        return StoreFile(self._folder.log_path, path, index.encode(), sync_name=False)

    def _plan_identity(self, group_id: bytes, steps: list[RoundStep]) -> None:
        identity = replace(self._folder.identity, group_id=group_id)
        steps.append(StoreFile(self._folder.path, self._folder.identity_path, identity.encode()))
        self._group_id = group_id

    def _plan_trim(self, steps: list[RoundStep]) -> None:
        state = self._state
        first = next(s for s in state.segments if s.base == state.trim_base)
        removed = [segment.name for segment in state.segments if segment.base < first.base]
        self._plan_checkpoint(state.end, steps, sync_name=True, first=first)
        steps.append(RemoveHead(removed))

    def _plan_checkpoint(
        self, end: Chain, steps: list[RoundStep], *, sync_name: bool, first: Segment | None = None
    ) -> None:
        content = self._state.checkpoint(end, first).encode()
        path = self._folder.checkpoint_path
        steps.append(StoreFile(self._folder.path, path, content, sync_name))
        self._state.checkpoint_position = end.position
