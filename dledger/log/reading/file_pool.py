"""Open files for reading old log bytes, shared by threads.

Owns: how many segment files are open for reading, and that no file is closed under a reader. Does
not write. The lock guards the table only: no file is opened, read or closed under it. So one slow
call of the disk does not delay readers of other files.
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
        self._forgotten = 0
        """How often files were forgotten: what was opened before may be one of them."""

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
            self._forgotten += 1
            handle = self._handles.pop(path, None)
            idle = handle is not None and not handle.users
        if handle is not None and idle:
            handle.file.close()

    def close(self) -> None:
        """Close every file that no reader uses; the others close as their readers end."""
        with self._lock:
            self._forgotten += 1
            idle = [handle for handle in self._handles.values() if not handle.users]
            self._handles.clear()
        for handle in idle:
            handle.file.close()

    def _take(self, path: str) -> _Handle:
        with self._lock:
            known = self._known(path)
            forgotten = self._forgotten
        if known is not None:
            return known
        opened = _Handle(self.fs.open(path))
        opened.users = 1
        with self._lock:
            known = self._known(path)
            if known is None and forgotten == self._forgotten:
                self._handles[path] = opened
        if known is None:  # a file was removed meanwhile, perhaps this one: only this reader has it
            return opened
        opened.file.close()
        return known

    def _known(self, path: str) -> _Handle | None:
        """Return the open file of a path, with one user more. Under the lock."""
        handle = self._handles.get(path)
        if handle is not None:
            self._handles.move_to_end(path)
            handle.users += 1
        return handle

    def _give_back(self, path: str, handle: _Handle) -> None:
        over: list[_Handle] = []
        with self._lock:
            handle.users -= 1
            if handle.users:
                return
            if self._handles.get(path) is not handle:
                over.append(handle)
            elif (excess := len(self._handles) - OPEN_FILES_MAX) > 0:
                idle = [name for name, other in self._handles.items() if not other.users]
                over += [self._handles.pop(name) for name in idle[:excess]]
        for each in over:
            each.file.close()
