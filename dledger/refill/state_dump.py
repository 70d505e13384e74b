"""The saved state of a member as one file: how it travels to a member that is refilled.

Owns the format. Little-endian:

    magic "DLSD" (4), version u16 (1), reserved u16
    for each row: key size u16 (not 0), value size u32, key, value
    end: key size u16 (0), rows u64, crc32c u32 of everything before it

Rows are those of one save of the giver, ascending by key. The applied index is one of them, so
rows and index belong together.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from crc32c import crc32c

from dledger.files import File, FileSystem
from dledger.log.atomic_file import CorruptFile
from dledger.state.machine import APPLIED_KEY, APPLIED_VALUE
from dledger.store.store import Row
from dledger_proto.limits import MIB

_MAGIC: Final = b"DLSD"
_HEAD: Final = struct.Struct("<4sHH")
_ROW: Final = struct.Struct("<HI")
_END: Final = struct.Struct("<HQI")
_VERSION: Final = 1
STEP_BYTES: Final = MIB
"""Rows are written and read in pieces of about this size."""
ROW_BYTES_MAX: Final = 64 * MIB
"""A larger row is damage: no table has such values."""


def write_dump(fs: FileSystem, path: str, rows: Iterable[Row]) -> int:
    """Write the rows to a new file; return its size in bytes. Blocks; OSError."""
    file = fs.open(path, create=True)
    try:
        file.truncate(0)
        out = _Writer(file)
        out.add(_HEAD.pack(_MAGIC, _VERSION, 0))
        count = 0
        for key, value in rows:
            out.add(_ROW.pack(len(key), len(value)), key, value)
            count += 1
        end = _END.pack(0, count, 0)[:-4]
        out.add(end)
        out.add(struct.pack("<I", out.crc))
        out.write()
        return out.size
    finally:
        file.close()


def read_dump(fs: FileSystem, path: str) -> Iterator[Row]:
    """Iterate over the rows; CorruptFile, at the latest behind the last row, unless it is whole."""
    file = fs.open(path)
    try:
        source = _Reader(file)
        if source.take(_HEAD.size) != _HEAD.pack(_MAGIC, _VERSION, 0):
            raise CorruptFile("this is no dump of a state, or one of another version")
        count = 0
        last = b""
        while True:
            key_size = int.from_bytes(source.take(2), "little")
            if key_size == 0:
                break
            value_size = int.from_bytes(source.take(4), "little")
            if value_size > ROW_BYTES_MAX:
                raise CorruptFile(f"row {count} says that it has {value_size} bytes")
            key, value = source.take(key_size), source.take(value_size)
            if key <= last:
                raise CorruptFile(f"row {count} is not behind the row before it")
            last = key
            count += 1
            yield key, value
        said = int.from_bytes(source.take(8), "little")
        crc = source.crc
        if (said, source.take(4)) != (count, struct.pack("<I", crc)) or not source.is_at_end:
            raise CorruptFile(f"{count} rows were read, but they are not those that were written")
    finally:
        file.close()


def applied_index_of(row: Row) -> int | None:
    """Return up to which entry the rows are applied, if this row says it; CorruptFile."""
    key, value = row
    if key != APPLIED_KEY:
        return None
    if len(value) != APPLIED_VALUE.size:
        raise CorruptFile(f"the applied index has {len(value)} bytes")
    index: int = APPLIED_VALUE.unpack(value)[0]
    return index


class _Writer:
    def __init__(self, file: File) -> None:
        self._file = file
        self._parts: list[bytes] = []
        self._waiting = 0
        self.crc = 0
        self.size = 0

    def add(self, *parts: bytes) -> None:
        for part in parts:
            self.crc = crc32c(part, self.crc)
            self._waiting += len(part)
        self._parts += parts
        if self._waiting >= STEP_BYTES:
            self.write()

    def write(self) -> None:
        if self._waiting:
            self.size += self._file.pwritev([b"".join(self._parts)], self.size)
        self._parts.clear()
        self._waiting = 0


class _Reader:
    def __init__(self, file: File) -> None:
        self._file = file
        self._buffer = b""
        self._at = 0
        self._offset = 0
        self.crc = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes; CorruptFile when the file ends before."""
        if len(self._buffer) - self._at < size:
            rest = self._buffer[self._at :]
            more = self._file.pread(max(STEP_BYTES, size), self._offset)
            self._offset += len(more)
            self._buffer, self._at = rest + more, 0
        part = self._buffer[self._at : self._at + size]
        if len(part) != size:
            raise CorruptFile(f"the file ends after {self._offset} bytes, {size} more are expected")
        self._at += size
        self.crc = crc32c(part, self.crc)
        return part

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._buffer) and not self._file.pread(1, self._offset)
