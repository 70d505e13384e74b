"""The data folder of a stopped member, read only: finding it, its small files, its segments.

Owns: decoding as much as possible of what is there. A damaged piece is reported, and the search
finds the next sound entry behind it. This module refuses nothing and writes nothing. Not owned:
what is done about damage (recovery at start, `dledger repair`).
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from dledger.files import File, OsFile, OsFileSystem
from dledger.log.atomic_file import CorruptFile
from dledger.log.checkpoint import CHECKPOINT_FILE, Checkpoint, parse_checkpoint
from dledger.log.folder import IDENTITY_FILE, LOCK_FILE, LOG_FOLDER, STATE_FOLDER
from dledger.log.hard_state import HARD_STATE_FILE, HardState, parse_hard_state
from dledger.log.identity import Identity, parse_identity
from dledger_proto.entry import (
    ENTRY_HEADER_SIZE_MAX,
    ENTRY_MAGIC,
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
from dledger_proto.limits import ENTRY_SIZE_MAX, MIB

SEARCH_CHUNK_SIZE: Final = MIB
FOLDER_DEPTH_MAX: Final = 4
"""How many levels below the given folder the search for data folders goes."""

DAMAGED_MARK: Final = ".damaged-"
"""Stands between the name and a number of a folder that `dledger repair` has set aside."""


class ReadOnlyFileSystem(OsFileSystem):
    """Opens files for reading only, so that the kernel refuses every write."""

    def open(self, path: str, *, create: bool = False) -> File:
        assert not create, f"{path} is only read"
        return OsFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), self._freeing)


T = TypeVar("T")

_REFUSALS: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EINTR}
)
"""Errors of the system for files that may be sound."""


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """A small file: its value, or what is wrong with it."""

    path: Path
    value: T | None
    problem: str = ""
    refused: bool = False
    """True: the system does not let this process read the file. That is no damage."""


@dataclass(frozen=True, slots=True)
class SegmentStart:
    """The start of a segment file; `header` is None when it is bad: `problem` says why."""

    path: Path
    base_position: int
    size: int
    header: SegmentHeader | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class EntryFound:
    """An entry that passes its own checks; `problem` says how it does not fit its neighbours."""

    path: Path
    entry: DecodedEntry
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes without a sound entry, from `position` to `resumed_at` (None: to the file's end)."""

    path: Path
    position: int
    reason: str
    resumed_at: int | None
    later_files: bool
    """True: files follow this one, so it is not the torn tail of a member that was killed."""


Piece = SegmentStart | EntryFound | Damage


def find_data_folders(path: Path) -> list[Path]:
    """Return the data folders at or below `path`, in order of their names.

    A folder that was set aside (`.damaged-N`) is found only when `path` names it.
    """
    if _is_data_folder(path):
        return [path]
    found: list[Path] = []
    level = [path]
    for _ in range(FOLDER_DEPTH_MAX):
        below: list[Path] = []
        for folder in level:
            try:
                children = [
                    child
                    for child in sorted(folder.iterdir())
                    if child.is_dir() and DAMAGED_MARK not in child.name
                ]
            except OSError:
                continue
            found += [child for child in children if _is_data_folder(child)]
            below += [child for child in children if not _is_data_folder(child)]
        level = below
    return sorted(found)


def _is_data_folder(path: Path) -> bool:
    # One of these files is enough: a damaged folder may have lost the others.
    return (path / LOG_FOLDER).is_dir() and any(
        (path / name).exists()
        for name in (IDENTITY_FILE, HARD_STATE_FILE, CHECKPOINT_FILE, LOCK_FILE)
    )


def is_running(folder: Path) -> bool:
    """Tell whether a process holds the folder's lock. Opens the lock file for reading only."""
    try:
        lock_fd = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock_fd)
    return False


def read_identity(folder: Path) -> Found[Identity]:
    """Return which member's data this is."""
    return _read(folder / IDENTITY_FILE, parse_identity)


def read_hard_state(folder: Path) -> Found[HardState]:
    """Return term, vote and incarnations."""
    return _read(folder / HARD_STATE_FILE, parse_hard_state)


def read_checkpoint(folder: Path) -> Found[Checkpoint]:
    """Return the checkpoint with which a restart would begin."""
    return _read(folder / CHECKPOINT_FILE, parse_checkpoint)


def state_folder(folder: Path) -> Path:
    """Return where the state store lies."""
    return folder / STATE_FOLDER


def _read(path: Path, parse: Callable[[bytes], T]) -> Found[T]:
    try:
        return Found(path, parse(path.read_bytes()))
    except CorruptFile as error:
        return Found(path, None, str(error))
    except OSError as error:
        return Found(path, None, error.strerror or str(error), is_refusal(error))


def is_refusal(error: OSError) -> bool:
    """Tell whether the system refuses to read a file, which then may be sound."""
    return error.errno in _REFUSALS


def segment_files(folder: Path) -> list[Path]:
    """Return the segment files of a data folder, in order."""
    log = folder / LOG_FOLDER
    names = sorted(name for name in os.listdir(log) if parse_segment_name(name) is not None)
    return [log / name for name in names]


def walk_segments(folder: Path, from_position: int = 0) -> Iterator[Piece]:
    """Yield all that can be decoded, file by file, from the file that holds a position on."""
    files = segment_files(folder)
    while len(files) > 1 and (parse_segment_name(files[1].name) or 0) <= from_position:
        del files[0]
    before: EntryHeader | None = None
    for path in files:
        for piece in _walk_file(path, before, later_files=path != files[-1]):
            if isinstance(piece, EntryFound):
                before = piece.entry.header
            elif isinstance(piece, Damage):
                before = None
            yield piece


class _File:
    """One segment file, read with pread only."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.size = os.fstat(fd).st_size
        self._fd = fd

    def read(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes, fewer only at the end; zeros for a sector that is gone."""
        data = b""
        while len(data) < size:
            part = os.pread(self._fd, size - len(data), offset + len(data))
            if not part:
                break
            data += part
        return data

    def data_from(self, offset: int) -> int | None:
        """Return the offset of the first byte at or behind `offset` that is not zero."""
        while offset < self.size:
            try:
                # Reserved space has no data: one system call skips a GiB of it.
                offset = max(offset, os.lseek(self._fd, offset, os.SEEK_DATA))
            except OSError:
                return None
            chunk = self.read(SEARCH_CHUNK_SIZE, offset)
            if not chunk:
                return None
            stripped = chunk.lstrip(b"\0")
            if stripped:
                return offset + len(chunk) - len(stripped)
            offset += len(chunk)
        return None


def _walk_file(path: Path, before: EntryHeader | None, *, later_files: bool) -> Iterator[Piece]:
    base_position = parse_segment_name(path.name)
    assert base_position is not None, path
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        file = _File(path, fd)
        header, problem = _segment_header(file, base_position, before)
        yield SegmentStart(path, base_position, file.size, header, problem)
        shift = SEGMENT_HEADER_SIZE - base_position
        position = base_position
        while True:
            try:
                entry = _entry_at(file, position, shift)
            except (CorruptEntry, OSError) as error:
                before = None
                resumed_at = _search(file, position + 1, shift)
                yield Damage(path, position, str(error), resumed_at, later_files)
                if resumed_at is None:
                    return
                position = resumed_at
                continue
            if entry is None:
                return
            yield EntryFound(path, entry, _misfit(entry.header, before, header))
            before = entry.header
            position = before.end_position
    finally:
        os.close(fd)


def _segment_header(
    file: _File, base_position: int, before: EntryHeader | None
) -> tuple[SegmentHeader | None, str]:
    try:
        header = parse_segment_header(file.read(SEGMENT_HEADER_SIZE, 0))
    except (CorruptEntry, OSError) as error:
        return None, str(error)
    if header.base_position != base_position:
        return header, f"the header says base position {header.base_position}"
    if before is not None and before.end_position != base_position:
        return header, f"the file before ends at position {before.end_position}"
    return header, ""


def _entry_at(file: _File, position: int, shift: int) -> DecodedEntry | None:
    """Return the entry at a position; None at the end; CorruptEntry when it is not sound."""
    offset = position + shift
    start = file.read(ENTRY_HEADER_SIZE_MAX, offset)
    if not start.strip(b"\0") and file.data_from(offset + len(start)) is None:
        return None
    header = parse_entry_header(start)
    if header.position != position:
        raise CorruptEntry(f"the entry says that its position is {header.position}")
    if header.size > ENTRY_SIZE_MAX:
        raise CorruptEntry(f"size {header.size}, at most {ENTRY_SIZE_MAX}")
    buffer = start if header.size <= len(start) else file.read(header.size, offset)
    return decode_entry(buffer, check_payloads=True)


def _search(file: _File, position: int, shift: int) -> int | None:
    """Return the next position of a sound entry whose header names this position."""
    offset = position + shift
    while offset < file.size:
        start = file.data_from(offset)
        if start is None:
            return None
        chunk = file.read(SEARCH_CHUNK_SIZE, start)
        at = chunk.find(ENTRY_MAGIC)
        while at >= 0:
            candidate = start + at - shift
            try:
                if _entry_at(file, candidate, shift) is not None:
                    return candidate
            except CorruptEntry:
                pass
            at = chunk.find(ENTRY_MAGIC, at + 1)
        # The magic may begin in one chunk and end in the next.
        offset = start + max(len(chunk) - len(ENTRY_MAGIC) + 1, 1)
    return None


def _misfit(header: EntryHeader, before: EntryHeader | None, segment: SegmentHeader | None) -> str:
    if segment is not None and not check_local(header, segment.salt):
        return "its local bytes were not written into this file"
    if before is None:
        return ""
    if header.index != before.index + 1:
        return f"index {header.index} behind {before.index}"
    if header.previous_crc != before.header_crc:
        return (
            f"it follows crc {header.previous_crc:08x}, the one before is {before.header_crc:08x}"
        )
    if header.term < before.term:
        return f"term {header.term} behind {before.term}"
    return ""
