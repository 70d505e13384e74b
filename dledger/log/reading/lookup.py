"""Finding entries by index: in the tail, or on disk by samples and a short walk over headers.

Owns: the small cache of sealed segments' indexes, their rebuilding, and reading entries for apply.
All bytes read here must pass their checksums, else `DamagedLog` with row "READ" is raised (I15).
Only the loop's thread calls it. Looking up an old entry reads a few times 64 KiB at most.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from dledger.log.atomic_file import CorruptFile, read_file
from dledger.log.errors import DamagedLog, NewerFormat
from dledger.log.memory.chain import Chain
from dledger.log.memory.log_state import LogState
from dledger.log.memory.samples import Samples, TermStarts
from dledger.log.memory.segment import (
    SegmentIndex,
    file_offset,
    index_name,
    parse_segment_index,
)
from dledger.log.reading.file_pool import FilePool
from dledger.log.reading.walk import (
    ENTRIES_CHUNK,
    HEADERS_CHUNK,
    BadFrame,
    Located,
    ReadAt,
    located,
    ref_of,
    walk_entries,
    walk_headers,
)
from dledger.types import Entry, EntryKind, LogIndex, Position, Term
from dledger_proto.entry import DecodedEntry, EntryHeader, segment_name

INDEXES_CACHED_MAX: Final = 8
READ_ROW: Final = "READ"


class Lookup:
    """Reads the log that a `LogState` describes."""

    def __init__(self, state: LogState, log_path: str, pool: FilePool) -> None:
        self._state = state
        self._log_path = log_path
        self._pool = pool
        self._indexes: OrderedDict[Position, SegmentIndex] = OrderedDict()
        self._cursor: tuple[LogIndex, Position] = (LogIndex(0), Position(0))
        """Where the newest look-up on disk ended: the next one often starts there."""
        self.rebuilt: dict[str, bytes] = {}
        """Index files made again by scanning, for the next round to write."""

    def locate(self, index: LogIndex) -> Located:
        """Return place and stamp of an entry that the log holds."""
        held = self._state.tail.get(index)
        if held is not None:
            return Located(held.ref, held.time_ms)
        return located(self._header_at(index))

    def position_of(self, index: LogIndex) -> Position:
        """Return where an entry starts; `last index + 1` gives the end of the log."""
        if index == self._state.end.index + 1:
            return self._state.end.position
        held = self._state.tail.get(index)
        if held is not None:
            return held.ref.position
        if index == self._cursor[0]:
            return self._cursor[1]
        return Position(self._header_at(index).position)

    def forget_behind(self, end: Chain) -> None:
        """A suffix was cut: nothing behind `end` is where it was."""
        if self._cursor[0] > end.index + 1:
            self._cursor = (LogIndex(0), Position(0))

    def samples_up_to(self, position: Position) -> Samples:
        """Return the samples of the segment that holds `position`, to be changed by a cut."""
        if position == self._state.first_position:
            return Samples()
        place = self._state.place_of_position(position)
        segment = self._state.segments[place]
        if segment.base == position:
            return Samples()
        return segment.samples or Samples(self.index_of(place).samples.pairs())

    def boundary(
        self, first: LogIndex, position: Position, max_bytes: int
    ) -> tuple[LogIndex, Position]:
        """Return where to end a read that starts at an entry: index and position of the next one.

        Takes as many entries as fit in `max_bytes`, at least one, all from one segment and on
        disk. Known boundaries are taken without reading; the walk over headers is the exception.
        """
        state = self._state
        place = state.place_of_index(first)
        stop_index, stop = state.file_end_of(place)
        if stop - position <= max_bytes:
            return stop_index, stop
        sample = self._samples(place).before_position(Position(position + max_bytes))
        if sample is None or sample[1] <= position:
            sample = self._walk_boundary(place, first, position, max_bytes)
        self._cursor = sample
        return sample

    def _walk_boundary(
        self, place: int, first: LogIndex, position: Position, max_bytes: int
    ) -> tuple[LogIndex, Position]:
        index, end = first, position
        _, stop = self._state.file_end_of(place)
        for header in self._headers(place, first, position, stop):
            if index > first and header.position + header.size > position + max_bytes:
                break
            index, end = LogIndex(header.index + 1), Position(header.position + header.size)
        return index, end

    def entries(self, first: LogIndex, last: LogIndex, max_bytes: int) -> list[Entry]:
        """Return entries from `first` on: at least one, at most to `last` or about `max_bytes`.

        May return fewer: the answer does not cross from disk to memory, nor from file to file.
        """
        tail = self._state.tail
        found: list[Entry] = []
        size = 0
        if tail.get(first) is None:
            return self._entries_on_disk(first, last, max_bytes)
        for index in range(first, last + 1):
            held = tail.at(LogIndex(index))
            size += held.ref.size
            if found and size > max_bytes:
                break
            found.append(held.entry())
        return found

    def _entries_on_disk(self, first: LogIndex, last: LogIndex, max_bytes: int) -> list[Entry]:
        place = self._state.place_of_index(first)
        position = self.position_of(first)
        _, end = self._state.file_end_of(place)
        chunk = min(ENTRIES_CHUNK, max(HEADERS_CHUNK, max_bytes))
        found: list[Entry] = []
        size = 0
        try:
            for decoded in walk_entries(self._reader(place), position, end, chunk):
                self._expect(place, decoded.header, LogIndex(first + len(found)))
                size += decoded.header.size
                if found and size > max_bytes:
                    break
                found.append(entry_of(decoded))
                if found[-1].ref.index == last:
                    break
        except BadFrame as bad:
            if not found:
                raise self._damaged(place, bad) from bad
            # What is before the damage is served; the next call starts at it and raises.
        ref = found[-1].ref
        self._cursor = (LogIndex(ref.index + 1), Position(ref.position + ref.size))
        return found

    def _header_at(self, index: LogIndex) -> EntryHeader:
        """Return the header of an entry on disk."""
        place = self._state.place_of_index(index)
        start = self._samples(place).before_index(index)
        assert start is not None, f"no sample at or before {index} in segment {place}"
        cursor = self._cursor
        if start[0] <= cursor[0] <= index and cursor[1] >= start[1]:
            start = cursor
        for header in self._headers(place, *start, self._state.end_of(place)):
            if header.index == index:
                self._cursor = (index, Position(header.position))
                return header
        raise AssertionError(f"entry {index} is not in segment {place}, {start}")

    def _headers(
        self, place: int, index: LogIndex, position: Position, end: Position
    ) -> Iterator[EntryHeader]:
        """Yield the headers of a segment from an entry on."""
        try:
            for header in walk_headers(self._reader(place), position, end):
                self._expect(place, header, index)
                yield header
                index = LogIndex(index + 1)
        except BadFrame as bad:
            raise self._damaged(place, bad) from bad

    def _expect(self, place: int, header: EntryHeader, index: LogIndex) -> None:
        if header.index != index or header.term != self._state.terms.at(index):
            said = f"entry {header.index} of term {header.term}"
            known = f"entry {index} of term {self._state.terms.at(index)}"
            bad = BadFrame(Position(header.position), f"{said} where {known} was written")
            raise self._damaged(place, bad)

    def _damaged(self, place: int, bad: BadFrame) -> DamagedLog | NewerFormat:
        path = self._path(self._state.segments[place].base)
        if bad.newer:
            return NewerFormat(path, str(bad))
        return DamagedLog(
            path,
            bad.position,
            READ_ROW,
            f"at position {bad.position} a sound entry is expected; found: {bad.reason}",
        )

    def _path(self, base: Position) -> str:
        return f"{self._log_path}/{segment_name(base)}"

    def _reader(self, place: int) -> ReadAt:
        base = self._state.segments[place].base
        path = self._path(base)

        def read(size: int, position: Position) -> bytes:
            try:
                return self._pool.pread(path, size, file_offset(base, position))
            except FileNotFoundError as error:
                raise BadFrame(position, "the file is missing") from error

        return read

    # Samples and indexes of segments.

    def _samples(self, place: int) -> Samples:
        samples = self._state.segments[place].samples
        return samples if samples is not None else self.index_of(place).samples

    def index_of(self, place: int) -> SegmentIndex:
        """Return the index of a sealed segment: cached, read, or made again by scanning."""
        segment = self._state.segments[place]
        index = self._indexes.get(segment.base)
        if index is None or not self._fits(index, place):
            index = self._read_index(place) or self._scan_index(place)
            self._indexes[segment.base] = index
        self._indexes.move_to_end(segment.base)
        while len(self._indexes) > INDEXES_CACHED_MAX:
            self._indexes.popitem(last=False)
        return index

    def _read_index(self, place: int) -> SegmentIndex | None:
        path = f"{self._log_path}/{index_name(self._state.segments[place].base)}"
        try:
            content = read_file(self._pool.fs, path)
            index = parse_segment_index(content) if content is not None else None
        except CorruptFile:
            return None
        return index if index is not None and self._fits(index, place) else None

    def _fits(self, index: SegmentIndex, place: int) -> bool:
        """Tell whether an index is of this life of the segment: a cut and a refill change it."""
        segment, following = self._state.segments[place], self._state.segments[place + 1]
        return (index.base, index.salt, index.end, index.last_crc) == (
            segment.base, segment.header.salt, following.base, following.header.previous_crc,
        )  # fmt: skip

    def _scan_index(self, place: int) -> SegmentIndex:
        segment, following = self._state.segments[place], self._state.segments[place + 1]
        samples, terms = Samples(), TermStarts()
        times: list[int] = []
        crc = segment.header.previous_crc
        for header in self._headers(place, segment.base_index, segment.base, following.base):
            samples.note(LogIndex(header.index), Position(header.position))
            terms.note(LogIndex(header.index), Term(header.term))
            times = [times[0] if times else header.time_ms, header.time_ms]
            crc = header.header_crc
        if crc != following.header.previous_crc:
            why = f"the last entry has crc {crc:08x}, not {following.header.previous_crc:08x}"
            raise self._damaged(place, BadFrame(following.base, why))
        last = LogIndex(following.base_index - 1)
        index = SegmentIndex(
            segment.base, following.base, segment.base_index, last, crc, times[0], times[1],
            segment.header.salt, terms.pairs(segment.base_index, last), samples,
        )  # fmt: skip
        self.rebuilt[index_name(segment.base)] = index.encode()
        return index


def entry_of(decoded: DecodedEntry) -> Entry:
    """Return a decoded entry in the log's own types."""
    header = decoded.header
    starts = [Position(start) for start in decoded.starts]
    return Entry(ref_of(header), EntryKind(header.kind), header.time_ms, decoded.payloads, starts)
