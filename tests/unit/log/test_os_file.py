"""The real file: what it gives back to the machine, and that the bytes stay readable.

Method: mincore tells which pages of a file are in the page cache.
"""

import ctypes
import mmap
import os
import threading
from pathlib import Path

import pytest

from dledger.files import (
    CACHED_BEHIND_BYTES,
    DROP_STEP_BYTES,
    FREED_ASIDE_BYTES,
    OsFileSystem,
)

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


@pytest.mark.parametrize("size", [FREED_ASIDE_BYTES - 1, FREED_ASIDE_BYTES])
def test_a_large_file_is_given_back_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Its name is gone at once; its last descriptor is closed by another thread."""
    path = tmp_path / "file"
    file = OsFileSystem().open(str(path), create=True)
    file.truncate(size)
    file.close()
    closed: list[int] = []
    done = threading.Event()
    close = os.close

    def noted(fd: int) -> None:
        closed.append(threading.get_ident())
        close(fd)
        done.set()

    monkeypatch.setattr(os, "close", noted)
    OsFileSystem().unlink(str(path))
    assert not path.exists()
    assert done.wait(20)
    aside = size >= FREED_ASIDE_BYTES
    assert [ident != threading.get_ident() for ident in closed] == [aside]
