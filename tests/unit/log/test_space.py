"""A full disk and a failing one: refusal, the reserve, recovery of room, and the end."""

import errno
from dataclasses import replace
from random import Random

import pytest

from dledger.log.errors import LogFailed
from dledger.log.hard_state import HardState
from dledger.types import DiskRoom, EntryKind, LogIndex, Term
from tests.sim.disk.disk import BLOCK_SIZE, SimFileSystem
from tests.unit.log.support import SMALL, Member, check_holds

PATH = "/disk/data"


def ballast(fs: SimFileSystem, size: int) -> None:
    """Fill the disk with a file of someone else; 0 gives the room back."""
    file = fs.open("/disk/ballast", create=True)
    file.truncate(0)
    if size:
        file.allocate(0, size)


def free(fs: SimFileSystem) -> int:
    return fs.free_bytes(PATH) // BLOCK_SIZE * BLOCK_SIZE


@pytest.fixture
def small_disk() -> tuple[SimFileSystem, Member]:
    fs = SimFileSystem(Random(1), budget_bytes=1 << 20)
    member = Member(fs, PATH)
    return fs, member


def test_a_disk_with_room_is_not_low(small_disk: tuple[SimFileSystem, Member]) -> None:
    fs, member = small_disk
    assert not member.log.space.low
    assert fs.size_of(f"{PATH}/reserve") == SMALL.reserve_bytes


def test_below_the_mark_the_log_says_so_and_recovers_by_itself(
    small_disk: tuple[SimFileSystem, Member],
) -> None:
    fs, member = small_disk
    entries = [member.genesis()]
    member.sync()
    ballast(fs, free(fs) - SMALL.low_water_bytes + BLOCK_SIZE)
    assert member.log.space.check() is DiskRoom.LOW
    # What is admitted all the same is still written, and everything is read.
    for _ in range(4):
        entries.append(member.append(b"x" * 1000))
        member.sync()
    check_holds(member.log, entries)
    ballast(fs, 0)
    assert member.log.space.check() is DiskRoom.ENOUGH
    check_holds(member.log, entries)


def test_nothing_is_allocated_ahead_of_the_mark() -> None:
    """Else one allocation would go from ENOUGH to FULL, and no trim would ever be accepted."""
    fs = SimFileSystem(Random(1), budget_bytes=1 << 20)
    ahead = 64 << 10
    settings = replace(SMALL, segment_size=1 << 20, allocate_bytes=ahead, low_water_bytes=ahead)
    member = Member(fs, PATH, settings=settings)
    entries = [member.genesis()]
    member.sync()
    ballast(fs, free(fs) - settings.low_water_bytes - ahead // 4 - BLOCK_SIZE)
    assert member.log.space.check() is DiskRoom.ENOUGH
    rooms: list[DiskRoom] = []
    while DiskRoom.FULL not in rooms:
        entries.append(member.append(b"x" * 1000))
        member.sync()
        rooms.append(member.log.space.check())
    assert DiskRoom.LOW in rooms
    check_holds(member.log, entries)


@pytest.mark.parametrize(("left_kib", "ahead"), [(200, True), (152, False)])
def test_a_step_is_allocated_ahead_but_not_by_a_disk_that_was_low(
    left_kib: int, ahead: bool
) -> None:
    """A low disk counts as low until a quarter more than the mark is free."""
    fs = SimFileSystem(Random(1), budget_bytes=1 << 20)
    step, mark = 16 << 10, 128 << 10
    settings = replace(SMALL, segment_size=1 << 20, allocate_bytes=step, low_water_bytes=mark)
    member = Member(fs, PATH, settings=settings)
    member.genesis()
    member.sync()
    ballast(fs, free(fs) - mark + step)
    assert member.log.space.check() is DiskRoom.LOW
    ballast(fs, 0)
    ballast(fs, free(fs) - (left_kib << 10))
    member.log.space.check()
    before = fs.free_bytes(PATH)
    member.append(b"x" * step)  # past what is allocated
    member.sync()
    assert (before - fs.free_bytes(PATH) >= step) is ahead


def test_between_the_marks_there_is_room_for_what_frees_space(
    small_disk: tuple[SimFileSystem, Member],
) -> None:
    fs, member = small_disk
    member.genesis()
    member.sync()
    space, mark = member.log.space, SMALL.low_water_bytes
    seen: list[DiskRoom] = []
    around = (mark - 1, mark // 2, mark // 2 - 1, mark // 2, mark // 8 * 5, mark, mark // 4 * 5)
    for left in (mark, *around):
        fs.budget_bytes = fs.used_bytes() + left
        seen.append(space.check())
    enough, low, full = DiskRoom
    # Leaving a state needs a quarter more space than entering it, so nothing flaps.
    assert seen == [enough, low, low, full, full, low, low, enough]


def test_on_a_full_disk_the_reserve_takes_what_was_admitted(
    small_disk: tuple[SimFileSystem, Member],
) -> None:
    fs, member = small_disk
    entries = [member.genesis()]
    member.sync()
    ballast(fs, free(fs))
    assert free(fs) == 0
    for term in range(2, 5):
        entries.append(member.append(b"x" * 1000, term=term))
        member.sync(HardState(Term(term), "m1"))
        assert member.log.space.room is DiskRoom.FULL
    assert fs.size_of(f"{PATH}/reserve") < SMALL.reserve_bytes
    check_holds(member.log, entries)
    member.reopen(close=True)
    check_holds(member.log, entries)
    assert member.log.space.room is DiskRoom.FULL
    assert member.folder.load_hard_state() == HardState(Term(4), "m1")
    ballast(fs, 0)
    assert member.log.space.check() is DiskRoom.ENOUGH
    assert fs.size_of(f"{PATH}/reserve") == SMALL.reserve_bytes
    entries.append(member.append(b"room again" * 300, term=9))
    member.sync()
    check_holds(member.log, entries)


def test_past_the_reserve_the_log_fails_and_what_was_promised_stays(
    small_disk: tuple[SimFileSystem, Member],
) -> None:
    fs, member = small_disk
    entries = [member.genesis(), member.append(b"kept" * 100)]
    member.sync()
    ballast(fs, free(fs))

    def fill() -> None:
        for _ in range(100):
            member.append(b"x" * 3000)
            member.sync()
            entries.append(entries[0])

    with pytest.raises(OSError, match="no space left") as caught:
        fill()
    assert caught.value.errno == errno.ENOSPC
    assert member.log._disk.failure is not None
    with pytest.raises(LogFailed):
        member.append(b"x")
    durable = member.log.durable_index
    assert durable == len(entries)
    member.reopen(close=True)
    assert member.log.last_index >= durable
    assert member.log.space.room is DiskRoom.FULL
    ballast(fs, 0)
    assert member.log.space.check() is DiskRoom.ENOUGH
    member.append(b"x" * 3000)
    member.sync()
    assert member.log.durable_index == member.log.last_index


def test_a_disk_too_small_for_the_reserve_starts_full_and_serves_reads() -> None:
    fs = SimFileSystem(Random(1), budget_bytes=60_000)
    member = Member(fs, PATH)
    entries = [member.genesis(), member.append(b"x" * 500)]
    member.sync()
    member.close()
    fs.unlink(f"{PATH}/reserve")
    ballast(fs, free(fs) - BLOCK_SIZE)
    member = Member(fs, PATH)
    assert member.log.space.room is DiskRoom.FULL
    check_holds(member.log, entries)


@pytest.mark.parametrize("call", ["write", "sync", "allocate", "sync_folder", "rename", "create"])
def test_an_error_of_the_disk_ends_every_promise(call: str) -> None:
    fs = SimFileSystem(Random(1))
    member = Member(fs, PATH)
    entries = [member.genesis(), member.append(b"kept" * 100)]
    member.sync()
    fs.failing[call] = errno.EIO
    entries.append(member.append(b"lost" * 1500))
    taken = member.log.take_round(HardState(Term(4), "m1"))
    assert taken is not None
    with pytest.raises(OSError, match="simulated"):
        taken.execute()
    fs.failing.clear()
    log = member.log
    assert log._disk.failure is not None
    calls = [
        lambda: log.append_new(EntryKind.NO_OP, [], Term(1), log.last_time_ms),
        lambda: log.append_frames(b"", []),
        lambda: log.truncate_from(LogIndex(2)),
        lambda: log.trim_head(log.first_position, LogIndex(1)),
        lambda: log.take_round(None),
        lambda: log.round_finished(taken),
        taken.execute,
    ]
    for later in calls:
        with pytest.raises(LogFailed, match="an earlier write or sync failed"):
            later()
    assert log.durable_index == 2
    check_holds(log, entries)
    log.close()
    member.folder.close()
    fs.power_cut(Random(3))
    member.reopen(close=False)
    assert 2 <= member.log.last_index <= 3
    check_holds(member.log, entries[: member.log.last_index])


def test_no_sync_is_repeated_after_it_failed() -> None:
    # The simulated file asserts it: fdatasync after a failure is an AssertionError.
    fs = SimFileSystem(Random(1))
    member = Member(fs, PATH)
    member.genesis()
    member.sync()
    fs.failing["sync"] = errno.EIO
    member.append(b"x")
    taken = member.take()
    with pytest.raises(OSError, match="simulated sync"):
        taken.execute()
    fs.failing.clear()
    member.log.close()
