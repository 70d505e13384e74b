"""The state store on disk: LMDB under the shared in-memory tail.

Owns: the environment's settings, its format row, what LMDB's errors mean. Not: rows (`store.py`).

    key 00 "format" -> magic "DLST" (4), version u16 (1), reserved u16, little-endian

Settings, and why (D16): every commit is fully synced (data pages with fdatasync, then the meta page
with O_DSYNC), so a power cut leaves the last commit or the one before. Never MDB_WRITEMAP: a full
disk would be SIGBUS. The map is address space only and large from the start, because it cannot grow
under an open transaction. No readahead: rows are read at random. Read transactions live for one
call: a long one would keep every page freed meanwhile.

A full disk is asked about before a flush begins: too little space is `StoreFull`, a refusal, and
the flush can be executed again. Any error inside the transaction is `StoreFailed` and final: it
cannot be told from a sync that failed, and a failed sync is never repeated.
"""

import os
import struct
from collections.abc import Iterable
from typing import Final

import lmdb

from dledger.files import FileSystem, OsFileSystem
from dledger.state.store import (
    DamagedStore,
    NewerStore,
    Row,
    StoreFailed,
    StoreFull,
    TailedStore,
    Value,
)
from dledger_proto.limits import GIB, MIB

MAP_SIZE_DEFAULT: Final = 64 * GIB
FORMAT_KEY: Final = b"\x00format"
FORMAT_VERSION: Final = 1
READERS_MAX: Final = 16
FREE_SPACE_MARGIN_BYTES: Final = 4 * MIB
"""What a commit may need beyond the rows themselves: copies of the tree's inner pages."""
PAGES_PER_ROW_SIZE: Final = 2
"""A row may copy a whole leaf, but the overlay counts memory, which is more than the bytes."""

_FORMAT: Final = struct.Struct("<4sHH")
_MAGIC: Final = b"DLST"


class LmdbBase:
    """Saved rows in one unnamed LMDB database."""

    def __init__(self, path: str, map_size: int, file_system: FileSystem) -> None:
        self._path = path
        self._file_system = file_system
        file_system.make_folder(path)
        try:
            self._lock = file_system.lock(os.path.join(path, "owner.lock"))
        except BlockingIOError as error:
            raise StoreFailed(error.errno, f"state store {path}: another process uses it") from None
        self._environment = self._open(path, map_size)
        self._failed = ""
        self._check_format()

    def _open(self, path: str, map_size: int) -> lmdb.Environment:
        try:
            environment = lmdb.open(
                path, map_size=map_size, subdir=True, readahead=False, writemap=False,
                metasync=True, sync=True, lock=True, max_readers=READERS_MAX, max_spare_txns=1,
                max_dbs=0,
            )  # fmt: skip
        except lmdb.Error as error:
            raise DamagedStore(f"state store {path} cannot be opened: {error}") from error
        needed = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
        found = os.path.getsize(os.path.join(path, "data.mdb"))
        if found < needed:
            environment.close()
            raise DamagedStore(
                f"state store {path}: data.mdb has {found} bytes, its newest commit needs {needed}"
            )
        return environment

    def _check_format(self) -> None:
        expected = _FORMAT.pack(_MAGIC, FORMAT_VERSION, 0)
        try:
            with self._environment.begin() as transaction:
                found = transaction.get(FORMAT_KEY)
                is_empty = transaction.stat()["entries"] == 0
            if is_empty:
                self.save([(FORMAT_KEY, expected)], _FORMAT.size)
                return
        except lmdb.Error as error:
            self._environment.close()
            raise DamagedStore(f"state store {self._path} cannot be read: {error}") from error
        if found == expected:
            return
        self._environment.close()
        if found is None or len(found) != _FORMAT.size or not found.startswith(_MAGIC):
            raise DamagedStore(f"state store {self._path}: not a state store of dledger")
        _, version, reserved = _FORMAT.unpack(found)
        if version > FORMAT_VERSION:
            raise NewerStore(
                f"state store {self._path}: format version {version}, this dledger knows "
                f"{FORMAT_VERSION}; start the dledger that wrote it, or a later one"
            )
        raise DamagedStore(
            f"state store {self._path}: format {version}, reserved {reserved}, not known here"
        )

    def get(self, key: bytes) -> bytes | None:
        """See `Base.get`."""
        try:
            with self._environment.begin() as transaction:
                return transaction.get(key)
        except lmdb.Error as error:
            raise self._read_failed(error) from error

    def scan(self, start: bytes, stop: bytes, limit: int, *, reverse: bool) -> list[Row]:
        """See `Base.scan`."""
        rows: list[Row] = []
        try:
            with self._environment.begin() as transaction, transaction.cursor() as cursor:
                if not reverse:
                    if cursor.set_range(start):
                        for row in cursor.iternext():
                            if row[0] >= stop:
                                break
                            rows.append(row)
                            if len(rows) == limit:
                                break
                    return rows
                if cursor.prev() if cursor.set_range(stop) else cursor.last():
                    for row in cursor.iterprev():
                        if row[0] < start:
                            break
                        rows.append(row)
                        if len(rows) == limit:
                            break
        except lmdb.Error as error:
            raise self._read_failed(error) from error
        return rows

    def save(self, rows: Iterable[tuple[bytes, Value | None]], size_bytes: int) -> None:
        """See `Base.save`."""
        if self._failed:
            raise StoreFailed(f"state store {self._path} failed before: {self._failed}")
        needed = PAGES_PER_ROW_SIZE * size_bytes + FREE_SPACE_MARGIN_BYTES
        free = self._file_system.free_bytes(self._path)
        if free < needed:
            raise StoreFull(
                f"state store {self._path}: {free} bytes free on the disk, a flush needs {needed}"
            )
        try:
            with self._environment.begin(write=True) as transaction:
                for key, value in rows:
                    if value is None:
                        transaction.delete(key)
                    else:
                        transaction.put(key, value)
        except lmdb.MapFullError as error:
            self._failed = str(error)
            raise StoreFailed(
                f"state store {self._path}: its map of "
                f"{self._environment.info()['map_size']} bytes is full; raise map_size_bytes"
            ) from error
        except lmdb.Error as error:
            self._failed = str(error)
            raise StoreFailed(f"state store {self._path}: a save failed: {error}") from error

    def close(self) -> None:
        """See `Base.close`."""
        self._environment.close()
        del self._lock

    def _read_failed(self, error: lmdb.Error) -> StoreFailed:
        return DamagedStore(f"state store {self._path} cannot be read: {error}")


class LmdbStore(TailedStore):
    """The state store of a member, in the folder `path`; one process at a time."""

    def __init__(
        self,
        path: str,
        map_size: int = MAP_SIZE_DEFAULT,
        file_system: FileSystem | None = None,
    ) -> None:
        super().__init__(LmdbBase(path, map_size, file_system or OsFileSystem()))
