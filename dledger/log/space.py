"""Disk space: a reserve that is kept, and the mark below which writes are refused (I16).

Owns: the reserve file, the low-water mark, and what happens when the disk says ENOSPC. A call that
needs space runs through `DiskSpace.run`. When the disk is full, the call gets part of the reserve
and runs again. So admitted bytes (the unsynced tail, hard state, checkpoint) are still written,
while `room` makes a leader refuse new writes before it promises anything. Between the low-water
mark and half of it there is room for writes that free space, and for a new leader's first entry.
When the reserve is used up, the OSError passes on and the member ends.

`run` is called by the round's thread, `check` by any; a lock keeps them apart.
"""

import errno
import threading
from collections.abc import Callable
from typing import Final

from dledger.files import FileSystem
from dledger.types import DiskRoom

RESERVE_FILE: Final = "reserve"
RESERVE_STEP_BYTES: Final = 1 << 20
"""The least part of the reserve that is given at once."""


def is_full(error: OSError) -> bool:
    """Tell whether the disk refused because it is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class DiskSpace:
    """The space of one data folder."""

    def __init__(
        self, fs: FileSystem, folder: str, *, reserve_bytes: int, low_water_bytes: int
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._path = f"{folder}/{RESERVE_FILE}"
        self._reserve_bytes = reserve_bytes
        self._low_water_bytes = low_water_bytes
        self._lock = threading.Lock()
        self._held_bytes = 0
        self.free_bytes = 0
        """What the last look found. Any thread."""
        self._room = DiskRoom.ENOUGH

    @property
    def room(self) -> DiskRoom:
        """How much room the last look found. Any thread."""
        return self._room

    @property
    def low(self) -> bool:
        """True below the low-water mark: only writes that are needed are made."""
        return self._room is not DiskRoom.ENOUGH

    def open(self) -> None:
        """Make or adopt the reserve file. A disk without room for it is low, which is no error."""
        with self._lock:
            self._held_bytes = 0
            if self._fs.exists(self._path):
                file = self._fs.open(self._path)
                try:
                    if file.size() > self._reserve_bytes:
                        file.truncate(self._reserve_bytes)
                    self._held_bytes = file.size()
                finally:
                    file.close()
            self._measure()

    def check(self) -> DiskRoom:
        """Measure, restore the reserve when there is room again. Any thread; blocks shortly.

        To be called about once a second, or a full disk stays refused.
        """
        with self._lock:
            self._measure()
            return self._room

    def can_spare(self, more_bytes: int) -> bool:
        """Tell whether the disk would not be low, nor stay so, with so much more on it."""
        with self._lock:
            return self._fs.free_bytes(self._folder) - more_bytes >= self._mark(DiskRoom.LOW)

    def note_full(self, error: OSError) -> None:
        """Remember that the disk is full; raise any other error again."""
        if not is_full(error):
            raise error
        self._room = DiskRoom.FULL

    def run(self, action: Callable[[], None], needed_bytes: int) -> None:
        """Run an action that needs space; give it parts of the reserve while the disk is full.

        The action may run again from its start after ENOSPC, so it holds no fdatasync. The loop
        ends: each further run takes at least `RESERVE_STEP_BYTES` from the reserve.
        """
        while True:
            try:
                action()
            except OSError as error:
                if not is_full(error):
                    raise
                with self._lock:
                    self._room = DiskRoom.FULL
                    if not self._give(needed_bytes):
                        raise
            else:
                return

    def _give(self, needed_bytes: int) -> bool:
        """Free a part of the reserve; False when there is none."""
        if not self._held_bytes:
            return False
        left = max(0, self._held_bytes - max(2 * needed_bytes, RESERVE_STEP_BYTES))
        file = self._fs.open(self._path)
        try:
            file.truncate(left)
        finally:
            file.close()
        self._held_bytes = left
        return True

    def _measure(self) -> None:
        free = self._fs.free_bytes(self._folder)
        missing = self._reserve_bytes - self._held_bytes
        if missing > 0 and free >= missing and self._restore():
            free = self._fs.free_bytes(self._folder)
            missing = 0
        self.free_bytes = free
        if missing > 0 or free < self._mark(DiskRoom.FULL):
            self._room = DiskRoom.FULL
        elif free < self._mark(DiskRoom.LOW):
            self._room = DiskRoom.LOW
        else:
            self._room = DiskRoom.ENOUGH

    def _mark(self, room: DiskRoom) -> int:
        """Return the free bytes below which the disk is `room`; a quarter more to leave it.

        Without that quarter the answer would flap.
        """
        mark = self._low_water_bytes // (2 if room is DiskRoom.FULL else 1)
        return mark + mark // 4 if self._room >= room else mark

    def _restore(self) -> bool:
        try:
            file = self._fs.open(self._path, create=True)
            try:
                file.allocate(0, self._reserve_bytes)
                self._held_bytes = file.size()
            finally:
                file.close()
        except OSError as error:
            if not is_full(error):
                raise
            return False
        return True
