"""What the log holds, as the loop's thread sees it. It is ahead of the disk.

Owns: segments, chain, terms, tail, and the marks that say how much of them is on disk; appending,
cutting and trimming, which change memory only. No I/O: `writing/rounds.py` writes what changed,
`reading/lookup.py` finds old bytes.

    first ........ durable ........ written ........ taken ........ end
         on disk, synced  in the files,     in a round    in memory only
                          not synced yet
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from dledger.log.checkpoint import Checkpoint
from dledger.log.memory.chain import START, Chain
from dledger.log.memory.samples import Samples, TermStarts
from dledger.log.memory.segment import Segment
from dledger.log.memory.tail import Tail, TailEntry
from dledger.types import Buffer, EntryKind, EntryRef, LogIndex, Position, Term
from dledger_proto.entry import (
    GROUP_ID_SIZE,
    SALT_SIZE,
    SEGMENT_HEADER_SIZE,
    CorruptEntry,
    EntryHeader,
    SegmentHeader,
    decode_entry,
    frame_entry,
    parse_genesis,
)
from dledger_proto.limits import GIB

JOIN_PAYLOADS_MIN = 16
JOIN_PAYLOAD_SIZE_MAX = 8 * 1024
"""So many payloads of at most this size are joined: three views of each cost more than a copy."""
TRIM_BYTES_MAX = GIB
"""One round removes so many bytes, or one segment: trimming a long log delays no caller."""


@dataclass(slots=True)
class LogState:
    """The log in memory. Only the loop's thread touches it."""

    tail: Tail
    random: Random
    segment_size: int
    group_id: bytes = b""
    segments: list[Segment] = field(default_factory=list[Segment])
    terms: TermStarts = field(default_factory=TermStarts)
    end: Chain = field(default_factory=Chain)
    taken: Chain = field(default_factory=Chain)
    """Where the newest taken round ends, or the pending cut if that is lower."""
    written: Chain = field(default_factory=Chain)
    """Up to here the kernel has it: the end of the process does not lose it, a power cut may."""
    durable: Chain = field(default_factory=Chain)
    cut: Chain | None = None
    """The lowest cut that no round was taken for; only when it concerns the disk."""
    doomed: list[str] = field(default_factory=list[str])
    """Files behind the cut, newest first."""
    checkpoint_position: Position = START
    """What the newest checkpoint that a round was taken for claims."""
    trim_base: Position | None = None
    """The first segment to keep, from when a trim is planned until its round has ended."""

    @property
    def first_index(self) -> LogIndex:
        """Index of the first entry; of the one to come when the log is empty."""
        return self.segments[0].base_index if self.segments else LogIndex(1)

    @property
    def first_position(self) -> Position:
        """Position of the first entry."""
        return self.segments[0].base if self.segments else Position(0)

    def term_at(self, index: LogIndex) -> Term | None:
        """Return an entry's term; also that of the one before the first, known from its segment."""
        if self.first_index <= index <= self.end.index:
            return self.terms.at(index)
        if index == self.first_index - 1:
            return Term(self.segments[0].header.previous_term) if self.segments else Term(0)
        return None

    def place_of_index(self, index: LogIndex) -> int:
        """Return which segment holds an index."""
        place = bisect_right(self.segments, index, key=lambda segment: segment.base_index) - 1
        assert place >= 0, f"index {index} is before the first, {self.first_index}"
        return place

    def place_of_position(self, position: Position) -> int:
        """Return which segment holds a position."""
        place = bisect_right(self.segments, position, key=lambda segment: segment.base) - 1
        assert place >= 0, f"position {position} is before the first, {self.first_position}"
        return place

    def end_of(self, place: int) -> Position:
        """Return where the entries of a segment end."""
        following = self.segments[place + 1 : place + 2]
        return following[0].base if following else self.end.position

    def last_index_of(self, place: int) -> LogIndex:
        """Return the last index of a segment."""
        following = self.segments[place + 1 : place + 2]
        return LogIndex(following[0].base_index - 1) if following else self.end.index

    def file_end_of(self, place: int) -> tuple[LogIndex, Position]:
        """Return where to stop reading a segment's file, as index and position.

        That is the first entry in memory, or the one behind the segment: what the tail holds may
        not be in the file yet, and a cut suffix may still be there.
        """
        index, position = LogIndex(self.last_index_of(place) + 1), self.end_of(place)
        if len(self.tail) and self.tail.first_index < index:
            index = self.tail.first_index
            position = self.tail.at(index).ref.position
        return index, position

    def append_new(
        self, kind: EntryKind, payloads: Sequence[Buffer], term: Term, time_ms: int
    ) -> EntryRef:
        """Add an entry of this leader behind the last one; see `CommitLog.append_new`."""
        end = self.end
        if term < end.term or time_ms < end.time_ms:
            raise ValueError(
                f"term {term}, time_ms {time_ms} behind {end.term}, {end.time_ms} of {end.index}"
            )
        if (kind is EntryKind.GENESIS) != (end.index == 0):
            raise ValueError(f"a {kind.name} entry at index {end.index + 1}")
        if kind is EntryKind.GENESIS:
            self.group_id = parse_genesis(payloads[0]).group_id
        index = LogIndex(end.index + 1)
        header, crc = frame_entry(
            kind, payloads, index=index, term=term, time_ms=time_ms,
            position=end.position, previous_crc=end.crc,
        )  # fmt: skip
        body_size = sum(map(len, payloads))
        count = len(payloads)
        if count >= JOIN_PAYLOADS_MIN and body_size <= count * JOIN_PAYLOAD_SIZE_MAX:
            payloads = (b"".join(payloads),)
        ref = EntryRef(index, term, end.position, len(header) + body_size, crc)
        entry = TailEntry(ref, kind, time_ms, header, [memoryview(part) for part in payloads])
        after = Chain(index, Position(end.position + ref.size), crc, term, time_ms)
        self._add(entry, after)
        return ref

    def append_frames(self, buffer: Buffer, entries: Sequence[tuple[EntryHeader, int]]) -> None:
        """Add entries that the leader framed; see `CommitLog.append_frames`."""
        chain = self.end
        view = memoryview(buffer)
        kept: list[tuple[TailEntry, Chain]] = []
        for given, offset in entries:
            decoded = decode_entry(view, offset, check_payloads=True)
            header = decoded.header
            mismatch = chain.mismatch(header)
            if mismatch is not None or header != given:
                raise CorruptEntry(mismatch or f"at {offset} lies {header.describe()}")
            kind = EntryKind(header.kind)
            if (kind is EntryKind.GENESIS) != (header.index == 1):
                raise CorruptEntry(f"entry {header.index} is a {kind.name}")
            if kind is EntryKind.GENESIS:
                parse_genesis(decoded.payloads[0] if decoded.payloads else b"")
            chain = chain.after(header)
            ref = EntryRef(
                chain.index, chain.term, Position(header.position), header.size, chain.crc
            )
            body_at = offset + header.header_size
            body = [view[body_at : offset + header.size]] if header.payload_count else []
            kept.append((
                TailEntry(ref, kind, header.time_ms, bytes(view[offset:body_at]), body), chain,
            ))  # fmt: skip
        for entry, end in kept:
            if entry.kind is EntryKind.GENESIS:
                self.group_id = parse_genesis(entry.body[0]).group_id
            self._add(entry, end)

    def _add(self, entry: TailEntry, end: Chain) -> None:
        """Put an entry behind the last one; `end` is the chain with it."""
        segment = self._segment_for(entry.ref.size)
        segment.note(entry.ref.index, entry.ref.position, entry.time_ms)
        self.terms.note(entry.ref.index, entry.ref.term)
        self.tail.add(entry)
        self.end = end

    def _segment_for(self, size: int) -> Segment:
        """Return the active segment, a new one when the entry does not fit."""
        end = self.end
        if self.segments:
            active = self.segments[-1]
            used = active.file_offset(end.position)
            if used == SEGMENT_HEADER_SIZE or used + size <= self.segment_size:
                return active
        header = SegmentHeader(
            self.group_id or bytes(GROUP_ID_SIZE),
            end.position,
            end.index + 1,
            end.term,
            end.crc,
            self.random.randbytes(SALT_SIZE),
        )
        self.segments.append(Segment(header))
        return self.segments[-1]

    def cut_behind(self, end: Chain, samples: Samples) -> None:
        """Forget every entry behind `end`.

        `samples` are those of the segment that becomes the last one.
        """
        while self.segments and (self.segments[-1].base > end.position or end.position == 0):
            gone = self.segments.pop()
            if gone.on_disk:
                self.doomed.append(gone.name)
        if self.segments:
            active = self.segments[-1]
            active.samples = samples
            active.samples.cut(end.position)
            active.sealed = False
            active.time_max_ms = min(active.time_max_ms, end.time_ms)
        if end.position == 0:
            self.group_id = b""
        self.terms.cut(LogIndex(end.index + 1))
        self.tail.cut(LogIndex(end.index + 1))
        self.end = end
        if end.position < self.taken.position:
            self.taken = end
            if self.cut is None or end.position < self.cut.position:
                self.cut = end
        if end.position < self.written.position:
            self.written = end
        if end.position < self.durable.position:
            self.durable = end

    def checkpoint(self, end: Chain, first: Segment | None = None) -> Checkpoint:
        """Return the checkpoint of the log up to `end`, with the head at `first` when given."""
        kept = [s for s in self.segments if s.on_disk and s.base <= end.position]
        if first is not None:
            kept = [segment for segment in kept if segment.base >= first.base]
        if not kept:
            return Checkpoint()
        head, active = kept[0], kept[-1]
        samples = active.samples.pairs(end.position) if active.samples is not None else []
        return Checkpoint(
            group_id=self.group_id,
            first_index=head.base_index,
            first_position=head.base,
            previous_term=Term(head.header.previous_term),
            previous_crc=head.header.previous_crc,
            end=end,
            time_min_ms=active.time_min_ms,
            time_max_ms=min(active.time_max_ms, end.time_ms),
            segments=[(segment.base, segment.base_index) for segment in kept],
            term_starts=self.terms.pairs(head.base_index, end.index),
            samples=samples,
        )

    def sealed_on_disk(self) -> None:
        """A round has finished: the samples of sealed segments lie in their index files."""
        for segment in reversed(self.segments):
            if segment.sealed:
                if segment.samples is None:
                    return
                segment.samples = None

    def plan_trim(self, position_needed: Position, index_limit: LogIndex) -> list[str]:
        """Choose the segments to remove from the head; return the names of their files."""
        bound = min(position_needed, self.durable.position)
        names: list[str] = []
        for place, segment in enumerate(self.segments[:-1]):
            end = self.end_of(place)
            if end > bound or self.last_index_of(place) >= index_limit:
                break
            if names and end - self.segments[0].base > TRIM_BYTES_MAX:
                break
            names.append(segment.name)
            self.trim_base = end
        return names

    def drop_head(self, base: Position) -> None:
        """The files before `base` go: forget their entries."""
        place = self.place_of_position(base)
        del self.segments[:place]
        self.terms.trim(self.first_index)
        self.tail.trim(self.first_index)

    def unwritten(self, place: int) -> Sequence[TailEntry]:
        """Return the entries of a segment that no round was taken for."""
        first = max(self.segments[place].base_index, self.taken.index + 1)
        return [
            self.tail.at(LogIndex(index)) for index in range(first, self.last_index_of(place) + 1)
        ]
