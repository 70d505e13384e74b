"""Open files for reading old log bytes, shared by threads.

Owns: how many segment files are open for reading, and that no file is closed under a reader. Does
not write.
"""

import threading
from collections import OrderedDict
from typing import Final

from dledger.files import File, FileSystem

OPEN_FILES_MAX: Final = 64


class _Handle:
    __slots__ = ("file", "users")

    def __init__(self, file: File) -> None:
        self.file = file
        self.users = 0


class FilePool:
    """Reads by path from at most `OPEN_FILES_MAX` idle open files. Every call from any thread."""

    def __init__(self, fs: FileSystem) -> None:
        self.fs = fs
        self._lock = threading.Lock()
        self._handles: OrderedDict[str, _Handle] = OrderedDict()

    @property
    def open_count(self) -> int:
        """How many files are open."""
        return len(self._handles)

    def pread(self, path: str, size: int, offset: int) -> bytes:
        """Return up to `size` bytes; FileNotFoundError when the file is gone."""
        handle = self._take(path)
        try:
            return handle.file.pread(size, offset)
        finally:
            self._give_back(path, handle)

    def size(self, path: str) -> int:
        """Return a file's size."""
        handle = self._take(path)
        try:
            return handle.file.size()
        finally:
            self._give_back(path, handle)

    def forget(self, path: str) -> None:
        """A file was removed: later reads open whatever then has its name."""
        with self._lock:
            handle = self._handles.pop(path, None)
            if handle is not None and not handle.users:
                handle.file.close()

    def close(self) -> None:
        """Close every file that no reader uses; the others close as their readers end."""
        with self._lock:
            for handle in self._handles.values():
                if not handle.users:
                    handle.file.close()
            self._handles.clear()

    def _take(self, path: str) -> _Handle:
        with self._lock:
            handle = self._handles.get(path)
            if handle is None:
                handle = _Handle(self.fs.open(path))
                self._handles[path] = handle
            self._handles.move_to_end(path)
            handle.users += 1
            return handle

    def _give_back(self, path: str, handle: _Handle) -> None:
        with self._lock:
            handle.users -= 1
            if handle.users:
                return
            if self._handles.get(path) is not handle:
                handle.file.close()
                return
            excess = len(self._handles) - OPEN_FILES_MAX
            if excess > 0:
                idle = [name for name, other in self._handles.items() if not other.users]
                for name in idle[:excess]:
                    self._handles.pop(name).file.close()
