"""Power cuts of a real ext4 file system (a loop device that is shut down under the writer).

Flag 2 loses everything unsynced, flag 1 keeps metadata and loses data: a file with its new length
full of zeros, a renamed file empty. A child process writes, cuts and rolls, and says after each
round what is durable; that must be there afterwards.
"""

import fcntl
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from dledger.files import OsFileSystem
from dledger.types import LogIndex
from tests.unit.log.support import SMALL, Member

EXT4_IOC_SHUTDOWN = 0x8004587D
ROUNDS_BEFORE_CUT = 60

WRITER = """
import sys
from random import Random
from dledger.files import OsFileSystem
from dledger.log import HardState
from dledger.types import LogIndex, Term
from tests.unit.log.support import SMALL, Member

random = Random(int(sys.argv[2]))
member = Member(OsFileSystem(), sys.argv[1], SMALL)
log = member.log
if log.is_empty:
    member.genesis()
term = log.last_term + 1
kept = log.last_index
while True:
    for _ in range(random.randrange(1, 5)):
        member.append(random.randbytes(random.randrange(3000)), term=term)
    if random.random() < 0.2 and log.last_index > kept + 1:
        log.truncate_from(LogIndex(random.randrange(kept + 1, log.last_index + 1)))
        term += 1
    member.sync(HardState(Term(term), "m1"))
    kept = random.randrange(kept, log.durable_index + 1)
    ref = log.ref(LogIndex(kept)) if kept else None
    print(kept, ref.crc if ref else 0, term, flush=True)
"""

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts a loop device"),
    pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="needs mkfs.ext4"),
]


class LoopDisk:
    """An ext4 file system in a file."""

    def __init__(self, folder: Path) -> None:
        self.image = folder / "image"
        self.mounted_at = folder / "mounted"
        self.mounted_at.mkdir()
        with self.image.open("wb") as file:
            file.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", self.image], check=True)

    def mount(self) -> bool:
        command = ["mount", "-o", "loop", str(self.image), str(self.mounted_at)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def cut_power(self, flag: int) -> None:
        fd = os.open(self.mounted_at, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(fd)

    def unmount(self) -> None:
        subprocess.run(["umount", self.mounted_at], check=False, capture_output=True)


@pytest.fixture
def loop_disk(tmp_path: Path) -> Iterator[LoopDisk]:
    disk = LoopDisk(tmp_path)
    if not disk.mount():
        pytest.skip("loop devices cannot be mounted here")
    yield disk
    disk.unmount()


def write_until_cut(disk: LoopDisk, path: str, flag: int, seed: int) -> tuple[int, int, int]:
    """Return the last promise of a writer under whom the power was cut: index, crc, term."""
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, path, str(seed)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'proto'}"},
    ) as writer:  # fmt: skip
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(ROUNDS_BEFORE_CUT + seed % 7)]
        disk.cut_power(flag)
        rest, errors = writer.communicate()
    said += [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    assert all(said), errors
    assert "OSError" in errors
    index, crc, term = map(int, said[-1].split())
    return index, crc, term


@pytest.mark.parametrize("flag", [1, 2])
def test_what_a_finished_round_promised_survives(loop_disk: LoopDisk, flag: int) -> None:
    path = f"{loop_disk.mounted_at}/data"
    for seed in range(4):
        index, crc, term = write_until_cut(loop_disk, path, flag, seed)
        loop_disk.unmount()
        assert loop_disk.mount()
        member = Member(OsFileSystem(), path, SMALL, seed=Random(seed).randrange(100))
        assert member.log.last_index >= index
        if index:
            assert member.log.ref(LogIndex(index)).crc == crc
        assert member.folder.load_hard_state().term >= term
        last = member.log.last_index
        assert member.log.entries(LogIndex(last), last, 1)
        member.close()
