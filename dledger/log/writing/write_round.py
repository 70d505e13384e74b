"""A write round: what is written at once, as a list of steps, and the disk they run against.

Owns: the order of writes and syncs inside a step, allocation, and that nothing is promised after a
failure. `rounds.py` decides which steps a round has, and their order. A worker thread executes a
round once, while the loop appends to the next one. Rounds never overlap, so `LogDisk` needs no
lock. After an OSError the log has failed for good. No later call of fdatasync may vouch for what
the disk then holds: the kernel reports a lost write once and forgets it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from dledger.files import File, FileSystem
from dledger.log.atomic_file import publish, stage
from dledger.log.errors import LogFailed
from dledger.log.memory.chain import Chain
from dledger.log.memory.segment import INDEX_SUFFIX
from dledger.log.memory.tail import TailEntry
from dledger.log.reading.file_pool import FilePool
from dledger.log.settings import LogSettings
from dledger.log.space import DiskSpace
from dledger.types import Buffer, Position
from dledger_proto.entry import stamp_local

BLOCK_BYTES: Final = 4096
"""What a new small file is taken to need at least."""


class LogDisk:
    """The files of a log, as rounds write them. One thread at a time."""

    def __init__(
        self, fs: FileSystem, log_path: str, pool: FilePool, space: DiskSpace, settings: LogSettings
    ) -> None:
        self._fs = fs
        self._log_path = log_path
        self._pool = pool
        self._space = space
        self._settings = settings
        self._name: str = ""
        self._file: File | None = None
        self._allocated = 0
        self._failure: OSError | None = None

    @property
    def failure(self) -> OSError | None:
        """What went wrong; None while all is well."""
        return self._failure

    def fail(self, error: OSError) -> None:
        """Refuse everything from now on."""
        self._failure = self._failure or error

    def check(self) -> None:
        """Raise LogFailed after a failure."""
        if self._failure is not None:
            raise LogFailed(self._failure)

    def store(self, folder: str, path: str, content: bytes, *, sync_name: bool) -> None:
        """Replace a small file atomically."""
        needed = len(content) + BLOCK_BYTES
        self._space.run(lambda: stage(self._fs, path, content), needed)
        publish(self._fs, folder, path, sync_name=sync_name)

    def create(self, name: str, header: bytes) -> None:
        """Make a segment file with its header, and make header and name durable."""
        self.close()
        path = self._path(name)
        file: list[File] = []

        def make() -> None:
            if not file:
                file.append(self._fs.open(path, create=True))
            file[0].truncate(0)
            file[0].allocate(0, len(header))
            file[0].pwritev([header], 0)

        self._space.run(make, BLOCK_BYTES)
        file[0].fdatasync()
        self._fs.sync_folder(self._log_path)
        self._name = name
        self._file = file[0]
        self._allocated = len(header)

    def write(self, name: str, offset: int, buffers: Sequence[Buffer], size: int) -> None:
        """Write a run of bytes, into space that was allocated before."""
        file = self._open(name)
        if offset + size > self._allocated:
            self._allocate(file, offset + size)
        self._space.run(lambda: self._write(file, buffers, offset, size), size)

    @staticmethod
    def _write(file: File, buffers: Sequence[Buffer], offset: int, size: int) -> None:
        written = file.pwritev(buffers, offset)
        assert written == size, f"{written} of {size} bytes written at {offset}"

    def _allocate(self, file: File, needed_end: int) -> None:
        """Allocate to `needed_end`, and a step ahead when the disk is not low for it."""
        start = self._allocated
        settings = self._settings
        ahead = min(needed_end + settings.allocate_bytes, settings.segment_size)
        if ahead > needed_end and self._space.can_spare(ahead - start):
            try:
                file.allocate(start, ahead - start)
            except OSError as error:
                self._space.note_full(error)
            else:
                self._allocated = ahead
                self._space.check()
                return
        self._space.run(lambda: file.allocate(start, needed_end - start), needed_end - start)
        self._allocated = needed_end
        self._space.check()

    def cut_to(self, name: str, size: int) -> None:
        """Cut a file to `size` bytes, and sync it."""
        file = self._open(name)
        file.truncate(size)
        self._allocated = size
        file.fdatasync()

    def sync(self, name: str) -> None:
        """Sync a segment's bytes."""
        self._open(name).fdatasync()

    def remove(self, name: str) -> None:
        """Remove a segment and its index; durable after `sync_names`."""
        if name == self._name:
            self.close()
        path = self._path(name)
        self._fs.unlink(path)
        self._pool.forget(path)  # not before: a late reader might open it once more
        index_path = path.removesuffix(".log") + INDEX_SUFFIX
        if self._fs.exists(index_path):
            self._fs.unlink(index_path)

    def sync_names(self) -> None:
        """Make names in the log's folder durable."""
        self._fs.sync_folder(self._log_path)

    def close(self) -> None:
        """Close the file that was written last."""
        if self._file is not None:
            self._file.close()
        self._name = ""
        self._file = None

    def _open(self, name: str) -> File:
        if self._file is None or name != self._name:
            self.close()
            self._file = self._fs.open(self._path(name))
            self._name = name
            self._allocated = self._file.size()
        return self._file

    def _path(self, name: str) -> str:
        return f"{self._log_path}/{name}"


class RoundStep(Protocol):
    """One thing that a round does."""

    def run(self, disk: LogDisk) -> None:
        """Do it; OSError when the disk refuses."""
        ...

    def describe(self) -> str:
        """Return one stable line for logs and tests."""
        ...


@dataclass(frozen=True, slots=True)
class StoreFile:
    """Replace a small file: hard state, identity, checkpoint, index."""

    folder: str
    path: str
    content: bytes
    sync_name: bool = True

    def run(self, disk: LogDisk) -> None:
        disk.store(self.folder, self.path, self.content, sync_name=self.sync_name)

    def describe(self) -> str:
        return f"store {self.path.rpartition('/')[2]}"


@dataclass(frozen=True, slots=True)
class CutSuffix:
    """Remove whole files behind a cut, newest first, then cut the file it lies in."""

    removed: Sequence[str]
    kept: str | None
    kept_size: int

    def run(self, disk: LogDisk) -> None:
        """See `RoundStep.run`. Each removal is durable before the next, so no hole can appear."""
        for name in self.removed:
            disk.remove(name)
            disk.sync_names()
        if self.kept is not None:
            disk.cut_to(self.kept, self.kept_size)

    def describe(self) -> str:
        return f"cut {self.kept or 'all'} to {self.kept_size}, removing {len(self.removed)}"


@dataclass(frozen=True, slots=True)
class CreateSegment:
    """Make the next segment's file; the one before is sealed."""

    name: str
    header: bytes

    def run(self, disk: LogDisk) -> None:
        disk.create(self.name, self.header)

    def describe(self) -> str:
        return f"create {self.name}"


@dataclass(frozen=True, slots=True)
class WriteEntries:
    """Write a run of entries into one file, stamped for it; sync it when that seals it."""

    name: str
    salt: bytes
    offset: int
    synced_position: Position
    entries: Sequence[TailEntry]
    sealed_size: int | None
    """The file's final size when it is sealed with this."""

    def run(self, disk: LogDisk) -> None:
        """See `RoundStep.run`. The payloads' views go to the kernel as they are."""
        buffers: list[Buffer] = []
        size = 0
        for entry in self.entries:
            buffers.append(stamp_local(entry.header, self.salt, self.synced_position))
            buffers.extend(entry.body)
            size += entry.ref.size
        if size:
            disk.write(self.name, self.offset, buffers, size)
        if self.sealed_size is not None:
            disk.cut_to(self.name, self.sealed_size)

    def describe(self) -> str:
        sealed = " and seal" if self.sealed_size is not None else ""
        return f"write {len(self.entries)} entries to {self.name} at {self.offset}{sealed}"


@dataclass(frozen=True, slots=True)
class SyncEntries:
    """Sync the newest file: with it everything written so far, for the others are sealed."""

    name: str

    def run(self, disk: LogDisk) -> None:
        disk.sync(self.name)

    def describe(self) -> str:
        return f"sync {self.name}"


@dataclass(frozen=True, slots=True)
class RemoveHead:
    """Remove whole files before the new head, oldest first; the checkpoint knows it already."""

    removed: Sequence[str]

    def run(self, disk: LogDisk) -> None:
        for name in self.removed:
            disk.remove(name)
        disk.sync_names()

    def describe(self) -> str:
        return f"remove {len(self.removed)} from the head"


@dataclass(slots=True)
class Round:
    """One write round of a log."""

    disk: LogDisk
    steps: Sequence[RoundStep]
    end: Chain
    """Everything up to here is in the files when it is finished, unless it was cut meanwhile."""
    synced: bool
    """And all of that is synced."""
    group_id: bytes = b""
    """The group id that the identity file has after the round."""
    trimmed: Position | None = None
    """The new first position, when the round trims the head."""
    executed: bool = field(default=False, init=False)

    def execute(self) -> None:
        """Run the steps. OSError: the log has failed, and every later call says so. Blocks."""
        assert not self.executed, "a round is executed once"
        self.disk.check()
        try:
            for step in self.steps:
                step.run(self.disk)
        except OSError as error:
            self.disk.fail(error)
            raise
        self.executed = True

    def describe(self) -> str:
        """Return one stable line for logs and tests."""
        return "; ".join(step.describe() for step in self.steps)
