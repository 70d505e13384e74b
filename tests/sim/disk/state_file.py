"""The saved state of one simulated machine: LMDB's own file, as power cuts and bad disks leave it.

Owns: the data file in memory, how far a save comes when its process or the power ends, and what the
next process may find. The store is the product's `LmdbStore`, with its seals, totals, checks and
mark. Only LMDB needs a real file. The mark and the lock are files of the machine's `SimFileSystem`,
and the paths that the product names are those of the simulated disk.

The model of a power cut: LMDB writes data pages, syncs them, and then writes its meta page. Of a
save that nobody waited for, any of the data pages are there, and the meta page only with all of
them. A save that was reported stays, unless the disk lied (`lose_synced`). `torn_pages` draws.
"""

import contextlib
import json
import os
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

import lmdb

from dledger.files import File, OsFileSystem
from dledger.store.lmdb_check import Checked, is_new, read_verdict, verdict_of
from dledger.store.lmdb_mark import MARK_FILE, read_mark
from dledger.store.lmdb_rows import DATA_FILE
from dledger.store.lmdb_store import LmdbBase, LmdbStore
from dledger.store.sealed import SEAL_SIZE, TOTALS_KEY, Totals, parse_totals
from dledger.store.store import Flush, StateStore, StoreFailed, Value
from tests.sim.disk.disk import PowerCut, SimFileSystem
from tests.sim.disk.ram import RamFolder
from tests.sim.disk.torn_pages import back_in_time, cut_off_creation, torn

MAP_SIZE: Final = 1 << 28
"""Address space only."""
COMMITS_KEPT: Final = 8
"""A disk that lied falls back by no more."""
ROWS_TRIED: Final = 10
"""Rows with a value that is too large for a page do not stand beside their keys."""
_LOCK_FILE: Final = "lock.mdb"

Rows = dict[bytes, bytes]
SavedRow = tuple[bytes, Value | None]


class WrongState(AssertionError):
    """The product opened a state that nobody saved, or that is older than it promises to notice."""


@dataclass(frozen=True, slots=True)
class StateCopy:
    """The data file at a moment. `is_made`: it holds a commit."""

    content: bytes
    is_made: bool


class StateDisk:
    """What one machine has of its state, over all its processes. Use it for one store at a time."""

    def __init__(self, system: SimFileSystem, path: str, ram: RamFolder, name: str) -> None:
        self.path = path
        """Where the product believes its store to be."""
        self.system = system
        self.is_full = False
        """No save finds room: the product refuses it and tries again."""
        self.is_failing = False
        """Every commit ends with an error of the disk."""
        self.commit_count = 0
        self.folder = ram.make(name)
        """Where LMDB finds its file."""
        self._trial = ram.make(f"{name}.trial")
        self._data = os.path.join(self.folder, DATA_FILE)
        self._running: _Base | None = None
        self._before: bytes | None = None
        """The file before a save that nobody waited for yet."""
        self._is_made = False
        """A commit is on the disk. Before the first one nothing is synced."""
        self._left = b""
        """The file that the last power cut left: all of it is on the disk."""
        self._rows_left: int | None = None
        self._older: deque[bytes] = deque(maxlen=COMMITS_KEPT)
        """The file before each of the last commits."""
        self._older_than_mark = b""
        """The file a commit before the last process opened it and set its mark."""
        self._expected: list[Rows] | None = None
        """What the next process may find, where this disk was changed under its feet."""
        ram.before_closing(self.kill)

    # What a process does.

    def open(self, map_size: int = MAP_SIZE) -> LmdbStore:
        """Open the store for a process that starts; raises what the product raises."""
        self._place_mark()
        try:
            base = _Base(self, map_size)
        except BaseException:
            self._rows_left = None
            raise
        self._running, self._rows_left = base, None
        if self._older:
            self._older_than_mark = self._older[-1]
        self.finished()
        expected, self._expected = self._expected, None
        if expected is not None and base.rows() not in expected:
            raise WrongState(f"{self.path}: opened is {_totals_of(base.rows()).describe()}")
        return _Store(self, base)

    # What happens to the machine.

    def cut_at_row(self, row: int) -> None:
        """Let the next save end with `PowerCut` before this row, counted from 0.

        A save of fewer rows reaches its commit, and `PowerCut` comes in place of its report. A new
        store saves one row while it is opened. The end of `open` and `kill` forget the order.
        """
        self._rows_left = row

    def kill(self) -> None:
        """End the process: what LMDB wrote stays. The dead process's store raises if it is used."""
        self._rows_left = None
        if self._running is not None:
            self._running.die()
            self._running = None

    def power_cut(self, random: Random) -> None:
        """End the machine. Call the file system's `power_cut` first: the mark is one of its files.

        The next process finds what was saved, or the save under way. Else `open` is `WrongState`.
        Where no process has run since the file was changed under its feet, nothing is under way.
        """
        self.kill()
        if self._expected is not None:
            return
        now = after = self._content()
        if not self._is_made:
            if now != self._left:
                after = cut_off_creation(self._before, now, random)
        elif self._before is not None:
            after = torn(self._before, now, random)
            self._expected = [self._rows_of(self._before), self._rows_of(now)]
        else:
            self._expected = [self._rows_of(now)]
        self._before = None
        self._left = after
        self._replace(after)

    def lose_synced(self, random: Random) -> bool:
        """Put back pages as they were before one of the last commits: the disk lied about a sync.

        No process may run. The next one finds a whole commit, at least that of its mark, or the
        product raises DamagedStore. False, and nothing is lost, where nothing older is known.
        """
        assert self._running is None, "a process runs"
        if not self._older:
            return False
        now = self._content()
        self._place_mark()
        known = read_mark(self.folder) or Totals()
        images = [each for each in (self._older_than_mark, *self._older, now) if each]
        found = [self._rows_of(image) for image in images]
        self._expected = [rows for rows in found if _totals_of(rows).commit >= known.commit]
        old = random.choice(
            (self._older_than_mark or now, self._older[-1], random.choice(self._older))
        )
        self._replace(back_in_time(old, now, random))
        return True

    def rot(self, random: Random) -> bool:
        """Flip a bit in the value of a saved row, also under the process that has it open.

        Nothing notices before the row is read. False where no row is saved.
        """
        content = self._content()
        rows = self._rows_of(content) if self._is_made else {}
        for key in random.sample(sorted(rows), min(len(rows), ROWS_TRIED)):
            whole = key + rows[key]
            if whole in content and len(rows[key]) > SEAL_SIZE:
                rotten = bytearray(whole)
                at = random.randrange(len(key), len(whole) - SEAL_SIZE)
                rotten[at] ^= 1 << random.randrange(8)
                with open(self._data, "r+b") as file:  # in place, for it may be mapped
                    file.write(content.replace(whole, rotten))
                return True
        return False

    @property
    def is_new(self) -> bool:
        """Tell whether nothing was ever saved here: the next process makes the file."""
        return not self._is_made

    def copy(self) -> StateCopy:
        """Return what the disk holds: all that LMDB has committed."""
        return StateCopy(self._content(), self._is_made)

    def put_back(self, copy: StateCopy) -> None:
        """End the process and replace the file by a copy. The mark is the file system's."""
        self.wipe()
        self._is_made = copy.is_made
        self._replace(copy.content)
        if copy.is_made:
            self._expected = [self._rows_of(copy.content)]

    def wipe(self) -> None:
        """End the process and replace the disk by an empty one, which works."""
        self.kill()
        self.is_full = self.is_failing = self._is_made = False
        self._before = self._expected = None
        self._older.clear()
        self._older_than_mark = b""
        for name in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, name))

    # What the store of a process asks.

    def check(self) -> Checked:
        """Do as `check_store`, in this process."""
        try:
            if is_new(self.folder):
                return Checked(None, whole=True)
            verdict = json.dumps(verdict_of(self.folder, whole=False))
            return read_verdict(self.folder, 0, verdict.encode(), b"")
        except StoreFailed as error:
            said = error.strerror or str(error)
            numbers = () if error.errno is None else (error.errno,)
            raise type(error)(*numbers, said.replace(self.folder, self.path)) from error

    def begin_save(self) -> None:
        """Remember the file before a commit."""
        self._before = self._content()
        if self._is_made:
            self._older.append(self._before)

    def pass_rows(self, rows: Iterable[SavedRow]) -> Generator[SavedRow]:
        """Yield the rows of a save as far as it comes. The commit follows, or fails here."""
        for row in rows:
            if self._rows_left is not None:
                if self._rows_left == 0:
                    self._cut()
                self._rows_left -= 1
            yield row
        try:
            self.system.enter("write", self.path)
            self.system.enter("sync", self.path)
        except OSError as error:
            raise lmdb.Error(f"mdb_txn_commit: {error.strerror}") from error
        if self.is_failing:
            raise lmdb.Error("mdb_txn_commit: Input/output error")

    def end_save(self) -> None:
        """Note a commit. The process hears of it, unless the power is cut just then."""
        self.commit_count += 1
        if self._rows_left is not None:
            self._cut()

    def finished(self) -> None:
        """Note that somebody knows of the last save: a power cut cannot take it."""
        self._before = None
        self._is_made = True

    def closed(self) -> None:
        """Note that the process closed its store in order."""
        self._running = None

    def open_data(self) -> File:
        """Open LMDB's file as a file."""
        return OsFileSystem().open(self._data)

    def has_data(self) -> bool:
        """Tell whether LMDB's file exists."""
        return os.path.exists(self._data)

    # Inside.

    def _cut(self) -> None:
        self._rows_left = None
        raise PowerCut

    def _place_mark(self) -> None:
        """Put the mark where the product's check reads it."""
        path = f"{self.path}/{MARK_FILE}"
        mark = os.path.join(self.folder, MARK_FILE)
        if self.system.exists(path):
            _write(mark, self.system.content(path))
        else:
            _remove(mark)

    def _content(self) -> bytes:
        try:
            with open(self._data, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def _replace(self, content: bytes) -> None:
        _write(self._data, content)
        _remove(os.path.join(self.folder, _LOCK_FILE))

    def _rows_of(self, content: bytes) -> Rows:
        """Return the rows of a whole file, as LMDB reads them."""
        _write(os.path.join(self._trial, DATA_FILE), content)
        environment = lmdb.open(self._trial, readonly=True, lock=False, create=False, max_dbs=0)
        try:
            return _rows_in(environment)
        finally:
            environment.close()


class _Files:
    """The file system that the store sees: the machine's, but for LMDB's file and for space."""

    def __init__(self, disk: StateDisk) -> None:
        self._disk = disk
        self._system = disk.system
        self._data = f"{disk.path}/{DATA_FILE}"

    def open(self, path: str, *, create: bool = False) -> File:
        if path == self._data:
            return self._disk.open_data()
        return self._system.open(path, create=create)

    def exists(self, path: str) -> bool:
        return self._disk.has_data() if path == self._data else self._system.exists(path)

    def free_bytes(self, path: str) -> int:
        return 0 if self._disk.is_full else self._system.free_bytes(path)

    def names(self, path: str) -> list[str]:
        return self._system.names(path)

    def make_folder(self, path: str) -> None:
        self._system.make_folder(path)

    def rename(self, source: str, target: str) -> None:
        self._system.rename(source, target)

    def link(self, source: str, target: str) -> None:
        self._system.link(source, target)

    def unlink(self, path: str) -> None:
        self._system.unlink(path)

    def remove_folder(self, path: str) -> None:
        self._system.remove_folder(path)

    @property
    def is_freeing(self) -> bool:
        return self._system.is_freeing

    def sync_folder(self, path: str) -> None:
        self._system.sync_folder(path)

    def lock(self, path: str) -> object:
        return self._system.lock(path)


class _Base(LmdbBase):
    """The product's LMDB base of one process, whose saves the disk may end."""

    def __init__(self, disk: StateDisk, map_size: int) -> None:
        self._disk = disk
        self._is_open = True
        super().__init__(disk.path, map_size, _Files(disk))

    def _check(self) -> Checked:
        return self._disk.check()

    def _open(self, path: str, map_size: int) -> lmdb.Environment:
        return super()._open(self._disk.folder, map_size)

    def save(self, rows: Iterable[SavedRow], size_bytes: int) -> None:
        self._check_usable()
        self._disk.begin_save()
        super().save(rows, size_bytes)
        self._disk.end_save()

    def _write(self, transaction: lmdb.Transaction, rows: Iterable[SavedRow]) -> Totals:
        return super()._write(transaction, self._disk.pass_rows(rows))

    def rows(self) -> Rows:
        """Return everything that LMDB holds."""
        return _rows_in(self._environment)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            super().close()
            self._disk.closed()

    def die(self) -> None:
        """Release what the operating system releases when a process ends."""
        self._is_open = False
        self._failed = "the process has ended"
        self._environment.close()
        del self._lock


class _Store(LmdbStore):
    """The product's store of one process."""

    def __init__(self, disk: StateDisk, base: _Base) -> None:
        self._disk = disk
        StateStore.__init__(self, base)

    def flush_finished(self, flush: Flush) -> None:
        """See `StateStore.flush_finished`."""
        super().flush_finished(flush)
        self._disk.finished()


def _rows_in(environment: lmdb.Environment) -> Rows:
    with environment.begin() as transaction, transaction.cursor() as cursor:
        return dict(cursor.iternext())


def _totals_of(rows: Rows) -> Totals:
    sealed = rows.get(TOTALS_KEY)
    return Totals() if sealed is None else parse_totals("", sealed)


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
