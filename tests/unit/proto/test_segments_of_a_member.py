"""The segment reader on folders that the real commit log wrote: both must say the same."""

from pathlib import Path

import pytest

from dledger.files import OsFileSystem
from dledger.log import CommitLog
from dledger.types import LogIndex, Span
from dledger_proto.segments import SegmentReader, open_folder
from tests.unit.log.support import GROUP_ID, Member, replicate


def segments_of(folder: Path) -> str:
    """Return where a member's segment files lie."""
    return str(next(folder.rglob("*.log")).parent)


def check_same(reader: SegmentReader, log: CommitLog) -> None:
    entries = list(reader.entries())
    assert reader.group_id == GROUP_ID
    assert [entry.header.index for entry in entries] == list(
        range(log.first_index, log.last_index + 1)
    )
    for entry in entries:
        header = entry.header
        ref = log.ref(LogIndex(header.index))
        assert (header.term, header.position, header.size, header.header_crc) == (
            ref.term, ref.position, ref.size, ref.crc,
        )  # fmt: skip
        assert reader.read_span(ref.position, ref.size) == log.read_span(
            Span(ref.position, ref.size)
        )
    middle = LogIndex((log.first_index + log.last_index) // 2)
    found = next(reader.entries(first_index=middle))
    assert found.header.position == log.ref(middle).position


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
    with open_folder(segments_of(tmp_path)) as reader:
        assert len(reader.headers) > 5, "several segments"
        check_same(reader, member.log)
    if close:
        member.reopen(close=True)
        with open_folder(segments_of(tmp_path)) as reader:
            check_same(reader, member.log)
    member.close()


def test_after_a_suffix_was_cut_and_written_anew(tmp_path: Path) -> None:
    member = written(tmp_path, "member")
    for cut in (110, 60, 61):
        member.log.truncate_from(LogIndex(cut))
        member.sync()
        for i in range(10):
            member.append(b"anew %d" % i * 40, term=9 + cut)
        member.sync()
        with open_folder(segments_of(tmp_path)) as reader:
            check_same(reader, member.log)
    member.close()


def test_a_followers_folder_holds_the_same_entries(tmp_path: Path) -> None:
    leader = written(tmp_path, "leader")
    follower = Member(OsFileSystem(), str(tmp_path / "follower"), seed=5)
    replicate(leader.log, follower.log)
    follower.sync()
    with (
        open_folder(segments_of(tmp_path / "leader")) as one,
        open_folder(segments_of(tmp_path / "follower")) as other,
    ):
        check_same(one, leader.log)
        check_same(other, follower.log)
        for a, b in zip(one.entries(), other.entries(), strict=True):
            assert a.header.header_crc == b.header.header_crc
            assert a.payloads == b.payloads
            assert a.header.local_crc != b.header.local_crc, "each member writes its own"
    leader.close()
    follower.close()
