"""The commit log of one group on one member: appending, cutting, reading, and its write rounds.

Owns: the log's public face, and which calls a log that has failed refuses. The work is done in
`memory/` (appending and cutting), `writing/` (rounds), `recovery/` (start), `reading/` (old bytes)
and `space.py` (a full disk). The log knows nothing of votes, commit or apply.

Any thread may call `read_span`, `path_of`, `space.check` and `Round.execute`. Only the thread of
the loop may call the rest. Nothing checks this: `raft/driver/host.py` calls from the loop alone and
gives rounds to one worker. Appending and cutting change memory only. `take_round` hands out what is
dirty, and `Round.execute` writes it. `round_finished` moves `written_index` and, after a round that
ended with a sync, `durable_index`. After a failed write or sync the log has failed: every call that
could promise anything raises LogFailed, and reading goes on.
"""

from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from random import Random

from dledger.files import FileSystem
from dledger.log.errors import SpanGone
from dledger.log.folder import DataFolder
from dledger.log.hard_state import HardState
from dledger.log.image import LogImage
from dledger.log.memory.chain import NO_INDEX, NO_TERM, Chain
from dledger.log.memory.log_state import LogState
from dledger.log.memory.segment import file_offset, index_name
from dledger.log.memory.tail import Tail
from dledger.log.reading.file_pool import FilePool
from dledger.log.reading.lookup import Lookup
from dledger.log.reading.part import Part
from dledger.log.reading.span_reader import SpanReader
from dledger.log.recovery.recover import recover
from dledger.log.settings import LogSettings
from dledger.log.space import DiskSpace
from dledger.log.writing.rounds import WriteRounds
from dledger.log.writing.write_round import LogDisk, Round
from dledger.types import (
    AppendPayload,
    Buffer,
    DiskRoom,
    Entry,
    EntryKind,
    EntryRef,
    LogIndex,
    Position,
    Span,
    Term,
)
from dledger_proto.entry import (
    EntryHeader,
    SegmentHeader,
    parse_entry_header,
    parse_genesis,
    segment_name,
)


class CommitLog:
    """The log. Indexes start at 1, and the entry at 1 is the group's genesis."""

    def __init__(
        self, fs: FileSystem, folder: DataFolder, settings: LogSettings, random: Random
    ) -> None:
        """Recover the log of a folder.

        `DamagedLog`, `DamagedHardState`: acknowledged data or the vote may be lost; nothing was
        changed. OSError: the disk refused.
        """
        self._folder = folder
        self._pool = FilePool(fs)
        self.space = DiskSpace(
            fs,
            folder.path,
            reserve_bytes=settings.reserve_bytes,
            low_water_bytes=settings.low_water_bytes,
        )
        self.space.open()
        self._disk = LogDisk(fs, folder.log_path, self._pool, self.space, settings)
        try:
            found = recover(folder, self._pool)
        except BaseException:
            self._pool.close()
            raise
        self.recovery_notes: Sequence[str] = found.notes
        """A line for each thing that recovery changed on disk: a torn end that it cut, a file."""
        self._keepers = 0
        self._state = LogState(
            tail=Tail(settings.tail_cache_bytes),
            random=random,
            segment_size=settings.segment_size,
            group_id=found.group_id if found.segments else b"",
            segments=found.segments,
            terms=found.terms,
            end=found.end,
            taken=found.end,
            written=found.end,
            durable=found.end,
            checkpoint_position=found.checkpoint.end.position,
        )
        self._lookup = Lookup(self._state, folder.log_path, self._pool)
        self._reader = SpanReader(folder.log_path, self._pool)
        self._rounds = WriteRounds(
            self._state, folder, self._lookup, self._reader, self._disk, settings.checkpoint_bytes
        )

    # What the log holds.

    @property
    def group_id(self) -> bytes:
        """What the genesis entry fixed, 16 bytes; empty before it."""
        return self._state.group_id

    @property
    def is_empty(self) -> bool:
        """True: there is no entry at all."""
        return self._state.end.index == 0

    @property
    def first_index(self) -> LogIndex:
        """Index of the first entry that was not trimmed."""
        return self._state.first_index

    @property
    def last_index(self) -> LogIndex:
        """Index of the last entry, durable or not; 0 when empty."""
        return self._state.end.index

    @property
    def last_term(self) -> Term:
        """Term of the last entry; 0 when empty."""
        return self._state.end.term

    @property
    def last_time_ms(self) -> int:
        """The leader's stamp of the last entry; 0 when empty."""
        return self._state.end.time_ms

    @property
    def last_crc(self) -> int:
        """The chain's value: the last entry's header CRC; 0 when empty."""
        return self._state.end.crc

    @property
    def durable_index(self) -> LogIndex:
        """Everything up to here is synced."""
        return self._state.durable.index

    @property
    def written_index(self) -> LogIndex:
        """Everything up to here is in the files: the end of the process does not lose it."""
        return self._state.written.index

    @property
    def unsynced_bytes(self) -> int:
        """Size of what is in the files and not synced; 0 when every round syncs."""
        return self._state.written.position - self._state.durable.position

    @property
    def checkpoint_is_behind(self) -> bool:
        """True: the checkpoint does not cover all that is synced, so damage there reads as torn.

        False while the disk is low: a checkpoint that no caller waits for may not use the reserve.
        """
        state = self._state
        return state.checkpoint_position != state.durable.position and not self.space.low

    @property
    def first_position(self) -> Position:
        """Position of the first entry that was not trimmed."""
        return self._state.first_position

    @property
    def oldest_segment(self) -> tuple[Position, LogIndex] | None:
        """Where the oldest segment ends, and its last index; None: it still takes entries."""
        return next(iter(self.sealed_segments), None)

    @property
    def sealed_segments(self) -> list[tuple[Position, LogIndex]]:
        """Where each segment ends that takes no entries any more, and its last index."""
        state = self._state
        places = range(len(state.segments) - 1)
        return [(state.end_of(place), state.last_index_of(place)) for place in places]

    @property
    def last_position(self) -> Position:
        """Position behind the last entry."""
        return self._state.end.position

    @property
    def base(self) -> Chain:
        """What the first entry follows: the chain before it. Its time is not known, so 0."""
        state = self._state
        if not state.segments:
            return Chain()
        return _before(state.segments[0].header)

    def term_at(self, index: LogIndex) -> Term | None:
        """Return an entry's term; None below the head and above the end. Never reads the disk.

        The entry just before the first one still has its term (0 for index 0).
        """
        return self._state.term_at(index)

    def segment_start(self, position: Position) -> LogIndex:
        """Return the first index of a position's segment; 0 up to the first position. No I/O."""
        state = self._state
        if position <= state.first_position:
            return NO_INDEX
        return state.segments[state.place_of_position(position)].base_index

    def ref(self, index: LogIndex) -> EntryRef:
        """Return what identifies an entry. An old one costs a short read. SpanGone: not held."""
        self._check_held(index, index)
        return self._lookup.locate(index).ref

    def size_between(self, first: LogIndex, last: LogIndex) -> int:
        """Return the size in bytes of the entries from `first` to `last`; 0 when there are none."""
        if first > last:
            return 0
        self._check_held(first, last)
        end = self._lookup.position_of(LogIndex(last + 1))
        return end - self._lookup.position_of(first)

    # Appending and cutting: memory only.

    def write_genesis(
        self, payload: bytes, group_id: bytes, *, term: Term = NO_TERM, time_ms: int = 0
    ) -> EntryRef:
        """Append the first entry: it fixes the group's id."""
        if parse_genesis(payload).group_id != group_id:
            raise ValueError(f"the genesis payload is not of group id {group_id.hex()}")
        return self.append_new(EntryKind.GENESIS, [payload], term, time_ms)

    def append_new(
        self, kind: EntryKind, payloads: Sequence[Buffer], term: Term, time_ms: int
    ) -> EntryRef:
        """Append an entry of this leader. The payloads must not change afterwards.

        ValueError for our own misuse: a term or time that goes back, an entry out of its limits.
        """
        self._disk.check()
        return self._state.append_new(kind, payloads, term, time_ms)

    def append_frames(self, buffer: Buffer, entries: Sequence[tuple[EntryHeader, int]]) -> None:
        """Append entries of the leader, as it framed them: (header, offset in `buffer`) each.

        CorruptEntry when any of them is damaged or does not follow: then nothing is kept.
        The buffer must not change afterwards.
        """
        self._disk.check()
        self._state.append_frames(buffer, entries)

    def truncate_from(self, index: LogIndex, committed: LogIndex = NO_INDEX) -> None:
        """Forget the entry at `index` and all behind it; the disk follows with the next round.

        `committed` is the highest index that is known to be committed; it is never reached (I7).
        """
        self._disk.check()
        assert index > committed, f"entry {index} is committed, up to {committed}: never cut"
        if index > self.last_index:
            return
        first = self.first_index
        assert index > first or index == 1, f"cutting from {index} leaves a log trimmed to {first}"
        end = Chain()
        if index > 1:
            kept = self._lookup.locate(LogIndex(index - 1))
            position = Position(kept.ref.position + kept.ref.size)
            end = Chain(kept.ref.index, position, kept.ref.crc, kept.ref.term, kept.time_ms)
        self._state.cut_behind(end, self._lookup.samples_up_to(end.position))
        self._lookup.forget_behind(end)
        self._rounds.cut(end)

    def trim_head(self, position_needed: Position, index_limit: LogIndex) -> list[str]:
        """Plan to remove whole segments below a position, none with the index limit or above.

        Returns the files that the next round removes, a segment or `TRIM_BYTES_MAX`; `first_index`
        moves when it is taken. Empty while an earlier trim is not finished or the disk has not
        got its space back. The last segment always stays.
        """
        self._disk.check()
        if self._state.trim_base is not None or self._pool.fs.is_freeing or self._keepers:
            return []
        return self._state.plan_trim(position_needed, index_limit)

    @property
    def is_trimming(self) -> bool:
        """True: segments are planned to go, and the next round removes them."""
        return self._state.trim_base is not None

    @contextmanager
    def head_kept(self) -> Generator[None]:
        """Let no trim begin during a block: somebody copies what the log holds."""
        self._keepers += 1
        try:
            yield
        finally:
            self._keepers -= 1

    def image(self, last: LogIndex) -> LogImage:
        """Return what a copy of the log up to a durable entry consists of. A short read."""
        self._check_held(last, last)
        assert last <= self.durable_index, f"{last} is not durable, {self.durable_index} is"
        ref = self._lookup.locate(last).ref
        header = self._state.segments[self._state.place_of_position(ref.position)].header
        # Only the log's newest segment has samples in memory. So a reader walks over the last one.
        checkpoint = self._state.checkpoint(_before(header))
        *whole, (base, _) = checkpoint.segments
        names = [name(Position(start)) for start, _ in whole for name in (segment_name, index_name)]
        size = file_offset(Position(base), Position(ref.position + ref.size))
        return LogImage(checkpoint, tuple(names), segment_name(base), size)

    # Write rounds.

    def take_round(
        self, hard_state: HardState | None, *, sync: bool = True, checkpoint: bool = False
    ) -> Round | None:
        """Return a round that writes everything that is not, or None when there is nothing to do.

        `hard_state` is given when it changed; it is always synced. Without `sync` the entries may
        be left to a later round's sync. `checkpoint`: let a durable checkpoint cover all of the
        log, with the sync that it needs. At most one round is in flight.
        """
        return self._rounds.take(hard_state, sync=sync, checkpoint=checkpoint)

    def round_finished(self, finished: Round) -> None:
        """Learn that a round was executed without an error."""
        self._rounds.finish(finished)

    # Reading.

    def payload(self, first: LogIndex, max_bytes: int) -> AppendPayload:
        """Return the entries from `first` on for an append message: at least one, if there is one.

        Bytes when the tail cache holds them, else a span for `read_span`. SpanGone: not held.
        """
        self._check_held(first, first)
        term = self._state.term_at(first)
        assert term is not None, f"entry {first} has no term"
        tail = self._state.tail
        position = self._lookup.position_of(first)
        held = tail.get(first)
        if held is None:
            following, end = self._lookup.boundary(first, position, max_bytes)
            size = end - position
            span = Span(position, size)
            return AppendPayload(first, LogIndex(following - 1), term, size, None, span)
        buffers: list[memoryview | bytes] = []
        last, size = first, 0
        while held is not None and (not buffers or size + held.ref.size <= max_bytes):
            buffers.append(held.header)
            buffers.extend(held.body)
            size += held.ref.size
            last = held.ref.index
            held = tail.get(LogIndex(last + 1))
        return AppendPayload(first, last, term, size, buffers, Span(position, size))

    def entries(self, first: LogIndex, last: LogIndex, max_bytes: int) -> list[Entry]:
        """Return entries from `first`: at least one, at most to `last` or about `max_bytes`.

        The answer may be shorter. Read from the tail or the disk; every byte is checked.
        DamagedLog: the disk holds something else; SpanGone: the log does not hold `first`.
        """
        self._check_held(first, first)
        return self._lookup.entries(first, min(last, self.last_index), max_bytes)

    def tail_span(self, span: Span) -> list[memoryview] | None:
        """Return the bytes of a span in order, or None when not all are in memory. No I/O.

        The local bytes of entry headers are not this member's.
        """
        if span.position < self._state.first_position:
            return None
        return self._state.tail.bytes_of(span.position, span.size)

    def read_span(self, span: Span) -> bytes:
        """Return the bytes of a span from the disk. Any thread; blocks. The caller checks CRCs.

        SpanGone: trimmed, cut off or not written. Between the making of a span and this call a
        suffix may have been replaced: the caller checks index and term of what it gets.
        """
        return self._reader.read(span)

    def path_of(self, position: Position) -> str:
        """Return the segment file that holds a position, to name it. Any thread, no I/O."""
        return self._reader.path_of(position)

    # What a scrub reads and mends.

    def parts(self, committed: LogIndex) -> list[Part]:
        """Return the segments with synced entries, up to the one with a committed entry."""
        state, log_path = self._state, self._folder.log_path
        committed = min(committed, self.durable_index)
        parts: list[Part] = []
        for place, segment in enumerate(state.segments):
            if segment.base_index > committed:
                break
            end = self._durable_end_of(place)
            last = min(committed, end.index)
            is_sealed = segment.samples is None and last == state.last_index_of(place)
            parts.append(
                Part(
                    f"{log_path}/{segment.name}",
                    segment.header,
                    end.index,
                    end.position,
                    end.crc,
                    last,
                    f"{log_path}/{index_name(segment.base)}" if is_sealed else "",
                    () if segment.samples is None else tuple(segment.samples.pairs(end.position)),
                )
            )
        return parts

    def _durable_end_of(self, place: int) -> Chain:
        """Return the end of the synced entries of a segment, without I/O."""
        state, durable = self._state, self.durable_index
        if state.last_index_of(place) > durable:
            following = parse_entry_header(state.tail.at(LogIndex(durable + 1)).header)
            return Chain(durable, Position(following.position), following.previous_crc)
        if place + 1 == len(state.segments):
            return state.end
        header = state.segments[place + 1].header
        position = Position(header.base_position)
        return Chain(LogIndex(header.base_index - 1), position, header.previous_crc)

    def store_index(self, base: Position, content: bytes) -> None:
        """Let the next round replace the index of a sealed segment, if the log still has it."""
        if any(each.base == base and each.samples is None for each in self._state.segments):
            self._lookup.rebuilt[index_name(base)] = content

    def rewrite(self, names: Collection[str]) -> None:
        """Let the next round write small files again, as they must be: what a scrub found damaged.

        Hard state, identity and checkpoint are known in memory, as they were stored last.
        """
        self._rounds.rewrite |= set(names)

    def _check_held(self, first: LogIndex, last: LogIndex) -> None:
        if first < self.first_index or last > self.last_index:
            held = f"{self.first_index}..{self.last_index}"
            raise SpanGone(f"entries {first}..{last} are not in the log, which has {held}")

    @property
    def disk_room(self) -> DiskRoom:
        """How much free space there was at the last look: the caller's, or after an allocation."""
        return self.space.room

    # The end.

    def close(self) -> None:
        """Sync, write a last checkpoint, close all files. What no round wrote is forgotten."""
        self._rounds.close()
        self._disk.close()
        self._pool.close()


def _before(header: SegmentHeader) -> Chain:
    """Return the chain before a segment. The time of its last entry is not known, so 0."""
    return Chain(
        LogIndex(header.base_index - 1),
        Position(header.base_position),
        header.previous_crc,
        Term(header.previous_term),
    )
