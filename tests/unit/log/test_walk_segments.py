"""The walk over a stopped member's segments: what the commit log wrote, and what does not fit."""

from pathlib import Path

import pytest

from dledger.files import OsFileSystem
from dledger.log.commit_log import CommitLog
from dledger.log.folder import LOG_FOLDER
from dledger.types import LogIndex
from dledger_offline.folder import Damage, EntryFound, SegmentStart, walk_segments
from dledger_proto.entry import (
    KIND_NO_OP,
    SEGMENT_HEADER_SIZE,
    DecodedEntry,
    SegmentHeader,
    frame_entry,
    segment_name,
    stamp_local,
)
from tests.unit.log.support import GROUP_ID, Member, replicate

SALT = b"salt0000"


def entries_of(folder: Path) -> list[DecodedEntry]:
    """Return the entries of a data folder; nothing is wrong with them."""
    found: list[DecodedEntry] = []
    for piece in walk_segments(folder):
        assert not isinstance(piece, Damage), piece
        assert not piece.problem, piece
        if isinstance(piece, EntryFound):
            found.append(piece.entry)
    return found


def check_same(folder: Path, log: CommitLog) -> None:
    entries = entries_of(folder)
    assert [entry.header.index for entry in entries] == list(
        range(log.first_index, log.last_index + 1)
    )
    for entry in entries:
        header = entry.header
        ref = log.ref(LogIndex(header.index))
        assert (header.term, header.position, header.size, header.header_crc) == (
            ref.term, ref.position, ref.size, ref.crc,
        )  # fmt: skip


def written(folder: Path, name: str) -> Member:
    member = Member(OsFileSystem(), str(folder / name))
    member.genesis()
    member.sync()
    for i in range(120):
        member.append(b"payload %d" % i * (1 + i % 9), b"", b"x" * (i % 700), term=1 + i // 50)
        if i % 7 == 0:
            member.sync()
    member.sync()
    return member


@pytest.mark.parametrize("close", [True, False], ids=["closed", "running"])
def test_a_leaders_folder(tmp_path: Path, close: bool) -> None:
    member = written(tmp_path, "leader")
    assert len(list((tmp_path / "leader" / LOG_FOLDER).glob("*.log"))) > 5, "several segments"
    check_same(tmp_path / "leader", member.log)
    if close:
        member.reopen(close=True)
        check_same(tmp_path / "leader", member.log)
    member.close()


def test_after_a_suffix_was_cut_and_written_anew(tmp_path: Path) -> None:
    member = written(tmp_path, "member")
    for cut in (110, 60, 61):
        member.log.truncate_from(LogIndex(cut))
        member.sync()
        for i in range(10):
            member.append(b"anew %d" % i * 40, term=9 + cut)
        member.sync()
        check_same(tmp_path / "member", member.log)
    member.close()


def test_a_followers_folder_holds_the_same_entries(tmp_path: Path) -> None:
    leader = written(tmp_path, "leader")
    follower = Member(OsFileSystem(), str(tmp_path / "follower"), seed=5)
    replicate(leader.log, follower.log)
    follower.sync()
    check_same(tmp_path / "follower", follower.log)
    one, other = entries_of(tmp_path / "leader"), entries_of(tmp_path / "follower")
    for a, b in zip(one, other, strict=True):
        assert a.header.header_crc == b.header.header_crc
        assert a.payloads == b.payloads
        assert a.header.local_crc != b.header.local_crc, "each member writes its own"
    leader.close()
    follower.close()


def by_hand(folder: Path, *second: bytes, **changes: int) -> tuple[Path, list[int]]:
    """Write a segment of two entries, the second with changes; return it and their positions."""
    path = folder / LOG_FOLDER / segment_name(0)
    path.parent.mkdir(exist_ok=True)
    place = {"index": 1, "term": 2, "time_ms": 9, "position": 0, "previous_crc": 0}
    one, crc = frame_entry(KIND_NO_OP, [], **place)
    place |= {"index": 2, "position": len(one), "previous_crc": crc}
    other, _ = frame_entry(KIND_NO_OP, [], **(place | changes))
    salt = second[0] if second else SALT
    header = SegmentHeader(GROUP_ID, 0, 1, 0, 0, SALT).encode()
    path.write_bytes(header + stamp_local(one, SALT, 0) + stamp_local(other, salt, 0))
    return path, [0, len(one)]


def test_one_flipped_bit_is_found_and_its_entry_named(tmp_path: Path) -> None:
    path, positions = by_hand(tmp_path)
    sound = path.read_bytes()
    assert len(entries_of(tmp_path)) == 2
    for bit in range(8 * SEGMENT_HEADER_SIZE, 8 * len(sound)):
        data = bytearray(sound)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        wrong = [
            piece.position if isinstance(piece, Damage) else piece.entry.header.position
            for piece in walk_segments(tmp_path)
            if isinstance(piece, Damage) or (isinstance(piece, EntryFound) and piece.problem)
        ]
        position = bit // 8 - SEGMENT_HEADER_SIZE
        assert wrong == [max(start for start in positions if start <= position)]


def test_a_cut_file_is_damaged_where_the_entry_starts(tmp_path: Path) -> None:
    path, positions = by_hand(tmp_path)
    sound = path.read_bytes()
    for size in range(SEGMENT_HEADER_SIZE + 1, len(sound)):
        if size - SEGMENT_HEADER_SIZE in positions:
            continue
        path.write_bytes(sound[:size])
        (damage,) = (piece for piece in walk_segments(tmp_path) if isinstance(piece, Damage))
        assert damage.position == max(p for p in positions if p < size - SEGMENT_HEADER_SIZE)
        assert (damage.resumed_at, damage.later_files) == (None, False)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"index": 3}, "index 3 behind 1"),
        ({"term": 1}, "term 1 behind 2"),
        ({"previous_crc": 5}, "it follows crc 00000005, the one before is "),
    ],
    ids=str,
)
def test_an_entry_that_does_not_follow_is_told(
    tmp_path: Path, changes: dict[str, int], problem: str
) -> None:
    by_hand(tmp_path, **changes)
    *_, last = walk_segments(tmp_path)
    assert isinstance(last, EntryFound)
    assert last.problem.startswith(problem)


def test_an_entry_of_another_file_is_told(tmp_path: Path) -> None:
    by_hand(tmp_path, b"another!")
    *_, last = walk_segments(tmp_path)
    assert isinstance(last, EntryFound)
    assert last.problem == "its local bytes were not written into this file"


def headers_of(folder: Path) -> list[str]:
    """Return what is wrong with the header of each file."""
    return [piece.problem for piece in walk_segments(folder) if isinstance(piece, SegmentStart)]


def test_a_missing_file_in_the_middle_is_told(tmp_path: Path) -> None:
    written(tmp_path, "member").close()
    first, missing, *later = sorted((tmp_path / "member" / LOG_FOLDER).glob("*.log"))
    missing.unlink()
    problems = headers_of(tmp_path / "member")
    assert problems == [
        "",
        f"the file before ends at position {int(missing.stem)}",
        *[""] * (len(later) - 1),
    ]
    assert int(first.stem) == 0


def test_a_file_under_a_wrong_name_is_told(tmp_path: Path) -> None:
    written(tmp_path, "member").close()
    *_, last = sorted((tmp_path / "member" / LOG_FOLDER).glob("*.log"))
    last.rename(last.with_name(segment_name(int(last.stem) + 8)))
    *_, problem = headers_of(tmp_path / "member")
    assert problem == f"the header says base position {int(last.stem)}"
