"""Reads the committed entries of a segment from the disk, and names what is not as it was written.

Owns: what is damage, and from where to where it reaches. Every byte is checked: the header against
the log's own knowledge, each entry by its checksums, its place in the chain and its local stamp,
the index by its checksum and by the entries. Does not own what is done about it (`mend.py`), nor
which part is committed (`CommitLog.parts`).

An entry whose header is sound has a known size, so its damage ends where it ends. Behind a damaged
header the next entry is searched by its magic, its own position and its checksum. So a damage is a
run of entries in one segment, with a sound neighbour on each side: `before`, and `last_crc`, which
the entry behind says of the last damaged one. Only one run of entries fits between both.

Bytes come from the disk, not from the page cache: what lies in the cache may be better.
"""

import enum
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final

from dledger.files import File, FileSystem
from dledger.log.atomic_file import CorruptFile, read_file
from dledger.log.errors import NewerFormat
from dledger.log.memory.chain import NO_INDEX, NO_TERM, Chain
from dledger.log.memory.samples import Samples, TermStarts
from dledger.log.memory.segment import SegmentIndex, file_offset, parse_segment_index
from dledger.log.reading.part import Part
from dledger.log.reading.walk import BadFrame, walk_entries
from dledger.types import LogIndex, Position, Term
from dledger_proto.entry import (
    ENTRY_HEADER_SIZE,
    ENTRY_HEADER_SIZE_MAX,
    ENTRY_MAGIC,
    SEGMENT_HEADER_SIZE,
    CorruptEntry,
    EntryHeader,
    check_local,
    parse_entry_header,
)
from dledger_proto.limits import MIB

CHUNK: Final = MIB
"""Bytes read at a time, unless an entry is longer; a scan says so often how far it is."""
MISSING: Final = "the file is missing"
_POSITION_AT: Final = 40
"""Where an entry's header holds its position."""


class Kind(enum.Enum):
    """What is damaged."""

    ENTRIES = "entries"
    STAMP = "the local bytes of an entry"
    HEADER = "the header of a segment"
    INDEX = "the index of a segment"


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is not as it was written."""

    kind: Kind
    part: Part
    before: Chain
    """The sound entry before, and where the first damaged one begins."""
    last: LogIndex
    end: Position
    last_crc: int
    why: str
    content: bytes = b""
    """What the index should hold; empty while entries are damaged."""

    @property
    def first(self) -> LogIndex:
        """The first damaged entry."""
        return LogIndex(self.before.index + 1)

    @property
    def start(self) -> Position:
        """Where the first damaged entry begins."""
        return self.before.position

    @property
    def key(self) -> tuple[str, Position, Position]:
        """What this damage is recognised by when it is found again."""
        return self.kind.value, self.start, self.end

    def describe(self) -> str:
        """Return what is damaged, for people."""
        name = self.part.path.rpartition("/")[2]
        if self.kind in (Kind.HEADER, Kind.INDEX):
            return f"{self.kind.value}, {name}"
        entries = f"entry {self.first}"
        if self.last != self.first:
            entries = f"entries {self.first} to {self.last}"
        what = "" if self.kind is Kind.ENTRIES else f"{self.kind.value}: "
        return f"{what}{entries}, positions {self.start} to {self.end}, {name}"


def scan(fs: FileSystem, part: Part) -> Generator[int | Damage]:
    """Read a part; yield the size of each piece that was read, and what is damaged. Blocks.

    OSError: the disk refuses. NewerFormat: a later dledger wrote an entry.
    """
    try:
        file = fs.open(part.path)
    except FileNotFoundError:
        yield _of_header(part, MISSING)
        yield Damage(Kind.ENTRIES, part, part.begin, part.last, part.end, part.last_crc, MISSING)
        return
    try:
        yield from _Scan(fs, file, part).whole()
    finally:
        file.close()


def scan_at(fs: FileSystem, part: Part, position: Position) -> Generator[int | Damage]:
    """Read a part from a known place before a position, until behind it; like `scan`. Blocks.

    Somebody needs to read there, so entries that are not committed are looked at, too.
    """
    try:
        file = fs.open(part.path)
    except FileNotFoundError:
        yield from scan(fs, part)
        return
    try:
        yield from _Scan(fs, file, part).near(position)
    finally:
        file.close()


def _of_header(part: Part, why: str) -> Damage:
    begin = part.begin
    return Damage(Kind.HEADER, part, begin, begin.index, begin.position, 0, why)


class _Scan:
    """One look at one file."""

    def __init__(self, fs: FileSystem, file: File, part: Part) -> None:
        self._fs = fs
        self._file = file
        self._part = part
        self._taken = 0
        self._index = self._read_index()
        """What lies on the disk; None: nothing sound of this segment."""
        expected = () if self._index is None else self._index.samples.pairs()
        self._expected = dict(expected)
        """What the index says of entries that the scan has not met yet."""
        self._is_whole = True
        self._samples = Samples()
        self._terms = TermStarts()
        self._times: list[int] = []

    def whole(self) -> Iterator[int | Damage]:
        """Read all of it."""
        part = self._part
        self._drop_cache()
        if self._pread(SEGMENT_HEADER_SIZE, 0) != part.header.encode():
            yield _of_header(part, "the header is not the one that was written")
        yield from self._walk(part.begin, part.end, part.committed)
        if part.index_path:
            yield from self._judge_index()
        yield self._take()

    def near(self, position: Position) -> Iterator[int | Damage]:
        """Read around a position."""
        part = self._part
        self._drop_cache()
        if self._pread(SEGMENT_HEADER_SIZE, 0) != part.header.encode():
            yield _of_header(part, "the header is not the one that was written")
        yield from self._walk(self._known_before(position), position, part.last)
        yield self._take()

    def _take(self) -> int:
        taken, self._taken = self._taken, 0
        return taken

    # Entries.

    def _walk(self, chain: Chain, stop: Position, last: LogIndex) -> Iterator[int | Damage]:
        """Read entries behind `chain` up to `last`, until a sound one ends behind `stop`."""
        part = self._part
        looked_again = None
        while chain.index < last and chain.position <= stop:
            try:
                for entry in walk_entries(self._read, chain.position, part.end, CHUNK):
                    header = entry.header
                    _check_follows(chain, header)
                    behind = chain.after(header)
                    if not self._is_stamped(header):
                        yield self._found(Kind.STAMP, chain, behind, "its checksum does not match")
                    self._note(header)
                    chain = behind
                    if self._taken >= CHUNK:
                        yield self._take()
                    if chain.position > stop or chain.index == last:
                        break
            except BadFrame as bad:
                if bad.newer:
                    raise NewerFormat(part.path, str(bad)) from bad
                if looked_again != chain.position:
                    looked_again = chain.position  # it may have been mended since it was read
                    continue
                behind = self._behind_damage(chain)
                yield self._found(Kind.ENTRIES, chain, behind, bad.reason)
                chain = behind
        if chain.position == part.end and chain.crc != part.last_crc:
            self._is_whole = False
            begin = part.begin
            why = f"the last entry has crc {chain.crc:08x}, what follows says {part.last_crc:08x}"
            yield Damage(Kind.ENTRIES, part, begin, part.last, part.end, part.last_crc, why)

    def _is_stamped(self, header: EntryHeader) -> bool:
        """Tell whether the stamp of an entry is right: in what was read, or by another look."""
        salt = self._part.header.salt
        if check_local(header, salt):
            return True
        again = self._header_at(Position(header.position))
        return again is not None and check_local(again, salt)

    def _found(self, kind: Kind, chain: Chain, behind: Chain, why: str) -> Damage:
        return Damage(kind, self._part, chain, behind.index, behind.position, behind.crc, why)

    def _behind_damage(self, chain: Chain) -> Chain:
        """Return the end of the damage that begins behind `chain`."""
        part = self._part
        own = self._header_at(chain.position)
        if own is not None and chain.mismatch(own) is None and own.end_position <= part.end:
            self._note(own)
            return chain.after(own)  # only its payload is damaged
        self._is_whole = False
        following = self._search(chain)
        if following is None:
            return Chain(part.last, part.end, part.last_crc, chain.term, chain.time_ms)
        index, position = LogIndex(following.index - 1), Position(following.position)
        return Chain(index, position, following.previous_crc, chain.term, chain.time_ms)

    def _search(self, chain: Chain) -> EntryHeader | None:
        """Return the header of the next sound entry behind a damaged one; None up to the end."""
        part = self._part
        position = Position(chain.position + 1)
        while position < part.end:
            size = min(CHUNK + ENTRY_HEADER_SIZE_MAX, part.end - position)
            chunk = self._read(size, position)
            at = chunk.find(ENTRY_MAGIC)
            while 0 <= at < CHUNK:
                said = chunk[at + _POSITION_AT : at + _POSITION_AT + 8]
                if int.from_bytes(said, "little") == position + at:
                    header = _header_in(chunk, at)
                    if header is not None and self._may_follow(chain, header):
                        return header
                at = chunk.find(ENTRY_MAGIC, at + 1)
            position = Position(position + CHUNK)
        return None

    def _may_follow(self, chain: Chain, header: EntryHeader) -> bool:
        """Tell whether this may be the first sound entry behind a damage that follows `chain`."""
        lost = header.index - chain.index - 1
        return (
            0 < lost <= (header.position - chain.position) // ENTRY_HEADER_SIZE
            and header.index <= self._part.last
            and header.end_position <= self._part.end
            and header.term >= chain.term
            and header.time_ms >= chain.time_ms
        )

    def _header_at(self, position: Position) -> EntryHeader | None:
        size = min(ENTRY_HEADER_SIZE_MAX, self._part.end - position)
        header = _header_in(self._read(size, position), 0)
        return header if header is not None and header.position == position else None

    def _read(self, size: int, position: Position) -> bytes:
        return self._pread(size, file_offset(self._part.base, position))

    def _drop_cache(self) -> None:
        """Drop the pages of the whole file: of a part the kernel may keep those at its edges."""
        self._file.drop_cache(self._file.size(), 0)

    def _pread(self, size: int, offset: int) -> bytes:
        data = self._file.pread(size, offset)
        self._taken += len(data)
        return data

    # The index.

    def _note(self, header: EntryHeader) -> None:
        """Learn of an entry with a sound header."""
        index, position = LogIndex(header.index), Position(header.position)
        if self._expected.get(index) == position:
            del self._expected[index]
        self._samples.note(index, position)
        self._terms.note(index, Term(header.term))
        self._times = [self._times[0] if self._times else header.time_ms, header.time_ms]

    def _read_index(self) -> SegmentIndex | None:
        part = self._part
        if not part.index_path:
            return None
        try:
            content = read_file(self._fs, part.index_path)
            index = None if content is None else parse_segment_index(content)
        except CorruptFile:
            return None
        if index is None or (index.base, index.base_index, index.salt) != (
            part.base, part.header.base_index, part.header.salt,
        ):  # fmt: skip
            return None
        ends = index.end, index.last_index, index.last_crc
        return index if ends == (part.end, part.last, part.last_crc) else None

    def _judge_index(self) -> Iterator[Damage]:
        """Compare the index with the entries that were read."""
        part, index = self._part, self._index
        made = self._made_index() if self._is_whole else None
        is_wrong = made is not None and index is not None and (
            bool(self._expected)
            or (index.time_min_ms, index.time_max_ms) != (made.time_min_ms, made.time_max_ms)
            or index.term_starts != made.term_starts
        )  # fmt: skip
        if index is None or is_wrong:
            begin = part.begin
            why = "it is not the index of these entries"
            content = b"" if made is None else made.encode()
            yield Damage(Kind.INDEX, part, begin, part.last, part.end, part.last_crc, why, content)

    def _made_index(self) -> SegmentIndex:
        part, first = self._part, LogIndex(self._part.header.base_index)
        return SegmentIndex(
            part.base, part.end, first, part.last, part.last_crc, self._times[0], self._times[1],
            part.header.salt, self._terms.pairs(first, part.last), self._samples,
        )  # fmt: skip

    def _known_before(self, position: Position) -> Chain:
        """Return what a sound entry at or before a position follows; else the segment's begin."""
        part = self._part
        known = self._index.samples.pairs() if self._index is not None else part.samples
        for index, place in reversed(known):
            if place >= position:
                continue
            header = self._header_at(Position(place))
            if header is not None and header.index == index:
                return Chain(
                    LogIndex(max(index - 1, NO_INDEX)), Position(place), header.previous_crc,
                    NO_TERM,
                )  # fmt: skip
        return part.begin


def _header_in(buffer: bytes, at: int) -> EntryHeader | None:
    """Return the sound header at a place of a buffer; None when there is none."""
    try:
        return parse_entry_header(buffer, at)
    except CorruptEntry:
        return None


def _check_follows(chain: Chain, header: EntryHeader) -> None:
    mismatch = chain.mismatch(header)
    if mismatch is not None:
        raise BadFrame(chain.position, mismatch)
