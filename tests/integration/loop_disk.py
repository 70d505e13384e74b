"""A real ext4 on a loop device whose power can be cut: EXT4_IOC_SHUTDOWN, then mounted again.

Needs root, loop devices and mkfs.ext4. Flag 1 writes the file system's journal first (metadata is
kept, data is not), flag 2 does not (un-synced names are lost as well).
"""

import fcntl
import os
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_EXT4_IOC_SHUTDOWN = 0x8004587D
FLUSH_JOURNAL = 1
DROP_JOURNAL = 2


def why_not() -> str:
    """Return why loop disks can't be used here, or an empty string when they can."""
    if os.geteuid() != 0:
        return "a disk of our own needs root, for a loop-mounted ext4"
    for tool in ("mkfs.ext4", "mount", "umount", "losetup"):
        if shutil.which(tool) is None:
            return f"a disk of our own needs {tool}"
    if not Path("/dev/loop-control").exists():
        return "a disk of our own needs loop devices (/dev/loop-control is missing)"
    return ""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@dataclass(slots=True)
class LoopDisk:
    """One image and where it is mounted. Used as a context manager, it leaves nothing behind."""

    image: Path
    mount: Path
    size_bytes: int = 512 << 20

    def __enter__(self) -> Self:
        with self.image.open("wb") as file:
            file.truncate(self.size_bytes)
        _run("mkfs.ext4", "-q", str(self.image))
        self.mount.mkdir(parents=True, exist_ok=True)
        self._attach()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        subprocess.run(["umount", "-l", str(self.mount)], check=False, capture_output=True)
        self.image.unlink(missing_ok=True)

    def cut_power(self, flag: int) -> None:
        """From now on every access fails with EIO; what was not synced never reaches the image.

        A call of fdatasync that is under way meanwhile may still return without an error although
        its data are lost: the file system does not tell that it could no longer note where they
        are (seen with plain writers, with both flags, in a third of the cuts on a busy machine; an
        fdatasync that had returned before never lost anything). No power cut does that.
        """
        folder = os.open(self.mount, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _EXT4_IOC_SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(folder)

    def power_on(self) -> None:
        """Mount again, replaying the journal; all users of the old mount must have ended."""
        _run("umount", str(self.mount))
        self._attach()

    def _attach(self) -> None:
        _run("mount", "-o", "loop", str(self.image), str(self.mount))
