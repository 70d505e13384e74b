"""The real file: what it gives back to the machine, and that the bytes stay readable.

Method: mincore tells which pages of a file are in the page cache.
"""

import asyncio
import ctypes
import errno
import mmap
import os
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from dledger.files import (
    CACHED_BEHIND_BYTES,
    DROP_STEP_BYTES,
    FREED_ASIDE_BYTES,
    File,
    OsFileSystem,
)
from tests.waiting import until

CHUNK = bytes(range(256)) * 4096  # 1 MiB


def cached_bytes(path: Path) -> int:
    size = path.stat().st_size
    fd = os.open(path, os.O_RDWR)
    try:
        with mmap.mmap(fd, size) as pages:
            vector = (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
            address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
            libc = ctypes.CDLL(None, use_errno=True)
            assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), vector) == 0
            return sum(flag & 1 for flag in vector) * mmap.PAGESIZE
    finally:
        os.close(fd)


def test_a_growing_file_gives_old_pages_back(tmp_path: Path) -> None:
    """Only the newest bytes, and at most two steps more, stay cached; all of them stay readable."""
    path = tmp_path / "file"
    file = OsFileSystem().open(str(path), create=True)
    total = CACHED_BEHIND_BYTES + 4 * DROP_STEP_BYTES
    for offset in range(0, total, len(CHUNK)):
        file.pwritev([CHUNK], offset)
        file.fdatasync()
    kept = cached_bytes(path)
    assert CACHED_BEHIND_BYTES // 2 < kept <= CACHED_BEHIND_BYTES + 2 * DROP_STEP_BYTES
    for offset in (0, total // 2, total - len(CHUNK)):
        assert file.pread(len(CHUNK), offset) == CHUNK
    file.close()


def test_what_is_not_synced_is_not_given_back(tmp_path: Path) -> None:
    """Pages leave the cache only after a sync that covered them."""
    path = tmp_path / "file"
    file = OsFileSystem().open(str(path), create=True)
    total = CACHED_BEHIND_BYTES + 4 * DROP_STEP_BYTES
    for offset in range(0, total, len(CHUNK)):
        file.pwritev([CHUNK], offset)
    assert cached_bytes(path) == total
    file.close()


class Closers:
    """Who closes descriptors; threads but this one wait until `go`, fail then if `fails`."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.fails = False
        self.fs = OsFileSystem()
        self.aside: list[bool] = []
        self._here, self._close = threading.get_ident(), os.close

    def close(self, fd: int) -> None:
        aside = threading.get_ident() != self._here
        if aside:
            assert self.go.wait(20)
            assert self.fs.is_freeing, "its space is not back yet"
        self._close(fd)
        self.aside.append(aside)
        if aside and self.fails:
            raise OSError(errno.EIO, "simulated")


@pytest.fixture
def closers(monkeypatch: pytest.MonkeyPatch) -> Generator[Closers]:
    found = Closers()
    monkeypatch.setattr(os, "close", found.close)
    yield found
    found.go.set()


def of_size(fs: OsFileSystem, path: Path, size: int) -> File:
    file = fs.open(str(path), create=True)
    file.allocate(0, size)
    return file


def test_a_large_file_is_given_back_aside(tmp_path: Path, closers: Closers) -> None:
    """Its name is gone at once, its space when a thread that nobody waits for has closed it."""
    fs = closers.fs
    path = tmp_path / "file"
    reader = of_size(fs, path, FREED_ASIDE_BYTES + 4096)
    fs.unlink(str(path))
    assert not path.exists()
    reader.close()  # the last one, perhaps
    assert fs.is_freeing
    assert closers.aside == []
    closers.go.set()
    asyncio.run(until(lambda: not fs.is_freeing, "the space is back"))
    assert closers.aside == [True, True]


def test_a_small_file_is_given_back_at_once(tmp_path: Path, closers: Closers) -> None:
    fs = closers.fs
    path = tmp_path / "file"
    of_size(fs, path, FREED_ASIDE_BYTES // 2).close()
    fs.unlink(str(path))
    assert not fs.is_freeing
    assert closers.aside == [False, False]


def test_a_large_file_that_keeps_its_name_is_closed_at_once(
    tmp_path: Path, closers: Closers
) -> None:
    fs = closers.fs
    of_size(fs, tmp_path / "file", FREED_ASIDE_BYTES + 4096).close()
    assert not fs.is_freeing
    assert closers.aside == [False]


def test_space_counts_and_not_length(tmp_path: Path, closers: Closers) -> None:
    fs = closers.fs
    path = tmp_path / "file"
    file = fs.open(str(path), create=True)
    file.truncate(4 * FREED_ASIDE_BYTES)
    fs.unlink(str(path))
    file.close()
    assert not fs.is_freeing
    assert not any(closers.aside)


def test_a_close_that_fails_does_not_end_the_thread(tmp_path: Path, closers: Closers) -> None:
    """Else space would count as on its way for ever, and no head be trimmed again."""
    fs = closers.fs
    closers.go.set()
    for name in ("one", "other"):
        path = tmp_path / name
        of_size(fs, path, FREED_ASIDE_BYTES + 4096).close()
        closers.fails = name == "one"
        fs.unlink(str(path))
        asyncio.run(until(lambda: not fs.is_freeing, "the space is back"))


def test_a_large_file_is_given_back_when_no_thread_is_to_be_had(
    tmp_path: Path, closers: Closers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    fs = closers.fs
    path = tmp_path / "file"
    of_size(fs, path, FREED_ASIDE_BYTES + 4096).close()
    fs.unlink(str(path))
    assert not path.exists()
    assert not fs.is_freeing
    assert closers.aside == [False, False]
