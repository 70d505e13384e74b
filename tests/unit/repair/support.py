"""A damaged log and a sound one of the same entries, and the steps of a repair without a broker."""

from collections.abc import Iterator
from random import Random

from dledger.files import FileSystem
from dledger.repair.mend import fitting, mend_alone, mend_entries
from dledger.repair.scan import Damage, Kind, scan
from dledger.types import LogIndex
from tests.sim.disk.disk import SimFileSystem
from tests.unit.log.support import Disk, Member, Model, filled, frames_of, replicate

PATH = "/disk/data"
COUNT = 40


def pair(disk: Disk | None = None, count: int = COUNT) -> tuple[Member, Member, Model]:
    """Return a member whose disk will be damaged, a peer that has the same entries, and these."""
    member, model = filled(disk or (SimFileSystem(Random(1)), PATH), count)
    peer = Member(SimFileSystem(Random(2)), PATH, seed=9)
    replicate(member.log, peer.log)
    member.sync()
    peer.sync()
    return member, peer, model


def log_files(member: Member) -> list[str]:
    """Return the paths of all files in the folder of the log."""
    folder = member.folder.log_path
    return [f"{folder}/{name}" for name in member.fs.names(folder)]


def content(fs: FileSystem, path: str) -> bytes:
    file = fs.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def flip(fs: FileSystem, path: str, offset: int, mask: int = 1) -> None:
    """Damage a byte, durably."""
    file = fs.open(path)
    try:
        file.pwritev([bytes([file.pread(1, offset)[0] ^ mask])], offset)
        file.fdatasync()
    finally:
        file.close()


def damages(member: Member, committed: int | None = None) -> list[Damage]:
    """Scan everything."""
    last = member.log.last_index if committed is None else LogIndex(committed)
    found: list[Damage] = []
    for part in member.log.parts(last):
        found += [piece for piece in scan(member.fs, part) if isinstance(piece, Damage)]
    return found


def mend(member: Member, peer: Member, damage: Damage) -> None:
    """Do what the broker does for a damage."""
    if damage.kind is Kind.ENTRIES:
        frames = frames_of(peer.log, damage.first, damage.last)
        mend_entries(member.fs, damage, fitting(damage, frames))
    elif damage.kind is not Kind.INDEX:
        mend_alone(member.fs, damage)
    elif damage.content:
        member.log.store_index(damage.part.base, damage.content)
        member.sync()


def mend_all(member: Member, peer: Member) -> int:
    """Scan and mend until nothing is found; return how much was mended."""
    count = 0
    for _ in range(3):
        found = damages(member)
        if not found:
            return count
        for damage in found:
            mend(member, peer, damage)
        count += len(found)
    raise AssertionError(f"still damaged: {[damage.describe() for damage in damages(member)]}")


def meaningful(member: Member) -> Iterator[tuple[str, int]]:
    """Yield (path, size) of what was written: not the space that is allocated ahead."""
    ends = {part.path: 128 + part.end - part.base for part in member.log.parts(LogIndex(1 << 40))}
    for path in log_files(member):
        yield path, ends.get(path, len(content(member.fs, path)))
