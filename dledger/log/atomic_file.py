"""Small files that are replaced as a whole: identity, hard state, checkpoint, segment index.

Owns: their common frame and the one way to write them. After a power cut the file holds either its
old content or its new content, never a part. This module knows nothing of the contents.
Little-endian:

      0  4  magic                      4  2  version         6  2  reserved, 0
      8  4  size of the body          12  4  crc32c of bytes 0..12 and of the body
     16 ..  body
"""

import struct
from typing import Final

from crc32c import crc32c

from dledger.files import FileSystem
from dledger.types import Buffer

_FRAME = struct.Struct("<4sHHI")
_CRC = struct.Struct("<I")
_BODY_AT: Final = 16
BODY_SIZE_MAX: Final = 64 << 20
TEMPORARY_SUFFIX: Final = ".tmp"


class CorruptFile(ValueError):
    """The bytes are not a sound framed file; the text says why."""


class NewerFile(CorruptFile):
    """The bytes are sound, but a later version of dledger wrote them."""


def frame(magic: bytes, version: int, body: bytes) -> bytes:
    """Return the file's bytes for a body."""
    assert len(magic) == 4, magic
    assert len(body) <= BODY_SIZE_MAX, f"a body of {len(body)} bytes, at most {BODY_SIZE_MAX}"
    start = _FRAME.pack(magic, version, 0, len(body))
    return start + _CRC.pack(crc32c(body, crc32c(start))) + body


def unframe(magic: bytes, version: int, content: bytes) -> bytes:
    """Return the body of a file; CorruptFile when anything does not fit."""
    if len(content) < _BODY_AT:
        raise CorruptFile(f"{len(content)} bytes, but the frame alone takes {_BODY_AT}")
    found_magic, found_version, reserved, size = _FRAME.unpack_from(content)
    (crc,) = _CRC.unpack_from(content, _FRAME.size)
    if found_magic != magic:
        raise CorruptFile(f"magic is {found_magic!r}, not {magic!r}")
    if size != len(content) - _BODY_AT:
        raise CorruptFile(f"a body of {size} bytes is announced, {len(content) - _BODY_AT} follow")
    found = crc32c(memoryview(content)[_BODY_AT:], crc32c(memoryview(content)[: _FRAME.size]))
    if crc != found:
        raise CorruptFile(f"the stored crc is {crc:08x}, the crc of the bytes is {found:08x}")
    if found_version > version:
        raise NewerFile(f"format version {found_version}, this dledger knows {version}")
    if found_version != version or reserved:
        raise CorruptFile(f"version {found_version}, known is {version}")
    return content[_BODY_AT:]


def read_file(fs: FileSystem, path: str) -> bytes | None:
    """Return a small file's bytes; None when there is none.

    A file that may not be read raises OSError. It never counts as missing.
    """
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return None
    try:
        size = file.size()
        if size > _BODY_AT + BODY_SIZE_MAX:
            raise CorruptFile(f"{size} bytes, at most {_BODY_AT + BODY_SIZE_MAX}")
        return file.pread(size, 0)
    finally:
        file.close()


def stage(fs: FileSystem, path: str, content: Buffer) -> None:
    """Write and size the temporary file beside `path`. ENOSPC leaves the old file as it was.

    May be repeated after ENOSPC: nothing has been synced yet.
    """
    temporary = path + TEMPORARY_SUFFIX
    if fs.exists(temporary):
        fs.unlink(temporary)
    file = fs.open(temporary, create=True)
    try:
        if content:
            file.allocate(0, len(content))
            file.pwritev([content], 0)
    finally:
        file.close()


def publish(fs: FileSystem, folder: str, path: str, *, sync_name: bool = True) -> None:
    """Sync the staged file and put it in place of `path`, which lies in `folder`.

    Without `sync_name` a power cut may bring the old file back, whole.
    """
    temporary = path + TEMPORARY_SUFFIX
    file = fs.open(temporary)
    try:
        file.fdatasync()
    finally:
        file.close()
    fs.rename(temporary, path)
    if sync_name:
        fs.sync_folder(folder)


def replace_file(fs: FileSystem, folder: str, path: str, content: Buffer) -> None:
    """Replace `path` durably and atomically: beside, fsync, rename, fsync of the folder."""
    stage(fs, path, content)
    publish(fs, folder, path)


class FieldWriter:
    """Collects the body of a small file."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def numbers(self, *values: int) -> None:
        """Add u64 numbers."""
        self._parts.append(struct.pack(f"<{len(values)}Q", *values))

    def pairs(self, values: list[tuple[int, int]]) -> None:
        """Add a list of pairs of u64 numbers, with its length."""
        self.numbers(len(values))
        self.numbers(*(number for pair in values for number in pair))

    def blob(self, value: bytes) -> None:
        """Add bytes with their length, up to 65,535."""
        assert len(value) < 1 << 16, f"a field of {len(value)} bytes"
        self._parts += (len(value).to_bytes(2, "little"), value)

    def body(self) -> bytes:
        """Return everything added so far."""
        return b"".join(self._parts)


class FieldReader:
    """Takes a body apart in the order it was written; CorruptFile when it ends too soon."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def _take(self, size: int) -> bytes:
        part = self._body[self._at : self._at + size]
        if len(part) != size:
            raise CorruptFile(f"{size} bytes expected at {self._at} of {len(self._body)}")
        self._at += size
        return part

    def numbers(self, count: int) -> tuple[int, ...]:
        """Return the next `count` u64 numbers."""
        return struct.unpack(f"<{count}Q", self._take(8 * count))

    def number(self) -> int:
        """Return the next u64 number."""
        return self.numbers(1)[0]

    def pairs(self) -> list[tuple[int, int]]:
        """Return the next list of pairs."""
        values = self.numbers(2 * self.number())
        return list(zip(values[::2], values[1::2], strict=True))

    def blob(self) -> bytes:
        """Return the next bytes field."""
        return self._take(int.from_bytes(self._take(2), "little"))

    def text(self) -> str:
        """Return the next bytes field as text."""
        try:
            return self.blob().decode()
        except UnicodeDecodeError as error:
            raise CorruptFile(f"a text field: {error}") from error

    def end(self) -> None:
        """Check that nothing is left."""
        if self._at != len(self._body):
            raise CorruptFile(f"{len(self._body) - self._at} bytes too many")
