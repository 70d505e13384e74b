"""Bits that flip, files that vanish: refused or found on reading, never a silent loss."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from crc32c import crc32c

from dledger.log.atomic_file import frame
from dledger.log.errors import (
    REFILL,
    DamagedFile,
    DamagedHardState,
    DamagedIdentity,
    DamagedLog,
    NewerFormat,
)
from dledger.log.hard_state import HardState
from dledger.log.reading.file_pool import FilePool
from dledger.log.recovery.recover import examine
from dledger.log.settings import LogSettings
from dledger.types import LogIndex, Position, Span, Term
from dledger_proto.entry import ENTRY_HEADER_SIZE, ENTRY_HEADER_SIZE_MAX, SEGMENT_HEADER_SIZE
from tests.sim.disk.disk import SimFileSystem
from tests.sim.disk.inode import SECTOR_SIZE
from tests.unit.log.support import SMALL, Member, Written, check_holds, open_folder

PATH = "/disk/data"
LATE = replace(SMALL, checkpoint_bytes=1 << 30)
"""Checkpoints only when a segment is sealed."""
NEVER = replace(LATE, segment_size=1 << 30)


def written(fs: SimFileSystem, *, settings: LogSettings = SMALL, close: bool) -> list[Written]:
    """Write 24 entries in 12 rounds, then end cleanly or as by a kill."""
    member = Member(fs, PATH, settings)
    random = Random(2)
    entries = [member.genesis()]
    member.sync(HardState(Term(1), "m1"))
    for _ in range(12):
        for _ in range(2):
            body = random.randbytes(random.randrange(20, 700))
            entries.append(member.append(body))
        member.sync()
    if close:
        member.close()
    fs.kill()
    return entries


def files(fs: SimFileSystem, suffix: str) -> list[str]:
    folder = f"{PATH}/log"
    return [f"{folder}/{name}" for name in fs.names(folder) if name.endswith(suffix)]


def fresh(settings: LogSettings = SMALL, *, close: bool) -> tuple[SimFileSystem, list[Written]]:
    fs = SimFileSystem(Random(1))
    return fs, written(fs, settings=settings, close=close)


def damage_of(action: Callable[[], object]) -> DamagedLog | None:
    try:
        action()
    except DamagedLog as damaged:
        check_text(damaged)
        return damaged
    return None


def check_text(damaged: DamagedFile) -> None:
    """What the user reads names the file, is a sentence, and says what to do."""
    said = damaged.detail
    assert said.startswith(f"{damaged.file}: ")
    assert f". {REFILL}." in said
    if isinstance(damaged, DamagedLog):
        assert said.endswith(f". [{damaged.row}]")
        if not damaged.file.endswith("checkpoint"):
            assert f": at position {damaged.position} " in said


def read_all(fs: SimFileSystem, entries: list[Written], settings: LogSettings = SMALL) -> None:
    member = Member(fs, PATH, settings)
    check_holds(member.log, entries)


@pytest.mark.parametrize("settings", [SMALL, LATE, NEVER], ids=["small", "late", "one segment"])
def test_no_flipped_bit_of_a_cleanly_closed_log_loses_an_entry(settings: LogSettings) -> None:
    fs, entries = fresh(settings, close=True)
    read_all(fs, entries, settings)
    fs.kill()
    refused = unnoticed = 0
    for path in files(fs, ".log"):
        for offset in range(0, fs.size_of(path), 7):
            if offset >= fs.size_of(path):
                break
            fs.flip(path, offset, 1 << offset % 8)
            damaged = damage_of(lambda: read_all(fs, entries, settings))
            unnoticed += damaged is None
            if damaged is not None:
                assert damaged.file == path
                assert damaged.position >= int(path[-24:-4])
                refused += 1
            fs.kill()
            if offset < fs.size_of(path):  # what lies behind the end is cut
                fs.flip(path, offset, 1 << offset % 8)
    read_all(fs, entries, settings)
    assert refused > 10 * unnoticed, "only stamps and space behind the end may flip unnoticed"


def test_a_flipped_bit_after_a_kill_is_refused_or_cuts_what_no_stamp_proves() -> None:
    fs, entries = fresh(NEVER, close=False)
    (path,) = files(fs, ".log")
    last_round = SEGMENT_HEADER_SIZE + entries[-2].ref.position
    end = SEGMENT_HEADER_SIZE + entries[-1].ref.position + entries[-1].ref.size
    for offset in range(0, end, 3):
        copy = SimFileSystem(Random(1))
        written(copy, settings=NEVER, close=False)
        copy.flip(path, offset)
        damaged = damage_of(partial(Member, copy, PATH, NEVER))
        if damaged is not None:
            assert damaged.file == path
            assert offset < last_round
            assert damaged.row in ("S10", "T1")
            assert damaged.position <= max(0, offset - SEGMENT_HEADER_SIZE)
        else:
            copy.kill()
            member = Member(copy, PATH, NEVER)
            assert offset >= last_round, "what a later stamp proves synced is never cut"
            kept = member.log.last_index
            assert kept in (len(entries) - 2, len(entries) - 1)
            check_holds(member.log, entries[:kept])
            assert copy.size_of(path) < end or kept == len(entries) - 1
            member.append(b"on it goes")
            member.sync()


def test_damage_is_found_on_reading_even_when_the_start_reads_nothing() -> None:
    fs, entries = fresh(close=True)
    wanted = entries[3]
    path = files(fs, ".log")[0]
    fs.flip(path, SEGMENT_HEADER_SIZE + wanted.ref.position + wanted.ref.size - 1)
    member = Member(fs, PATH)
    assert member.log.last_index == len(entries)
    check = member.log.entries(LogIndex(1), LogIndex(3), 1 << 20)
    assert [entry.ref for entry in check] == [entry.ref for entry in entries[:3]]
    with pytest.raises(DamagedLog, match=r"crc.*READ") as caught:
        member.log.entries(LogIndex(4), LogIndex(9), 1 << 20)
    assert (caught.value.file, caught.value.position) == (path, wanted.ref.position)


def test_what_precedes_damage_in_one_read_is_served() -> None:
    fs, entries = fresh(close=True)
    wanted = entries[3]
    fs.flip(files(fs, ".log")[0], SEGMENT_HEADER_SIZE + wanted.ref.position + 90)
    member = Member(fs, PATH)
    found = member.log.entries(LogIndex(1), LogIndex(9), 1 << 20)
    assert [entry.ref for entry in found] == [entry.ref for entry in entries[:3]]


def test_a_bad_sector_is_an_error_of_the_disk_not_of_the_log() -> None:
    fs, entries = fresh(close=True)
    path = files(fs, ".log")[0]
    fs.break_sector(path, 3)
    member = Member(fs, PATH)
    with pytest.raises(OSError, match="damaged sector"):
        member.log.read_span(Span(Position(0), 3 * SECTOR_SIZE))
    assert member.log.last_index == len(entries)


@pytest.mark.parametrize(
    ("name", "error"),
    [("hard_state", DamagedHardState), ("identity", DamagedIdentity), ("checkpoint", DamagedLog)],
)
@pytest.mark.parametrize("how", ["flipped", "missing", "cut short", "empty"])
def test_a_damaged_small_file_is_refused_by_name(
    name: str, error: type[DamagedFile], how: str
) -> None:
    path = f"{PATH}/{name}"
    fs, _ = fresh(close=True)
    size = fs.size_of(path)
    for offset in range(size) if how == "flipped" else [0]:
        if how == "flipped":
            fs.flip(path, offset)
        elif how == "missing":
            fs.wipe(path)
        else:
            fs.open(path).truncate(0 if how == "empty" else size - 1)
        with pytest.raises(error) as caught:
            Member(fs, PATH)
        assert caught.value.file == path
        check_text(caught.value)
        fs.kill()
        if how == "flipped":
            fs.flip(path, offset)


@pytest.mark.parametrize("name", ["hard_state", "identity", "checkpoint"])
def test_a_small_file_of_a_later_version_is_not_called_damaged(name: str) -> None:
    fs, _ = fresh(close=True)
    path = f"{PATH}/{name}"
    content = fs.content(path)
    newer = frame(content[:4], 2, content[16:])
    fs.open(path).pwritev([newer], 0)
    with pytest.raises(NewerFormat, match=f"{path}: format version 2, this dledger knows 1"):
        Member(fs, PATH)


def as_newer(fs: SimFileSystem, path: str, at: int) -> None:
    """Let the entry at an offset of a file be of version 2."""
    header = bytearray(fs.content(path)[at : at + ENTRY_HEADER_SIZE_MAX])
    header[14] = 2
    size = int.from_bytes(header[12:14], "little")
    crc = crc32c(bytes(header[ENTRY_HEADER_SIZE:size]), crc32c(bytes(header[8:56])))
    header[4:8] = crc.to_bytes(4, "little")
    fs.open(path).pwritev([bytes(header)], at)


def test_a_tail_of_a_later_version_is_not_cut() -> None:
    """It may have been acknowledged by the dledger that wrote it."""
    fs, entries = fresh(NEVER, close=False)
    (path,) = files(fs, ".log")
    for entry in entries[:-4:-1]:  # the last is torn by nothing, those before are proven synced
        as_newer(fs, path, SEGMENT_HEADER_SIZE + entry.ref.position)
        before = fs.content(path)
        with pytest.raises(NewerFormat, match=r"entry version 2, this dledger knows 1; start the"):
            Member(fs, PATH, NEVER)
        assert fs.content(path) == before
        fs.kill()


def test_a_later_version_behind_a_torn_entry_is_not_cut() -> None:
    fs, entries = fresh(NEVER, close=False)
    (path,) = files(fs, ".log")
    torn, last = entries[-2:]
    fs.flip(path, SEGMENT_HEADER_SIZE + torn.ref.position + 20)
    as_newer(fs, path, SEGMENT_HEADER_SIZE + last.ref.position)
    with pytest.raises(NewerFormat, match="entry version 2"):
        Member(fs, PATH, NEVER)


def test_an_entry_of_a_later_version_that_no_start_reads_is_not_called_damaged() -> None:
    fs, entries = fresh(close=True)
    path = files(fs, ".log")[0]
    as_newer(fs, path, SEGMENT_HEADER_SIZE + entries[3].ref.position)
    member = Member(fs, PATH)
    with pytest.raises(NewerFormat, match=f"{path}: at position .* entry version 2"):
        member.log.entries(LogIndex(4), LogIndex(9), 1 << 20)


@pytest.mark.parametrize("place", [0, -1])
def test_a_segment_of_a_later_version_is_not_called_damaged(place: int) -> None:
    fs, _ = fresh(close=True)
    path = files(fs, ".log")[place]
    header = bytearray(fs.content(path)[:SEGMENT_HEADER_SIZE])
    header[8] = 2
    header[4:8] = crc32c(bytes(header[8:])).to_bytes(4, "little")
    fs.open(path).pwritev([bytes(header)], 0)
    with pytest.raises(NewerFormat, match=f"{path}: segment version 2, this dledger knows 1"):
        Member(fs, PATH)


def test_an_index_of_another_life_of_the_segment_is_not_believed() -> None:
    fs, entries = fresh(close=True)
    indexes = files(fs, ".idx")
    first, second = (fs.content(path) for path in indexes[:2])
    fs.open(indexes[0]).pwritev([second], 0)
    fs.open(indexes[0]).truncate(len(second))
    read_all(fs, entries)
    fs.kill()
    member = Member(fs, PATH)
    member.log.ref(LogIndex(2))
    member.sync()
    assert fs.content(indexes[0]) == first


@pytest.mark.parametrize("flipped", [False, True])
def test_every_flip_of_an_index_only_costs_a_scan(*, flipped: bool) -> None:
    fs, entries = fresh(close=True)
    path = files(fs, ".idx")[0]
    for offset in range(0, fs.size_of(path), 5 if flipped else 1000):
        fs.flip(path, offset)
        read_all(fs, entries)
        fs.kill()
        fs.flip(path, offset)


def _first(fs: SimFileSystem) -> str:
    fs.wipe(files(fs, ".log")[0])
    return "S6"


def _middle(fs: SimFileSystem) -> str:
    fs.wipe(files(fs, ".log")[2])
    return "S6"


def _last(fs: SimFileSystem) -> str:
    fs.wipe(files(fs, ".log")[-1])
    return "S6"


def _all(fs: SimFileSystem) -> str:
    for path in files(fs, ".log"):
        fs.wipe(path)
    return "F5"


def _short(fs: SimFileSystem) -> str:
    path = files(fs, ".log")[1]
    fs.open(path).truncate(fs.size_of(path) - 1)
    return "T1"


def _short_last(fs: SimFileSystem) -> str:
    fs.open(files(fs, ".log")[-1]).truncate(SEGMENT_HEADER_SIZE + 3)
    return "T1"


def _header(fs: SimFileSystem) -> str:
    fs.flip(files(fs, ".log")[1], 40)
    return "S5"


def _exchanged(fs: SimFileSystem) -> str:
    first, second = files(fs, ".log")[:2]
    fs.wipe(second)
    fs.open(second, create=True).pwritev([fs.content(first)], 0)
    return "S4"


def _stray(fs: SimFileSystem) -> str:
    second = files(fs, ".log")[1]
    fs.open(f"{PATH}/log/{7:020d}.log", create=True).pwritev([fs.content(second)], 0)
    return "S2"


@pytest.mark.parametrize(
    "harm",
    [_first, _middle, _last, _all, _short, _short_last, _header, _exchanged, _stray],
)
def test_lost_and_exchanged_files_are_refused(harm: Callable[[SimFileSystem], str]) -> None:
    fs, _ = fresh(close=True)
    row = harm(fs)
    before = {path: fs.content(path) for path in files(fs, "")}
    with pytest.raises(DamagedLog) as caught:
        Member(fs, PATH)
    assert caught.value.row == row
    check_text(caught.value)
    assert {path: fs.content(path) for path in files(fs, "")} == before


def test_files_made_since_the_checkpoint_are_missed_too() -> None:
    # The checkpoint is that of the genesis: the later files are not listed, only chained.
    old = SimFileSystem(Random(1))
    member = Member(old, PATH, LATE)
    member.genesis()
    member.sync()
    member.close()
    checkpoint = old.content(f"{PATH}/checkpoint")
    for lost in (1, 2):
        fs, entries = fresh(replace(LATE, segment_size=2048), close=False)
        file = fs.open(f"{PATH}/checkpoint")
        file.truncate(0)
        file.pwritev([checkpoint], 0)
        read_all(fs, entries, replace(LATE, segment_size=2048))
        file = fs.open(f"{PATH}/checkpoint")
        file.truncate(0)
        file.pwritev([checkpoint], 0)
        fs.kill()
        fs.wipe(files(fs, ".log")[lost])
        with pytest.raises(DamagedLog) as caught:
            Member(fs, PATH, LATE)
        assert caught.value.row == "T2"
        assert caught.value.file == files(fs, ".log")[lost - 1]


def test_a_formed_group_without_entries_is_refused() -> None:
    fs = SimFileSystem(Random(1))
    member = Member(fs, PATH, NEVER)
    member.genesis()
    member.sync()
    fs.kill()
    (path,) = files(fs, ".log")
    fs.flip(path, SEGMENT_HEADER_SIZE + 20)
    with pytest.raises(DamagedLog, match="T1"):
        Member(fs, PATH, NEVER)
    fs.kill()
    fs.wipe(path)
    with pytest.raises(DamagedLog, match="F7"):
        Member(fs, PATH, NEVER)


def test_a_body_that_looks_like_an_entry_proves_nothing() -> None:
    fs = SimFileSystem(Random(1))
    member = Member(fs, PATH, NEVER)
    entries = [member.genesis(), member.append(b"x" * 300)]
    member.sync()
    entries.append(member.append(b"y" * 300))
    member.sync()
    (path,) = files(fs, ".log")
    frames = fs.content(path)[SEGMENT_HEADER_SIZE:]
    entries.append(member.append(b"torn"))
    entries.append(member.append(frames[: entries[-1].ref.position]))
    member.sync()
    fs.kill()
    fs.flip(path, SEGMENT_HEADER_SIZE + entries[3].ref.position + 30)
    member = Member(fs, PATH, NEVER)
    assert member.log.last_index == 3
    check_holds(member.log, entries[:3])


def test_stale_bytes_behind_the_end_are_cut() -> None:
    fs, entries = fresh(NEVER, close=False)
    (path,) = files(fs, ".log")
    # Repeat the last entry behind itself: sound, stamped, and not what follows.
    start = SEGMENT_HEADER_SIZE + entries[-1].ref.position
    end = start + entries[-1].ref.size
    fs.open(path).pwritev([fs.content(path)[start:end]], end)
    fs.kill()
    notes = examine(open_folder(fs, PATH), FilePool(fs)).notes
    assert [note[:2] for note in notes] == ["T5"]
    member = Member(fs, PATH, NEVER)
    assert member.log.recovery_notes == notes, "an operator reads what was changed"
    check_holds(member.log, entries)
    assert fs.size_of(path) == end
