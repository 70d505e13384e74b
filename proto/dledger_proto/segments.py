"""Read-only reader of a folder of segments: inspect, export, Spark, comparing stopped members.

Owns: walking entries with every check, and reading a span of log bytes across files. Not: what
exists for consumers (the consume queue alone says so, D6), repair, and the decision whether a bad
tail is torn or damaged (`dledger.log` recovery): here both are `DamagedSegment`, which says where.

Rules: nothing is written. Files are read with pread, never mapped (a bad sector under a mapping
kills the process). The zeros that preallocation left behind the last entry of a file are its end.
"""

import bisect
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dledger_proto.entry import (
    ENTRY_HEADER_SIZE_MAX,
    SEGMENT_HEADER_SIZE,
    CorruptEntry,
    DecodedEntry,
    EntryHeader,
    SegmentHeader,
    check_local,
    decode_entry,
    parse_entry_header,
    parse_segment_header,
    parse_segment_name,
)
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import KIB, MIB

READ_CHUNK_SIZE: Final = MIB
SKIP_CHUNK_SIZE: Final = 64 * KIB
"""When only headers are of interest."""
_ZEROS: Final = bytes(READ_CHUNK_SIZE)
_NO_GROUP: Final = bytes(16)
assert SKIP_CHUNK_SIZE > ENTRY_HEADER_SIZE_MAX, "a chunk holds the largest header"


class DamagedSegment(ValueError):
    """What lies at a place of the log is not what must be there."""

    def __init__(self, file: str, position: int, reason: str, *, in_last_segment: bool) -> None:
        super().__init__(f"{file}: position {position}: {reason}")
        self.file = file
        self.position = position
        self.reason = reason
        self.in_last_segment = in_last_segment
        """True: it may be the torn tail of a member that was killed, which its start cuts."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file to read from; only `pread(size, offset)` touches it (fewer bytes: the end)."""

    name: str
    """Its file name, which says the base position; a folder in front is shown in errors."""
    size: int
    pread: Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class _Chain:
    """What the next entry has to follow."""

    position: int
    index: int
    term: int
    crc: int
    time_ms: int


class _Window:
    """The bytes of one file around the place of interest."""

    def __init__(self, file: SegmentFile, chunk_size: int) -> None:
        self._file = file
        self._chunk_size = chunk_size
        self._data = b""
        self._start = 0

    def get(self, offset: int, size: int) -> tuple[bytes, int]:
        """Return (buffer, where file offset `offset` lies in it); short only at the file's end."""
        at = offset - self._start
        if at < 0 or at + size > len(self._data):
            self._data = _read_fully(self._file, max(size, self._chunk_size), offset)
            self._start = offset
            at = 0
        return self._data, at


class SegmentReader:
    """The log that lies in a list of segment files."""

    def __init__(self, files: Sequence[SegmentFile]) -> None:
        """Read the headers; `DamagedSegment` when one is bad or they are not of one group.

        A last file without a sound header is one whose making was interrupted: it is left out.
        """
        self._files: list[SegmentFile] = []
        self._headers: list[SegmentHeader] = []
        ordered = sorted(files, key=lambda file: os.path.basename(file.name))
        for file in ordered:
            header = _segment_header(file, is_last=file is ordered[-1])
            if header is not None:
                self._files.append(file)
                self._headers.append(header)
        self._bases = [header.base_position for header in self._headers]
        groups = {header.group_id for header in self._headers} - {_NO_GROUP}
        if len(groups) > 1:
            names = sorted(group.hex() for group in groups)
            raise DamagedSegment(
                self._files[0].name, self._bases[0], f"segments of several groups: {names}",
                in_last_segment=False,
            )  # fmt: skip
        self.group_id = groups.pop() if groups else _NO_GROUP

    @property
    def headers(self) -> Sequence[SegmentHeader]:
        """The headers of the segments, in order."""
        return self._headers

    @property
    def first_position(self) -> int | None:
        """Position of the first entry; None without segments."""
        return self._bases[0] if self._bases else None

    @property
    def first_index(self) -> int | None:
        """Index of the first entry; None without segments."""
        return self._headers[0].base_index if self._headers else None

    def locate(self, position: int) -> tuple[str, int]:
        """Return (file name, file offset) of a position.

        HEAD_TRIMMED below the first segment; a position past the end lies in the last file.
        """
        number = self._segment_of(position)
        return self._files[number].name, _offset(position, self._headers[number])

    def _segment_of(self, position: int) -> int:
        number = bisect.bisect_right(self._bases, position) - 1
        if number < 0:
            raise DledgerError(
                Code.HEAD_TRIMMED, f"position {position} is below {self.first_position}"
            )
        return number

    def read_span(self, position: int, size: int) -> bytes:
        """Return the `size` bytes from `position`, across files; whoever uses them checks a CRC.

        HEAD_TRIMMED below the first segment, `DamagedSegment` where a file ends too early.
        """
        parts: list[bytes] = []
        while size > 0:
            number = self._segment_of(position)
            file = self._files[number]
            wanted = size
            if number + 1 < len(self._bases):
                wanted = min(size, self._bases[number + 1] - position)
            part = _read_fully(file, wanted, _offset(position, self._headers[number]))
            if len(part) < wanted:
                raise self._damaged(
                    number, position + len(part), f"the file ends, {size - len(part)} bytes missing"
                )
            parts.append(part)
            position += wanted
            size -= wanted
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def entries(
        self,
        position: int | None = None,
        *,
        first_index: int | None = None,
        check_payloads: bool = True,
    ) -> Iterator[DecodedEntry]:
        """Iterate over the entries from the one at `position`, or of `first_index`, to the end.

        Default: from the first. Each is checked: header, payloads, place, chain to the entry
        before, local bytes. `DamagedSegment` at the first that does not fit; HEAD_TRIMMED for a
        start below the first segment.
        """
        if not self._files:
            return
        number, start = 0, self._bases[0]
        if position is not None:
            number, start = self._segment_of(position), position
        elif first_index is not None:
            number, start = self._find(first_index)
        chain: _Chain | None = None
        while number < len(self._files):
            chain = self._start_of(number, chain, start)
            chain = yield from self._walk(number, start, chain, check_payloads)
            start = chain.position if chain is not None else start
            number += 1

    def _find(self, index: int) -> tuple[int, int]:
        """Return segment and position of the entry of an index, or of the end when it is above."""
        first = [header.base_index for header in self._headers]
        number = bisect.bisect_right(first, index) - 1
        if number < 0:
            raise DledgerError(Code.HEAD_TRIMMED, f"index {index} is below {first[0]}")
        header = self._headers[number]
        window = _Window(self._files[number], SKIP_CHUNK_SIZE)
        position = header.base_position
        for _ in range(index - header.base_index):
            found = self._header_at(number, position, window)
            if found is None:
                break
            position = found.end_position
        return number, position

    def _start_of(self, number: int, chain: _Chain | None, start: int) -> _Chain | None:
        """Check that a segment follows what was read before it; return what its entry follows."""
        header = self._headers[number]
        if start > header.base_position:
            return None
        if chain is not None and (
            header.base_position != chain.position
            or header.base_index != chain.index + 1
            or header.previous_term != chain.term
            or header.previous_crc != chain.crc
        ):
            raise self._damaged(
                number,
                header.base_position,
                f"the segment before ends at position {chain.position}, index {chain.index}, term "
                f"{chain.term}, crc {chain.crc:08x}; this one follows index "
                f"{header.base_index - 1}, term {header.previous_term}, "
                f"crc {header.previous_crc:08x}",
            )
        return _Chain(
            header.base_position,
            header.base_index - 1,
            header.previous_term,
            header.previous_crc,
            chain.time_ms if chain is not None else 0,
        )

    def _walk(
        self, number: int, position: int, chain: _Chain | None, check_payloads: bool
    ) -> Generator[DecodedEntry, None, _Chain | None]:
        """Yield the entries of one segment; return what the next segment has to follow."""
        window = _Window(self._files[number], READ_CHUNK_SIZE)
        while True:
            header = self._header_at(number, position, window)
            if header is None:
                break
            offset = _offset(position, self._headers[number])
            buffer, at = window.get(offset, header.size)
            try:
                entry = decode_entry(buffer, at, check_payloads=check_payloads)
            except CorruptEntry as error:
                raise self._damaged(number, position, str(error)) from error
            if not check_local(header, self._headers[number].salt):
                raise self._damaged(number, position, "the entry was not written into this file")
            self._check_chain(number, chain, header)
            yield entry
            chain = _Chain(
                header.end_position, header.index, header.term, header.header_crc, header.time_ms
            )
            position = chain.position
        if number + 1 < len(self._bases) and self._bases[number + 1] != position:
            raise self._damaged(
                number,
                position,
                f"entries end here, but the next segment starts at {self._bases[number + 1]}",
            )
        return chain

    def _header_at(self, number: int, position: int, window: _Window) -> EntryHeader | None:
        """Return the header of the entry at `position`; None at the end of the segment."""
        if number + 1 < len(self._bases) and position == self._bases[number + 1]:
            return None
        offset = _offset(position, self._headers[number])
        file = self._files[number]
        buffer, at = window.get(offset, ENTRY_HEADER_SIZE_MAX)
        if buffer[at : at + 8].count(0) == len(buffer[at : at + 8]) and _is_zero(file, offset):
            return None
        try:
            header = parse_entry_header(buffer, at)
        except CorruptEntry as error:
            raise self._damaged(number, position, str(error)) from error
        if header.position != position:
            raise self._damaged(
                number, position, f"the entry says that its position is {header.position}"
            )
        return header

    def _check_chain(self, number: int, chain: _Chain | None, header: EntryHeader) -> None:
        if chain is None:
            return
        if (
            header.index != chain.index + 1
            or header.term < chain.term
            or header.previous_crc != chain.crc
            or header.time_ms < chain.time_ms
        ):
            raise self._damaged(
                number,
                header.position,
                f"{header.describe()} does not follow index {chain.index}, term {chain.term}, "
                f"crc {chain.crc:08x}, time {chain.time_ms}",
            )

    def _damaged(self, number: int, position: int, reason: str) -> DamagedSegment:
        return DamagedSegment(
            self._files[number].name,
            position,
            reason,
            in_last_segment=number == len(self._files) - 1,
        )


@contextmanager
def open_folder(folder: str | Path) -> Generator[SegmentReader, None, None]:
    """Open all segments of a folder for reading; they are closed at the end of the `with`."""
    with ExitStack() as stack:
        files: list[SegmentFile] = []
        for path in sorted(Path(folder).iterdir()):
            if parse_segment_name(path.name) is None:
                continue
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            files.append(SegmentFile(str(path), os.fstat(fd).st_size, _pread_of(fd)))
        yield SegmentReader(files)


def _pread_of(fd: int) -> Callable[[int, int], bytes]:
    return lambda size, offset: os.pread(fd, size, offset)


def _read_fully(file: SegmentFile, size: int, offset: int) -> bytes:
    """Return `size` bytes from `offset`, fewer only at the end of the file."""
    size = min(size, max(file.size - offset, 0))
    data = file.pread(size, offset) if size else b""
    if len(data) == size or not data:
        return data
    parts = [data]
    got = len(data)
    while got < size:
        data = file.pread(size - got, offset + got)
        if not data:
            break
        parts.append(data)
        got += len(data)
    return b"".join(parts)


def _is_zero(file: SegmentFile, offset: int) -> bool:
    """Tell whether the file holds nothing but zeros from `offset` on."""
    while offset < file.size:
        chunk = _read_fully(file, READ_CHUNK_SIZE, offset)
        if not chunk:
            return True
        if chunk != _ZEROS[: len(chunk)]:
            return False
        offset += len(chunk)
    return True


def _offset(position: int, header: SegmentHeader) -> int:
    return SEGMENT_HEADER_SIZE + position - header.base_position


def _segment_header(file: SegmentFile, *, is_last: bool) -> SegmentHeader | None:
    """Return a file's header; None for a last file that was never finished."""
    base_position = parse_segment_name(os.path.basename(file.name))
    if base_position is None:
        raise ValueError(f"{file.name} is no name of a segment")
    start = _read_fully(file, SEGMENT_HEADER_SIZE, 0)
    if is_last and (len(start) < SEGMENT_HEADER_SIZE or start == bytes(SEGMENT_HEADER_SIZE)):
        return None
    try:
        header = parse_segment_header(start)
    except CorruptEntry as error:
        raise DamagedSegment(
            file.name, base_position, str(error), in_last_segment=is_last
        ) from error
    if header.base_position != base_position:
        raise DamagedSegment(
            file.name,
            base_position,
            f"the header says that the segment starts at {header.base_position}",
            in_last_segment=is_last,
        )
    return header
