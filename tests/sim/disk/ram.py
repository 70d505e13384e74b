"""Folders in memory for what only real files can hold: LMDB maps its file.

Owns: where these folders lie, and that none is left behind. A world makes one and closes it when it
ends. `close_all` closes those that are still open, for scripts whose worlds never end. A process
does so at its end.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

_SHARED_MEMORY: Final = "/dev/shm"
_HOME: Final = _SHARED_MEMORY if os.path.isdir(_SHARED_MEMORY) else tempfile.gettempdir()
_PREFIX: Final = "dledger-sim-"


class RamFolder:
    """A folder of one world. Its name is random: nothing that a seed decides may depend on it."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=_HOME)
        self._closing: list[Callable[[], None]] = []
        _open.append(self)

    def make(self, name: str) -> str:
        """Make a folder in it; return the path."""
        path = os.path.join(self.path, name)
        os.mkdir(path)
        return path

    def before_closing(self, callback: Callable[[], None]) -> None:
        """Call back before the files are removed, for they may be mapped."""
        self._closing.append(callback)

    def close(self) -> None:
        """Remove the folder with all that is in it; a second call has no effect."""
        if self in _open:
            _open.remove(self)
            for callback in self._closing:
                callback()
            shutil.rmtree(self.path)


_open: list[RamFolder] = []


def close_all() -> None:
    """Close every folder of this process."""
    while _open:
        _open[-1].close()


def left_behind() -> list[Path]:
    """Return the folders of this process that still exist."""
    return sorted(Path(_HOME).glob(f"{_PREFIX}{os.getpid()}-*"))


atexit.register(close_all)
os.register_at_fork(after_in_child=_open.clear)
