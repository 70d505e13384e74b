"""A real disk under each member: ext4 on a loop device, filled up, or with its power cut.

Needs root, loop devices and mkfs.ext4. The power cut is EXT4_IOC_SHUTDOWN: from then on every
access fails with EIO, and what was not synced never reaches the image. Flag 1 writes the file
system's journal first (metadata are kept, data are not), flag 2 does not (names are lost as well).
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from jepsen_tests.backends.surface import Processes
from jepsen_tests.backends.troubles import namespaces
from jepsen_tests.errors import HarnessFailure
from jepsen_tests.processes.threads import Threads

_EXT4_IOC_SHUTDOWN: Final = 0x8004587D
FLUSH_JOURNAL: Final = 1
DROP_JOURNAL: Final = 2
MEMBER_DISK_BYTES: Final = 1 << 30
LEFT_WHEN_FULL_BYTES: Final = 8 << 10
UNMOUNT_SECONDS_MAX: Final = 15.0
"""Limit for the users of a mount to end: a killed process may still be in a call."""
AGAIN_SECONDS: Final = 0.05


def why_not() -> str:
    """Return why loop disks can't be used here, or an empty string when they can."""
    if os.geteuid() != 0:
        return "a disk of our own needs root, for a loop-mounted ext4"
    for tool in ("mkfs.ext4", "mount", "umount", "losetup", "unshare"):
        if shutil.which(tool) is None:
            return f"a disk of our own needs {tool}"
    if not Path("/dev/loop-control").exists():
        return "a disk of our own needs loop devices (/dev/loop-control is missing)"
    reason = namespaces.why_not("mount")
    return f"a disk of our own needs mounts that are its own: {reason}" if reason else ""


def _run(*command: str) -> str:
    """Run a tool; return its complaint, empty when it succeeded."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if not done.returncode:
        return ""
    return (done.stderr or done.stdout).strip() or f"{command[0]}: exit code {done.returncode}"


@dataclass(slots=True)
class LoopDisk:
    """One image and where it is mounted. Used as a context manager, it leaves nothing behind."""

    image: Path
    mount: Path
    size_bytes: int = 512 << 20

    def __enter__(self) -> Self:
        with self.image.open("wb") as file:
            file.truncate(self.size_bytes)
        self._must(_run("mkfs.ext4", "-q", str(self.image)))
        self.mount.mkdir(parents=True, exist_ok=True)
        self._attach()
        return self

    def __exit__(self, *_error: object) -> None:
        self.detach()
        self.image.unlink(missing_ok=True)

    def detach(self) -> None:
        """Unmount, and keep the image."""
        subprocess.run(["umount", "-l", str(self.mount)], check=False, capture_output=True)

    def cut_power(self, flag: int) -> None:
        """From now on every access fails with EIO; what was not synced never reaches the image.

        An fdatasync that runs meanwhile may return without an error although its data are lost: the
        file system does not report that it could no longer note where they are. Plain writers saw
        this with both flags, in a third of the cuts on a busy machine. An fdatasync that returned
        before the cut never lost anything. A real power cut does not do that.
        """
        with self._folder() as folder:
            fcntl.ioctl(folder, _EXT4_IOC_SHUTDOWN, struct.pack("I", flag))

    def power_on(self) -> None:
        """Mount again, replaying the journal, when all users of the old mount have ended.

        A process of anybody that got mounts of its own meanwhile has a copy of the old mount. While
        it lives, a new mount shows the same dead disk. HarnessFailure when the disk stays dead: the
        product is not to blame for that.
        """
        until = time.monotonic() + UNMOUNT_SECONDS_MAX
        while problem := self._mount_again():
            if time.monotonic() > until:
                self._must(problem)
            time.sleep(AGAIN_SECONDS)

    def _mount_again(self) -> str:
        """Try it once; return what is wrong, else nothing."""
        if problem := _run("umount", str(self.mount)):
            return problem
        self._attach()
        try:
            self._try_out()
        except OSError as error:
            return f"mounted again, but dead: {error}; does a process keep the old mount?"
        return ""

    def fill(self) -> None:
        """Fill the disk but for a few KiB."""
        free = os.statvfs(self.mount)
        size = free.f_bavail * free.f_frsize - LEFT_WHEN_FULL_BYTES
        with self._ballast.open("ab") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, size))

    def give_back(self) -> None:
        """Undo `fill` durably: a power cut must not bring the file back."""
        self._ballast.unlink(missing_ok=True)
        with self._folder() as folder:
            os.fsync(folder)

    def _try_out(self) -> None:
        """Write, sync, read and remove a small file; OSError when that does not work."""
        path, wanted = self.mount / "power-on", os.urandom(512)
        with path.open("w+b") as file:
            file.write(wanted)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            if file.read() != wanted:
                raise OSError(errno.EIO, "what was written is not what is read")
        path.unlink()

    def _must(self, problem: str) -> None:
        if problem:
            raise HarnessFailure(f"disk {self.image}: {problem}")

    @contextlib.contextmanager
    def _folder(self) -> Generator[int]:
        folder = os.open(self.mount, os.O_RDONLY)
        try:
            yield folder
        finally:
            os.close(folder)

    @property
    def _ballast(self) -> Path:
        return self.mount / "ballast"

    def _attach(self) -> None:
        self._must(_run("mount", "-o", "loop", str(self.image), str(self.mount)))


class LoopDisks:
    """One for each member's data folder. Implements `surface.Disks`.

    A cancelled caller leaves its thread at work. `detach` waits for such threads, so that none
    mounts a disk afterwards.
    """

    def __init__(self, folder: Path, nodes: Sequence[str], processes: Processes) -> None:
        self._processes = processes
        self._disks = {
            node: LoopDisk(folder / f"{node}.img", folder / node / "data", MEMBER_DISK_BYTES)
            for node in nodes
        }
        self._threads = Threads()

    async def attach(self) -> None:
        """Make and mount all."""
        for disk in self._disks.values():
            await self._threads.do(disk.__enter__)

    async def detach(self) -> None:
        """Unmount all and keep the images, which hold the data of the ended members."""
        await self._threads.over()
        for disk in self._disks.values():
            await asyncio.to_thread(disk.detach)

    async def fill(self, node: str) -> None:
        await self._threads.do(self._disks[node].fill)

    async def give_back(self, node: str) -> None:
        await self._threads.do(self._disks[node].give_back)

    async def cut_power(self, node: str) -> None:
        # No client may hear of an fdatasync that runs during the cut (LoopDisk.cut_power). So the
        # member is stopped first: each fdatasync that it acknowledged returned before the cut.
        await self._processes.pause(node)
        await self._threads.do(self._disks[node].cut_power, DROP_JOURNAL)
        await self._processes.kill(node)

    async def power_on(self, node: str) -> None:
        # A cut that was broken off may have left the member stopped on the old mount, and a thread
        # at work.
        await self._threads.over()
        await self._processes.kill(node)
        await self._threads.do(self._disks[node].power_on)
