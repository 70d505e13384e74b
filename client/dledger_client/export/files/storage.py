"""Files of an export: published whole, synced, and exclusively.

Owns: put-if-absent, staging, which folders are synced when. Not: what is in the files.

A name appears in one step, and only when its bytes are on disk. The folders above it are synced
before any caller learns of the name. An object store would replace this module: its conditional put
is `put_if_absent`, and it has no folders to sync.

```
_dledger/tmp/       what is being written; anybody's leftovers, collected after a grace time
_dledger/plans/     _dledger/manifests/     topic=.../
_dledger/checkpoints/   what a version holds, told from manifests (`manifests/checkpoint.py`)
_dledger/holders/   names of holds on the log (`holder.py`)
```
"""

import errno
import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from dledger_client.export.errors import ExportCode, ExportError

TEMPORARY: Final = "_dledger/tmp"
NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV)
"""Errors of file systems without hard links, or with another one mounted on a folder within."""


class Disk:
    """The seam to the file system: tests replace it to let the machine die."""

    def create(self, path: Path) -> BinaryIO:
        """Open a new file for writing; FileExistsError."""
        return path.open("xb")

    def sync_file(self, path: Path) -> None:
        """Return when the file's bytes are on disk."""
        _sync(path, os.O_RDONLY)

    def sync_folder(self, path: Path) -> None:
        """Return when the folder's names are on disk."""
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def link(self, old: Path, new: Path) -> None:
        """Give a file a second name; FileExistsError when the name is taken."""
        os.link(old, new)

    def replace(self, old: Path, new: Path) -> None:
        """Rename, over what is there."""
        old.replace(new)

    def unlink(self, path: Path) -> None:
        """Take a name away."""
        path.unlink()

    def make_folder(self, path: Path) -> None:
        """Make one folder; FileExistsError."""
        path.mkdir()

    def read(self, path: Path) -> bytes:
        """Return a whole file; FileNotFoundError."""
        return path.read_bytes()

    def names(self, path: Path) -> list[str]:
        """Return the names in a folder, sorted; none when it is missing."""
        try:
            return sorted(each.name for each in path.iterdir())
        except FileNotFoundError:
            return []


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(slots=True)
class Staged:
    """A file without a name of its own yet. Write to `file`, then `ExportStorage.install` it."""

    file: BinaryIO
    path: Path


class ExportStorage:
    """The folder of one export. Names are relative, with "/". Pickles."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.root = root
        self._disk = disk or Disk()

    def path(self, name: str) -> Path:
        """Return where a name lies."""
        return self.root / name

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Publish a small file durably. False: the name is taken, and is durable by now."""
        with self.stage() as staged:
            staged.file.write(data)
            return self.install(staged, name)

    def read(self, name: str) -> bytes | None:
        """Return a file; None when there is none."""
        try:
            return self._disk.read(self.path(name))
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none when it is missing."""
        return self._disk.names(self.path(folder))

    @contextmanager
    def stage(self, *, is_slow: bool = False) -> Generator[Staged]:
        """Yield a new file without a name. It is gone afterwards unless it was installed.

        `is_slow`: it may take longer than any grace time, so it is locked for `is_being_written`.
        """
        self._make_folders(TEMPORARY)
        path = self.path(f"{TEMPORARY}/{os.getpid()}-{os.urandom(8).hex()}")
        file = self._disk.create(path)
        try:
            with file:
                if is_slow:
                    with suppress(OSError):  # where nothing locks, `collect` goes by age alone
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield Staged(file, path)
        finally:
            with suppress(FileNotFoundError):
                self._disk.unlink(path)

    def install(self, staged: Staged, name: str, *, over: bool = False) -> bool:
        """Give a staged file its name, durably. False: it is taken; `over` takes it.

        The bytes are synced before the name exists, so a reader of the name sees all of them.
        """
        if not staged.file.closed:
            staged.file.flush()
        self._disk.sync_file(staged.path)
        self._make_folders(str(PurePosixPath(name).parent))
        mine = True
        if over:
            self._disk.replace(staged.path, self.path(name))
        else:
            try:
                self._disk.link(staged.path, self.path(name))
            except FileExistsError:
                mine = False
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                raise ExportError(
                    ExportCode.NO_HARD_LINKS,
                    f"{self.root} is on a file system without hard links, which"
                    f" publishing a version needs ({error.strerror})",
                    "export to ext4, XFS, Btrfs or NFS, and copy from there",
                ) from error
        self.settle(name)
        return mine

    def settle(self, name: str) -> None:
        """Sync the file under a name, with all folders above it.

        A process that finds a file cannot know whether its writer lived to sync the folders.
        """
        self._disk.sync_file(self.path(name))
        for folder in (self.path(name).parent, *self.path(name).parent.parents):
            self._disk.sync_folder(folder)
            if folder == self.root:
                break
        with suppress(PermissionError):  # a folder that we may not read is not one we made it in
            self._disk.sync_folder(self.root.parent)

    def delete(self, name: str) -> None:
        """Take a name away; no error when it is gone."""
        with suppress(FileNotFoundError):
            self._disk.unlink(self.path(name))

    def is_being_written(self, name: str) -> bool:
        """Tell whether a slow file's writer lives; False also where nothing locks."""
        try:
            # A shared lock needs no permission to write. The writer's lock excludes it.
            with self.path(name).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def modified(self, name: str) -> float:
        """Return when a file was last written, seconds since 1970; 0 when it is gone."""
        try:
            return self.path(name).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def size(self, name: str) -> int | None:
        """Return how many bytes a file has; None when there is none."""
        try:
            return self.path(name).stat().st_size
        except FileNotFoundError:
            return None

    def walk(self, folder: str) -> list[str]:
        """Return the names of all files in a folder and below, sorted."""
        top = self.path(folder)
        found = (each for each in top.rglob("*") if each.is_file()) if top.is_dir() else ()
        return sorted(each.relative_to(self.root).as_posix() for each in found)

    def _make_folders(self, name: str) -> None:
        if not self.root.exists():
            with suppress(FileExistsError):
                self._disk.make_folder(self.root)
        folder = self.root
        for part in PurePosixPath(name).parts:
            folder /= part
            if not folder.exists():
                with suppress(FileExistsError):
                    self._disk.make_folder(folder)
