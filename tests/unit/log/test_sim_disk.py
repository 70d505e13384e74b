"""The simulated disk itself: what it promises, what it takes back, and that seeds repeat."""

import errno
from random import Random

import pytest

from tests.sim.disk.disk import FREED_AFTER_CALLS, DeadHandle, SimFileSystem
from tests.sim.disk.inode import SECTOR_SIZE


@pytest.fixture
def fs() -> SimFileSystem:
    system = SimFileSystem(Random(1))
    system.make_folder("/d")
    system.sync_folder("/")
    return system


def outcomes(build: object, seeds: int = 300) -> set[object]:
    assert callable(build)
    return {build(Random(seed)) for seed in range(seeds)}


def test_synced_bytes_and_names_survive_every_cut(fs: SimFileSystem) -> None:
    file = fs.open("/d/a", create=True)
    file.pwritev([b"one", memoryview(b"two")], 5)
    file.fdatasync()
    fs.sync_folder("/d")
    for seed in range(50):
        fs.power_cut(Random(seed))
        assert fs.content("/d/a") == bytes(5) + b"onetwo"


def test_unsynced_bytes_survive_by_sectors_in_any_combination() -> None:
    def cut(random: Random) -> object:
        fs = SimFileSystem(Random(1))
        fs.make_folder("/d")
        fs.sync_folder("/")
        file = fs.open("/d/a", create=True)
        file.allocate(0, 3 * SECTOR_SIZE)
        file.fdatasync()
        fs.sync_folder("/d")
        file.pwritev([b"x" * 3 * SECTOR_SIZE], 0)
        fs.power_cut(random)
        return fs.content("/d/a")[::SECTOR_SIZE]

    assert outcomes(cut) == {
        bytes(a + b + c) for a in ([0], [120]) for b in ([0], [120]) for c in ([0], [120])
    }


def test_truncations_and_allocations_may_be_lost() -> None:
    def cut(random: Random) -> object:
        fs = SimFileSystem(Random(1))
        fs.make_folder("/d")
        fs.sync_folder("/")
        file = fs.open("/d/a", create=True)
        file.pwritev([b"12345678"], 0)
        file.fdatasync()
        fs.sync_folder("/d")
        file.truncate(2)
        file.allocate(0, 4)
        fs.power_cut(random)
        return fs.content("/d/a")

    assert outcomes(cut) == {b"12345678", b"12", b"12\0\0"}


def test_names_may_be_lost_in_any_combination() -> None:
    def cut(random: Random) -> object:
        fs = SimFileSystem(Random(1))
        fs.make_folder("/d")
        fs.open("/d/old", create=True)
        fs.sync_folder("/d")
        fs.sync_folder("/")
        new = fs.open("/d/new", create=True)
        new.pwritev([b"x"], 0)
        new.fdatasync()
        fs.rename("/d/new", "/d/old")
        fs.open("/d/other", create=True)
        fs.power_cut(random)
        return tuple((name, fs.content(f"/d/{name}")) for name in fs.names("/d"))

    found = outcomes(cut)
    assert (("old", b"x"), ("other", b"")) in found
    assert (("old", b""),) in found
    assert (("new", b"x"), ("old", b"")) in found
    assert (("old", b""), ("other", b"")) in found


def test_a_folder_whose_name_was_not_synced_may_vanish_with_all_in_it() -> None:
    def cut(random: Random) -> object:
        fs = SimFileSystem(Random(1))
        fs.make_folder("/d/e")
        fs.open("/d/e/a", create=True).fdatasync()
        fs.sync_folder("/d/e")
        fs.power_cut(random)
        return fs.exists("/d/e/a")

    assert outcomes(cut) == {True, False}


def test_a_kill_keeps_what_was_written_and_kills_handles_and_locks(fs: SimFileSystem) -> None:
    file = fs.open("/d/a", create=True)
    file.pwritev([b"x"], 0)
    lock = fs.lock("/d/LOCK")
    with pytest.raises(BlockingIOError):
        fs.lock("/d/LOCK")
    fs.kill()
    assert fs.content("/d/a") == b"x"
    assert lock is not None
    assert fs.lock("/d/LOCK") is not lock
    with pytest.raises(DeadHandle):
        file.pread(1, 0)


def test_a_lock_ends_when_it_is_dropped(fs: SimFileSystem) -> None:
    lock = fs.lock("/d/LOCK")
    assert lock is not None
    lock = None
    assert fs.lock("/d/LOCK") is not None


def test_a_failed_sync_loses_pages_that_a_later_start_still_sees(fs: SimFileSystem) -> None:
    lost = 0
    for seed in range(40):
        fs = SimFileSystem(Random(seed))
        fs.make_folder("/d")
        fs.sync_folder("/")
        file = fs.open("/d/a", create=True)
        fs.sync_folder("/d")
        file.pwritev([b"x" * SECTOR_SIZE], 0)
        fs.failing["sync"] = errno.EIO
        with pytest.raises(OSError, match="simulated sync"):
            file.fdatasync()
        fs.failing.clear()
        with pytest.raises(AssertionError, match="repeated"):
            file.fdatasync()
        fs.kill()
        again = fs.open("/d/a")
        assert again.pread(1, 0) == b"x"
        again.fdatasync()
        fs.power_cut(Random(seed))
        lost += fs.content("/d/a") == b""
    assert lost > 5


def test_the_budget_counts_blocks_and_frees_them() -> None:
    fs = SimFileSystem(Random(1), budget_bytes=10_000)
    file = fs.open("/a", create=True)
    file.allocate(0, 4000)
    assert (fs.used_bytes(), fs.free_bytes("/")) == (4096, 5904)
    file.pwritev([b"x"], 4095)
    with pytest.raises(OSError, match="no space") as caught:
        file.allocate(0, 8193)
    assert caught.value.errno == errno.ENOSPC
    file.allocate(0, 8192)
    file.truncate(1)
    assert fs.used_bytes() == 4096
    fs.unlink("/a")
    assert fs.used_bytes() == 4096
    for _ in range(FREED_AFTER_CALLS - 1):
        assert fs.is_freeing
    assert not fs.is_freeing
    assert fs.used_bytes() == 0


def test_damage_is_on_the_disk_and_in_the_cache(fs: SimFileSystem) -> None:
    file = fs.open("/d/a", create=True)
    file.pwritev([bytes(2 * SECTOR_SIZE)], 0)
    file.fdatasync()
    fs.sync_folder("/d")
    fs.flip("/d/a", 3, 0x81)
    assert file.pread(5, 0) == b"\0\0\0\x81\0"
    fs.break_sector("/d/a", 1)
    assert len(file.pread(SECTOR_SIZE, 0)) == SECTOR_SIZE
    with pytest.raises(OSError, match="damaged sector"):
        file.pread(SECTOR_SIZE, 1)
    file.pwritev([b"n" * SECTOR_SIZE], SECTOR_SIZE)
    assert file.pread(1, SECTOR_SIZE) == b"n"
    file.fdatasync()
    fs.power_cut(Random(1))
    assert fs.content("/d/a")[3] == 0x81


def test_wipe_and_move_are_durable(fs: SimFileSystem) -> None:
    fs.make_folder("/d/e")
    fs.open("/d/e/a", create=True)
    fs.move("/d/e", "/d/f")
    fs.power_cut(Random(1))
    assert fs.names("/d") == ["f"]
    fs.wipe("/d/f")
    fs.power_cut(Random(1))
    assert fs.names("/d") == []


def test_equal_seeds_give_equal_disks() -> None:
    def cut(seed: int) -> bytes:
        fs = SimFileSystem(Random(1))
        fs.make_folder("/d")
        fs.sync_folder("/")
        file = fs.open("/d/a", create=True)
        fs.sync_folder("/d")
        for i in range(20):
            file.pwritev([Random(i).randbytes(1500)], i * 1000)
        fs.power_cut(Random(seed))
        return fs.content("/d/a")

    assert cut(3) == cut(3)
    assert len({cut(seed) for seed in range(20)}) > 10
