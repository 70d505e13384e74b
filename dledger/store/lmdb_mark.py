"""The mark beside the data file: up to which commit this store is known to have come.

Owns: the file `mark`, written when a store was opened and checked, and when it was closed. At the
next open the store must be at that commit, with equal totals, or at a later one. This shows a data
file that is older, empty or gone, and a meta page that fell back. When a process is killed, its
mark is older than its store. Such a mark is still true. Little-endian:

    magic "DLSM" (4), version u16 (1), reserved u16, rows u64, seals u64, commit u64, crc32c u32
"""

import os
import struct
from typing import Final

from crc32c import crc32c

from dledger.files import FileSystem
from dledger.store.sealed import Totals, damaged
from dledger.store.store import NewerStore

MARK_FILE: Final = "mark"
_MARK: Final = struct.Struct("<4sHHQQQ")
_CRC: Final = struct.Struct("<I")
_MAGIC: Final = b"DLSM"
_VERSION: Final = 1


def write_mark(file_system: FileSystem, folder: str, totals: Totals) -> None:
    """Replace the mark durably: beside, synced, renamed. OSError leaves the one before."""
    path = os.path.join(folder, MARK_FILE)
    body = _MARK.pack(_MAGIC, _VERSION, 0, totals.rows, totals.seals, totals.commit)
    temporary = f"{path}.tmp"
    file = file_system.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwritev([body + _CRC.pack(crc32c(body))], 0)
        file.fdatasync()
    finally:
        file.close()
    file_system.rename(temporary, path)
    file_system.sync_folder(folder)


def read_mark(folder: str) -> Totals | None:
    """Return the mark; None without one. DamagedStore, NewerStore, or OSError of the disk."""
    try:
        with open(os.path.join(folder, MARK_FILE), "rb") as file:
            content = file.read(_MARK.size + _CRC.size + 1)
    except FileNotFoundError:
        return None
    body = content[: _MARK.size]
    if len(content) != _MARK.size + _CRC.size or _CRC.pack(crc32c(body)) != content[_MARK.size :]:
        raise damaged(folder, f"{MARK_FILE} does not hold what was written to it")
    magic, version, _, rows, seals, commit = _MARK.unpack(body)
    if magic == _MAGIC and version > _VERSION:
        raise NewerStore(
            f"state store {folder}: {MARK_FILE} of version {version}, this dledger knows {_VERSION}"
        )
    if magic != _MAGIC or version != _VERSION:
        raise damaged(folder, f"{MARK_FILE} is none of dledger's")
    return Totals(rows, seals, commit)


def check_mark(folder: str, mark: Totals | None, found: Totals) -> None:
    """Raise DamagedStore when a store lies behind its mark."""
    if mark is None:
        return
    if found.commit < mark.commit or (found.commit == mark.commit and found != mark):
        raise damaged(
            folder,
            f"the data file is not the newest: found {found.describe()}, known was "
            f"{mark.describe()}",
        )
