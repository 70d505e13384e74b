"""Walking entry frames: reading entries one after the other, in large chunks.

Owns: how much is read at a time, and what counts as a bad frame. What a bad frame means is decided
elsewhere: at start by `recovery/table.py`, later by `lookup.py`.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from dledger.types import EntryRef, LogIndex, Position, Term
from dledger_proto.entry import (
    ENTRY_HEADER_SIZE_MAX,
    CorruptEntry,
    DecodedEntry,
    EntryHeader,
    NewerEntry,
    ShortEntry,
    decode_entry,
    parse_entry_header,
)

HEADERS_CHUNK: Final = 64 * 1024
"""Bytes read at a time when only headers are wanted."""
ENTRIES_CHUNK: Final = 2 * 1024 * 1024
"""Bytes read at a time when whole entries are wanted."""

ReadAt = Callable[[int, Position], bytes]
"""(size, position) -> up to `size` bytes from there; fewer only where the file ends."""


class Located(NamedTuple):
    """An entry's place and its stamp."""

    ref: EntryRef
    time_ms: int


def ref_of(header: EntryHeader) -> EntryRef:
    """Return what identifies the entry with this header."""
    return EntryRef(
        LogIndex(header.index), Term(header.term), Position(header.position), header.size,
        header.header_crc,
    )  # fmt: skip


def located(header: EntryHeader) -> Located:
    """Return place and stamp of the entry with this header."""
    return Located(ref_of(header), header.time_ms)


class BadFrame(Exception):
    """No sound frame lies at `position`, or one of a later version (`newer`)."""

    def __init__(self, position: Position, reason: str, *, newer: bool = False) -> None:
        super().__init__(f"at position {position}: {reason}")
        self.position = position
        self.reason = reason
        self.newer = newer


def walk_headers(read: ReadAt, position: Position, end: Position) -> Iterator[EntryHeader]:
    """Yield the headers of the entries that lie between two positions; BadFrame at a bad one."""
    window = _Window(read, position, end, HEADERS_CHUNK)
    while position < end:
        try:
            header = parse_entry_header(window.buffer, position - window.start)
        except ShortEntry as short:
            window.read_on(position, HEADERS_CHUNK, short)
            continue
        except CorruptEntry as corrupt:
            raise _bad_frame(position, corrupt) from corrupt
        if header.position != position:
            raise BadFrame(position, f"the entry says position {header.position}")
        yield header
        position = Position(position + header.size)
        if position >= window.start + len(window.buffer):
            window.skip_to(position)


def walk_entries(
    read: ReadAt, position: Position, end: Position, chunk: int = ENTRIES_CHUNK
) -> Iterator[DecodedEntry]:
    """Yield the checked entries that lie between two positions; BadFrame at a bad one.

    An entry that reaches behind `end` is a bad frame. Whether one follows the other is for the
    caller to check. Payloads are views of buffers of `chunk` bytes, or of the entry's own size.
    """
    window = _Window(read, position, end, chunk)
    while position < end:
        offset = position - window.start
        try:
            entry = decode_entry(window.buffer, offset, check_payloads=True)
        except ShortEntry as short:
            window.read_on(position, max(chunk, _entry_size(window.buffer, offset)), short)
            continue
        except CorruptEntry as corrupt:
            raise _bad_frame(position, corrupt) from corrupt
        yield entry
        position = Position(position + entry.header.size)


def _bad_frame(position: Position, corrupt: CorruptEntry) -> BadFrame:
    return BadFrame(position, str(corrupt), newer=isinstance(corrupt, NewerEntry))


def _entry_size(buffer: bytes, offset: int) -> int:
    """Return the size of the entry that starts here; 0 while its header is not complete."""
    try:
        return parse_entry_header(buffer, offset).size
    except ShortEntry:
        return 0


class _Window:
    """The part of a log that was read last."""

    def __init__(self, read: ReadAt, start: Position, end: Position, chunk: int) -> None:
        assert chunk >= ENTRY_HEADER_SIZE_MAX, "a chunk holds at least one header"
        self._read = read
        self._end = end
        self.start = start
        self.buffer = b""

    def read_on(self, position: Position, size: int, short: ShortEntry) -> None:
        """Read from `position`; BadFrame when that gives no more than what is there already."""
        known = self.start + len(self.buffer) - position
        size = min(size, self._end - position)
        if size <= known:
            raise BadFrame(position, str(short)) from short
        self.start, self.buffer = position, self._read(size, position)
        if len(self.buffer) <= known:
            raise BadFrame(position, f"the file ends here: {short}") from short

    def skip_to(self, position: Position) -> None:
        """Forget what was read; the next entry starts at `position`."""
        self.start, self.buffer = position, b""
