"""The state store on disk: LMDB under the shared in-memory tail.

Owns: the environment's settings, saving and reading sealed rows, their totals. Not: what a seal is
(`sealed.py`), what is checked before a store is opened (`lmdb_check.py`), rows (`store.py`).

Settings, and why (D16): every commit is fully synced (data pages with fdatasync, then the meta page
with O_DSYNC), so a power cut leaves the last commit or the one before. Never MDB_WRITEMAP: a full
disk would be SIGBUS. The map is address space only and large from the start, because it cannot grow
under an open transaction. No readahead: rows are read at random. Read transactions live for one
call: a long one would keep every page freed meanwhile.

A save asks for the free space before it begins: too little space is `StoreFull`, a refusal, and the
flush can be executed again. Any error inside the transaction is `StoreFailed` and final: it cannot
be told from a failed sync, and a failed sync is never repeated.

LMDB has no checksums. Each row carries a seal that is checked whenever the row is read, and each
commit carries totals of all rows. To keep the totals, a save must know the seals of the rows that
it replaces: it remembers the seals of the rows saved lately and reads the others.
"""

import contextlib
import errno
import os
import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import lmdb
from crc32c import crc32c

from dledger.files import FILE_MODE, FileSystem, OsFileSystem
from dledger.store.lmdb_check import Checked, check_store
from dledger.store.lmdb_errors import failure
from dledger.store.lmdb_mark import write_mark
from dledger.store.lmdb_rows import DATA_FILE
from dledger.store.sealed import (
    FORMAT_KEY,
    RESIDUE,
    SEAL_SIZE,
    SUM_MASK,
    TOTALS_KEY,
    Totals,
    damaged,
    damaged_row,
    format_row,
    seal_in,
    unseal,
)
from dledger.store.store import Row, StateStore, StoreFailed, StoreFull, Value
from dledger_proto.limits import GIB, MIB

MAP_SIZE_DEFAULT: Final = 64 * GIB
READERS_MAX: Final = 16
FREE_SPACE_MARGIN_BYTES: Final = 4 * MIB
"""What a commit may need beyond the rows themselves: copies of the tree's inner pages."""
PAGES_PER_ROW_SIZE: Final = 2
"""A row may copy a whole leaf, but the overlay counts memory, which is more than the bytes."""
SEALS_KEPT: Final = 8_192
"""Seals of rows saved lately, in each of two halves: some 3 MB in all."""

_SEAL: Final = struct.Struct("<I")


class _Seals:
    """Seals of the rows that were saved last, by key; bounded. Only the saving thread uses them."""

    def __init__(self) -> None:
        self._newer: dict[bytes, int] = {}
        self._older: dict[bytes, int] = {}

    def pop(self, key: bytes) -> int | None:
        """Return and forget the seal of a row."""
        found = self._newer.pop(key, None)
        return self._older.pop(key, None) if found is None else found

    def keep(self, saved: dict[bytes, int]) -> None:
        """Keep the seals of the rows of a save, at most the last SEALS_KEPT of them."""
        if len(self._newer) + len(saved) > SEALS_KEPT:
            self._older, self._newer = self._newer, {}
        self._newer.update(islice(saved.items(), max(len(saved) - SEALS_KEPT, 0), None))


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
        self._failed = ""
        self._seals = _Seals()
        self._totals = Totals()
        try:
            checked = self._check()
            self._fit(checked)
            self._environment = self._open(path, map_size)
            self._begin(checked)
        except BaseException:
            del self._lock  # or the traceback would hold it
            raise

    def _check(self) -> Checked:
        return check_store(self._path)

    def _fit(self, checked: Checked) -> None:
        """Make the file as long as LMDB may map it.

        Empty what a creation left that was cut off, for LMDB takes zeros for damage. Let the file
        have its last pages: these are free, but a damaged page that named one would be SIGBUS.
        """
        path = os.path.join(self._path, DATA_FILE)
        if not self._file_system.exists(path):
            return
        try:
            with contextlib.closing(self._file_system.open(path)) as file:
                size = file.size()
                wanted = 0 if checked.totals is None else max(size, checked.size)
                if wanted != size:
                    file.truncate(wanted)
        except OSError as error:
            raise failure(self._path, f"{DATA_FILE} cannot be given its length", error) from error

    def _begin(self, checked: Checked) -> None:
        """Take over the checked totals, and note in the mark how far this store has come."""
        try:
            if checked.totals is None:
                self.save([(FORMAT_KEY, format_row())], len(format_row()))
            else:
                self._totals = checked.totals
            self._note_mark()
        except BaseException:
            self._environment.close()
            raise

    def _note_mark(self) -> None:
        """Write the mark. On a full disk the older mark stays, and stays true."""
        try:
            write_mark(self._file_system, self._path, self._totals)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def _open(self, path: str, map_size: int) -> lmdb.Environment:
        try:
            return lmdb.open(
                path, map_size=map_size, subdir=True, readahead=False, writemap=False,
                metasync=True, sync=True, lock=True, max_readers=READERS_MAX, max_spare_txns=1,
                max_dbs=0, mode=FILE_MODE,
            )  # fmt: skip
        except lmdb.Error as error:
            raise failure(path, "it cannot be opened", error) from error

    def _check_usable(self) -> None:
        """Raise after a failed save: LMDB then refuses reads too, whatever the file holds."""
        if self._failed:
            raise StoreFailed(f"state store {self._path} failed before: {self._failed}")

    def get(self, key: bytes) -> bytes | None:
        self._check_usable()
        try:
            with self._environment.begin() as transaction:
                sealed = transaction.get(key)
        except lmdb.Error as error:
            raise failure(self._path, "it cannot be read", error) from error
        return None if sealed is None else unseal(self._path, key, sealed)

    def scan(self, start: bytes, stop: bytes, limit: int, *, reverse: bool) -> list[Row]:
        self._check_usable()
        stop = min(stop, TOTALS_KEY)
        rows: list[Row] = []
        try:
            with self._environment.begin() as transaction, transaction.cursor() as cursor:
                if not reverse:
                    last = start
                    if cursor.set_range(start):
                        for key, sealed in cursor.iternext():
                            if key >= stop:
                                break
                            if crc32c(sealed, crc32c(key, len(key))) != RESIDUE or key < last:
                                raise damaged_row(self._path, key)
                            rows.append((key, sealed[:-SEAL_SIZE]))
                            if len(rows) == limit:
                                break
                            last = key
                    return rows
                last = stop
                if cursor.prev() if cursor.set_range(stop) else cursor.last():
                    for key, sealed in cursor.iterprev():
                        if key < start:
                            break
                        if crc32c(sealed, crc32c(key, len(key))) != RESIDUE or key > last:
                            raise damaged_row(self._path, key)
                        rows.append((key, sealed[:-SEAL_SIZE]))
                        if len(rows) == limit:
                            break
                        last = key
        except lmdb.Error as error:
            raise failure(self._path, "it cannot be read", error) from error
        return rows

    def saved_rows(self) -> Iterator[Row]:
        self._check_usable()
        try:
            with self._environment.begin() as transaction, transaction.cursor() as cursor:
                for key, sealed in cursor:
                    if key >= TOTALS_KEY:
                        return
                    if key != FORMAT_KEY:
                        yield key, unseal(self._path, key, sealed)
        except lmdb.Error as error:
            raise failure(self._path, "it cannot be read", error) from error

    def save(self, rows: Iterable[tuple[bytes, Value | None]], size_bytes: int) -> None:
        self._check_usable()
        needed = PAGES_PER_ROW_SIZE * size_bytes + FREE_SPACE_MARGIN_BYTES
        free = self._file_system.free_bytes(self._path)
        if free < needed:
            raise StoreFull(
                f"state store {self._path}: {free} bytes free on the disk, a flush needs {needed}"
            )
        try:
            with self._environment.begin(write=True, buffers=True) as transaction:
                totals = self._write(transaction, rows)
                transaction.put(TOTALS_KEY, totals.encode())
        except lmdb.MapFullError as error:
            self._failed = str(error)
            raise StoreFailed(
                f"state store {self._path}: its map of "
                f"{self._environment.info()['map_size']} bytes is full; raise map_size_bytes"
            ) from error
        except BaseException as error:
            # What was written and what is remembered of it need no longer agree.
            self._failed = str(error) or type(error).__name__
            if isinstance(error, lmdb.Error):
                raise failure(self._path, "a save failed", error) from error
            raise
        self._totals = totals

    def _write(
        self, transaction: lmdb.Transaction, rows: Iterable[tuple[bytes, Value | None]]
    ) -> Totals:
        """Write the rows; return the totals with them."""
        count, total = self._totals.rows, self._totals.seals
        known, pack, put = self._seals.pop, _SEAL.pack, transaction.put
        saved: dict[bytes, int] = {}
        with transaction.cursor() as cursor:
            take = cursor.pop
            for key, value in rows:
                old = known(key)
                if value is None:
                    # One search finds and deletes the row.
                    gone = take(key)
                    if gone is not None:
                        count -= 1
                        total -= self._checked_seal(key, bytes(gone)) if old is None else old
                    elif old is not None:
                        raise damaged(self._path, f"a row that was saved is gone: {key.hex()}")
                    continue
                saved[key] = seal = crc32c(value, crc32c(key, len(key)))
                sealed = value + pack(seal)
                if old is None and put(key, sealed, overwrite=False):
                    count += 1
                else:
                    if old is None:
                        view = transaction.get(key)
                        assert view is not None, "LMDB says that the key exists"
                        old = self._checked_seal(key, bytes(view))
                    put(key, sealed)
                    total -= old
                total += seal
        self._seals.keep(saved)
        return Totals(count, total & SUM_MASK, transaction.id())

    def _checked_seal(self, key: bytes, sealed: bytes) -> int:
        """Return the seal of a saved row."""
        if crc32c(sealed, crc32c(key, len(key))) != RESIDUE:
            raise damaged_row(self._path, key)
        return seal_in(sealed)

    def close(self) -> None:
        # Without a newer mark the one before stays true.
        if not self._failed:
            with contextlib.suppress(OSError):
                write_mark(self._file_system, self._path, self._totals)
        self._environment.close()
        del self._lock


class LmdbStore(StateStore):
    """The state store of a member, in the folder `path`; one process at a time."""

    def __init__(
        self,
        path: str,
        map_size: int = MAP_SIZE_DEFAULT,
        file_system: FileSystem | None = None,
    ) -> None:
        super().__init__(LmdbBase(path, map_size, file_system or OsFileSystem()))
