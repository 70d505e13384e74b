"""Read-only reader of the segment files of a stopped member: spans of log bytes across files.

Owns: which segment holds a position, and the check of each segment's header. Does not own: what
exists for consumers (the consume queue alone says so, D6), walking the entries
(`dledger_offline.folder`), the checksums of the bytes that it returns.

Nothing is written. Files are read with pread and never mapped: a bad sector under a mapping kills
the process.
"""

import bisect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dledger_proto.entry import (
    SEGMENT_HEADER_SIZE,
    CorruptEntry,
    SegmentHeader,
    parse_segment_header,
    parse_segment_name,
)
from dledger_proto.errors import Code, DledgerError

_NO_GROUP: Final = bytes(16)


class DamagedSegment(ValueError):
    """A segment file does not hold what it must; says which file, and at which position."""

    def __init__(self, file: str, position: int, reason: str) -> None:
        super().__init__(f"{file}: position {position}: {reason}")


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file to read from; only `pread(size, offset)` touches it (fewer bytes: the end)."""

    name: str
    """Its file name, which says the base position; a folder in front is shown in errors."""
    size: int
    pread: Callable[[int, int], bytes]


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
                self._files[0].name, self._bases[0], f"segments of several groups: {names}"
            )
        self.group_id = groups.pop() if groups else _NO_GROUP

    @property
    def headers(self) -> Sequence[SegmentHeader]:
        """The headers of the segments, in order."""
        return self._headers

    @property
    def first_position(self) -> int | None:
        """Position of the first entry; None without segments."""
        return self._bases[0] if self._bases else None

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
                raise DamagedSegment(
                    file.name,
                    position + len(part),
                    f"the file ends, {size - len(part)} bytes missing",
                )
            parts.append(part)
            position += wanted
            size -= wanted
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _read_fully(file: SegmentFile, size: int, offset: int) -> bytes:
    """Return `size` bytes from `offset`, fewer only at the end of the file."""
    size = min(size, file.size - offset)
    data = b""
    while len(data) < size:
        part = file.pread(size - len(data), offset + len(data))
        if not part:
            break
        data += part
    return data


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
        raise DamagedSegment(file.name, base_position, str(error)) from error
    if header.base_position != base_position:
        raise DamagedSegment(
            file.name,
            base_position,
            f"the header says that the segment starts at {header.base_position}",
        )
    return header
