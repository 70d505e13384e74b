"""The file system as the log sees it: a Protocol, and the real one.

Everything durable goes through a `FileSystem`, so that the simulation can lose unsynced writes,
tear them, fill up, hang or fail. Errors are OSError with the usual errno. `File` and `FileSystem`
calls block: a caller that must not wait runs them in a worker thread.
"""

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Final, Protocol

from dledger.types import Buffer

IOV_MAX = 1024
"""Linux's limit on buffers in one pwritev."""
CACHED_BEHIND_BYTES = 32 << 20
"""So many bytes behind the synced end of a growing file stay in the page cache."""
DROP_STEP_BYTES = 8 << 20
"""Older bytes leave the page cache in steps of this size."""
FREED_ASIDE_BYTES = 1 << 20
"""A removed file that holds more is closed by a thread of its own."""


class File(Protocol):
    """An open file, read and written by offset only."""

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset`; fewer only at the end of the file."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write all buffers from `offset`; return their size. Not durable before fdatasync."""
        ...

    def fdatasync(self) -> None:
        """Make all written bytes durable. After it failed it is never called again on this file."""
        ...

    def drop_cache(self, size: int, offset: int) -> None:
        """Let the next read of synced bytes come from the disk, not from the page cache."""
        ...

    def truncate(self, size: int) -> None:
        """Set the file's size. Durable only after fdatasync."""
        ...

    def allocate(self, offset: int, size: int) -> None:
        """Reserve disk space, reading as zeros; raises ENOSPC before anything was promised."""
        ...

    def size(self) -> int:
        """Return the file's size in bytes."""
        ...

    def close(self) -> None:
        """Close; the file may not be used afterwards."""
        ...


class FileSystem(Protocol):
    """Folder operations. A name is durable only after `sync_folder` of the folder that holds it."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; with `create`, make it when missing."""
        ...

    def exists(self, path: str) -> bool:
        """Tell whether the path names a file or a folder."""
        ...

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder."""
        ...

    def make_folder(self, path: str) -> None:
        """Make a folder and the missing ones above it."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source`, atomically."""
        ...

    def link(self, source: str, target: str) -> None:
        """Give a file a second name, in any folder of the same disk; FileExistsError."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file. Its space may come back later: see `is_freeing`."""
        ...

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    @property
    def is_freeing(self) -> bool:
        """True while the disk has yet to get back the space of removed files."""
        ...

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""
        ...

    def free_bytes(self, path: str) -> int:
        """Return how many bytes may still be written below `path`."""
        ...

    def lock(self, path: str) -> object:
        """Take the exclusive lock file at `path`; BlockingIOError when another process holds it."""
        ...


FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
"""Of new files and folders: messages are for nobody else on the machine."""


class OsFile:
    """A file of the operating system.

    A file that grows gives its older pages back once they are synced: writing into pages that were
    just given back costs a third of writing into ones that the machine has not used for long
    (measured: 1.6 of 5.5 core-milliseconds per MB of a follower), and what a fast reader wants next
    is in the log's own memory. A reader far behind reads from the disk, in megabytes.
    """

    def __init__(self, fd: int, freeing: "_Freeing") -> None:
        self._fd = fd
        self._freeing = freeing
        self._written_end = 0
        self._dropped_end = -1

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size:
            data = os.pread(self._fd, size - got, offset + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        start = offset
        for first in range(0, len(buffers), IOV_MAX):
            part = buffers[first : first + IOV_MAX]
            size = sum(len(buffer) for buffer in part)
            written = os.pwritev(self._fd, part, offset)
            if written < size:
                rest = memoryview(b"".join(part))[written:]
                while rest:
                    more = os.pwrite(self._fd, rest, offset + written)
                    if more == 0:
                        raise OSError(errno.EIO, "a write made no progress")
                    written += more
                    rest = rest[more:]
            offset += size
        if self._dropped_end < 0:
            self._dropped_end = start
        self._written_end = max(self._written_end, offset)
        return offset - start

    def fdatasync(self) -> None:
        end = self._written_end  # what is written meanwhile, by another thread, is not synced
        os.fdatasync(self._fd)
        self._drop_pages(end - CACHED_BEHIND_BYTES)

    def _drop_pages(self, end: int) -> None:
        size = end - self._dropped_end
        if size >= DROP_STEP_BYTES:
            os.posix_fadvise(self._fd, self._dropped_end, size, os.POSIX_FADV_DONTNEED)
            self._dropped_end = end

    def drop_cache(self, size: int, offset: int) -> None:
        os.posix_fadvise(self._fd, offset, size, os.POSIX_FADV_DONTNEED)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, offset: int, size: int) -> None:
        os.posix_fallocate(self._fd, offset, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        found = os.fstat(self._fd)
        if found.st_nlink == 0 and 512 * found.st_blocks > FREED_ASIDE_BYTES:
            self._freeing.close(self._fd)
        else:
            os.close(self._fd)


class _Freeing:
    """Closes what may be the last descriptor of a large file that was removed.

    ext4 needs 0.3 s to free a gigabyte (measured, with online discard), and the close waits for it,
    so a thread closes. It is a daemon: a process that ends need not wait for the disk. One step of
    a trim and the open files of `FilePool` bound how many descriptors wait.
    """

    def __init__(self) -> None:
        self._waiting: SimpleQueue[int] = SimpleQueue()
        self._lock = threading.Lock()
        self._left = 0
        self._thread: threading.Thread | None = None

    @property
    def is_busy(self) -> bool:
        return self._left > 0

    def close(self, fd: int) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="free", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no thread is to be had: the caller waits for the disk
                    os.close(fd)
                    return
                self._thread = thread
            self._left += 1
        self._waiting.put(fd)

    def _work(self) -> None:
        while True:
            fd = self._waiting.get()
            try:
                with contextlib.suppress(OSError):  # the file is gone, nobody will read it again
                    os.close(fd)
            finally:
                with self._lock:
                    self._left -= 1


class OsFileSystem:
    """The file system of the operating system."""

    def __init__(self) -> None:
        self._freeing = _Freeing()

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(os.open(path, flags, FILE_MODE), self._freeing)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def names(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_folder(self, path: str) -> None:
        os.makedirs(path, FOLDER_MODE, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def unlink(self, path: str) -> None:
        file = self.open(path)
        try:
            os.unlink(path)
        finally:
            file.close()

    def remove_folder(self, path: str) -> None:
        os.rmdir(path)

    @property
    def is_freeing(self) -> bool:
        return self._freeing.is_busy

    def sync_folder(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        figures = os.statvfs(path)
        return figures.f_bavail * figures.f_frsize

    def lock(self, path: str) -> object:
        """See `FileSystem.lock`. The lock ends with the process, or when the result is dropped."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        file = os.fdopen(fd, "r+b")  # held for the life of the process
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise
        return file
