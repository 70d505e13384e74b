"""The log's contract, on the real file system and on the simulated one."""

from dataclasses import replace
from pathlib import Path

import pytest

from dledger.files import OsFileSystem
from dledger.log.errors import SpanGone
from dledger.log.hard_state import HardState
from dledger.log.settings import LogSettings
from dledger.types import EntryKind, LogIndex, MemberId, Position, Span, Term
from dledger_offline.folder import EntryFound, walk_segments
from dledger_proto.batch.codec import Record, encode_batch
from dledger_proto.entry import CorruptEntry
from tests.unit.log.support import (
    GENESIS,
    GROUP_ID,
    SMALL,
    Disk,
    Member,
    Model,
    check_holds,
    fill,
    filled,
    frames_of,
    headers_in,
    replicate,
)


def test_a_new_log_is_empty(disk: Disk) -> None:
    log = Member(*disk).log
    assert log.is_empty
    assert (log.first_index, log.last_index, log.last_term, log.durable_index) == (1, 0, 0, 0)
    assert (log.first_position, log.last_position, log.last_crc, log.group_id) == (0, 0, 0, b"")
    assert log.term_at(LogIndex(0)) == 0
    assert log.term_at(LogIndex(1)) is None
    assert log.size_between(LogIndex(1), LogIndex(0)) == 0
    assert log.take_round(None) is None


def test_appended_entries_are_read_back_before_and_after_a_sync(disk: Disk) -> None:
    member, model = filled(disk)
    check_holds(member.log, model.entries)
    assert member.log.durable_index == 0
    member.sync()
    assert member.log.durable_index == member.log.last_index
    check_holds(member.log, model.entries)
    assert member.log.take_round(None) is None


def test_a_reopened_log_holds_the_same(disk: Disk) -> None:
    member, model = filled(disk)
    member.sync()
    for close in (True, True):
        member.reopen(close=close)
        check_holds(member.log, model.entries)
        assert member.log.durable_index == member.log.last_index
        assert member.log.group_id == GROUP_ID
        assert member.folder.identity.group_id == GROUP_ID
        fill(member, model, 7, seed=len(model.entries))
        member.sync()
    check_holds(member.log, model.entries)


def test_segments_are_named_by_their_first_position_and_roll(disk: Disk) -> None:
    member, model = filled(disk)
    member.sync()
    fs, path = disk
    names = [name for name in fs.names(f"{path}/log") if name.endswith(".log")]
    positions = [int(name.removesuffix(".log")) for name in names]
    assert all(len(name) == 24 for name in names)
    assert positions[0] == 0
    assert len(positions) > 5
    assert set(positions) < {written.ref.position for written in model.entries}
    indexes = [name for name in fs.names(f"{path}/log") if name.endswith(".idx")]
    assert len(indexes) == len(names) - 1


def test_an_entry_above_the_segment_size_gets_a_segment_of_its_own(disk: Disk) -> None:
    member, model = filled(disk, 3)
    model.entries.append(member.append(b"x" * 3 * SMALL.segment_size))
    fill(member, model, 3)
    member.sync()
    check_holds(member.log, model.entries)
    member.reopen(close=True)
    check_holds(member.log, model.entries)


def test_batches_keep_the_bytes_their_producer_framed(disk: Disk) -> None:
    member, _ = filled(disk, 0)
    batches = [
        encode_batch(
            [Record(b"body %d" % i) for i in range(n)],
            topic_id=b"t" * 16, queue=1, stamp=None, base_number=0, base_time_ms=1,
        )
        for n in (1, 5, 20)
    ] * 10  # fmt: skip
    ref = member.log.append_new(EntryKind.BATCHES, batches, Term(1), 5)
    for _ in range(3):
        (entry,) = member.log.entries(ref.index, ref.index, 1 << 20)
        assert [bytes(view) for view in entry.payloads] == batches
        assert entry.kind is EntryKind.BATCHES
        for start, batch in zip(entry.starts, batches, strict=True):
            held = member.log.tail_span(Span(start, len(batch)))
            assert held is None or b"".join(held) == batch
        member.sync()
        assert member.log.read_span(Span(entry.starts[3], len(batches[3]))) == batches[3]
        member.reopen(close=True)


def test_entries_without_payloads_are_kept(disk: Disk) -> None:
    member, model = filled(disk, 2)
    log = member.log
    ref = log.append_new(EntryKind.NO_OP, [], Term(3), log.last_time_ms)
    member.sync()
    member.reopen(close=True)
    (entry,) = member.log.entries(ref.index, ref.index, 1)
    assert (entry.kind, list(entry.payloads), entry.ref) == (EntryKind.NO_OP, [], ref)
    assert member.log.last_term == 3
    assert len(model.entries) == ref.index - 1


def test_terms_are_known_for_every_entry(disk: Disk) -> None:
    member, model = filled(disk, 5)
    for term in (2, 5, 6):
        fill(member, model, 9, seed=term, term=term)
    member.sync()
    member.reopen(close=True)
    check_holds(member.log, model.entries)


@pytest.mark.parametrize(
    ("term", "time_ms"), [(0, 10**9), (1, 0)], ids=["term goes back", "time goes back"]
)
def test_what_goes_back_is_our_misuse(disk: Disk, term: int, time_ms: int) -> None:
    member, model = filled(disk, 3)
    with pytest.raises(ValueError, match="behind"):
        member.log.append_new(EntryKind.COMMANDS, [b"x"], Term(term), time_ms)
    check_holds(member.log, model.entries)


def test_the_first_entry_is_the_genesis_and_only_that(disk: Disk) -> None:
    member = Member(*disk)
    with pytest.raises(ValueError, match="COMMANDS entry at index 1"):
        member.append(b"x")
    with pytest.raises(ValueError, match="not of group id"):
        member.log.write_genesis(GENESIS, b"?" * 16)
    member.genesis()
    with pytest.raises(ValueError, match="GENESIS entry at index 2"):
        member.log.write_genesis(GENESIS, GROUP_ID)


def test_sizes_and_payloads_for_followers(disk: Disk) -> None:
    member, model = filled(disk)
    member.sync()
    for _ in range(2):
        log = member.log
        for first in range(1, log.last_index + 1, 3):
            for max_bytes in (1, 700, 3000, 1 << 20):
                payload = log.payload(LogIndex(first), max_bytes)
                assert payload.first == first
                assert payload.last >= first
                assert payload.size == log.size_between(payload.first, payload.last)
                assert payload.span == Span(model.entries[first - 1].ref.position, payload.size)
                assert payload.term_of_first == model.entries[first - 1].ref.term
                assert payload.size <= max_bytes or payload.first == payload.last
                if payload.buffers is not None:
                    assert sum(map(len, payload.buffers)) == payload.size
        member.reopen(close=True)


def test_a_followers_log_is_the_leaders_whatever_its_segment_size(disk: Disk) -> None:
    fs, path = disk
    leader, model = filled((fs, path + "/leader"))
    sizes = (300, 2048, 1 << 20)
    followers = [
        Member(fs, f"{path}/f{size}", replace(SMALL, segment_size=size, reserve_bytes=0))
        for size in sizes
    ]
    for last in (1, 2, 17, leader.log.last_index):
        for follower in followers:
            replicate(leader.log, follower.log, last)
            follower.sync()
        leader.sync()
    for follower in followers:
        check_holds(follower.log, model.entries)
        assert follower.log.last_crc == leader.log.last_crc
        follower.reopen(close=True)
        check_holds(follower.log, model.entries)
        assert follower.folder.identity.group_id == GROUP_ID


def _damages(frames: bytes) -> dict[str, bytes]:
    size = headers_in(frames)[0][0].size
    second = headers_in(frames)[1][0]
    at = size + second.header_size
    return {
        "a flipped payload bit": frames[:at] + bytes([frames[at] ^ 1]) + frames[at + 1 :],
        "a gap": frames[size:],
    }


@pytest.mark.parametrize("damage", ["a flipped payload bit", "a gap"])
def test_damaged_frames_are_refused_and_nothing_is_kept(disk: Disk, damage: str) -> None:
    fs, path = disk
    leader, model = filled((fs, path + "/leader"), 6)
    follower = Member(fs, path + "/follower")
    replicate(leader.log, follower.log, 2)
    frames = frames_of(leader.log, 3, 6)
    damaged = _damages(frames)[damage]
    with pytest.raises(CorruptEntry):
        follower.log.append_frames(damaged, headers_in(damaged))
    check_holds(follower.log, model.entries[:2])
    follower.log.append_frames(frames, headers_in(frames))
    check_holds(follower.log, model.entries[:6])


@pytest.mark.parametrize(("size", "reason"), [(50, "position"), (100, "follows crc")])
def test_frames_of_another_history_are_refused(disk: Disk, size: int, reason: str) -> None:
    fs, path = disk
    leader, other, follower = (Member(fs, f"{path}/{name}") for name in "lof")
    leader.genesis()
    replicate(leader.log, other.log)
    kept = leader.append(b"one history".ljust(100))
    other.append(b"another".ljust(size))
    other.append(b"that builds on it")
    replicate(leader.log, follower.log)
    buffer = frames_of(other.log, 3, 3)
    with pytest.raises(CorruptEntry, match=reason):
        follower.log.append_frames(buffer, headers_in(buffer))
    assert follower.log.ref(LogIndex(2)) == kept.ref
    assert follower.log.last_index == 2


@pytest.mark.parametrize("cut_at", [1, 2, 3, 20, 30, 40, 41])
@pytest.mark.parametrize("synced", [0, 10, 35, 41])
def test_a_cut_suffix_is_gone(disk: Disk, cut_at: int, synced: int) -> None:
    member = Member(*disk)
    model = Model([member.genesis()])
    fill(member, model, synced - 1)
    if synced:
        member.sync()
    fill(member, model, 41 - len(model.entries), seed=3)
    member.log.truncate_from(LogIndex(cut_at), committed=LogIndex(cut_at - 1))
    model.cut(cut_at)
    check_holds(member.log, model.entries)
    assert member.log.durable_index == min(synced, cut_at - 1)
    if not model.entries:
        assert member.log.group_id == b""
        model.entries.append(member.genesis())
    fill(member, model, 12, seed=9, term=2)
    check_holds(member.log, model.entries)
    member.sync()
    check_holds(member.log, model.entries)
    for _ in range(2):
        member.reopen(close=True)
        check_holds(member.log, model.entries)


def test_cutting_what_is_committed_is_a_fatal_assertion(disk: Disk) -> None:
    member, model = filled(disk, 5)
    with pytest.raises(AssertionError, match="entry 3 is committed"):
        member.log.truncate_from(LogIndex(3), committed=LogIndex(3))
    check_holds(member.log, model.entries)


def test_a_cut_during_a_round_in_flight(disk: Disk) -> None:
    member, model = filled(disk, 10)
    member.sync()
    fill(member, model, 20, seed=4)
    taken = member.take()
    member.log.truncate_from(LogIndex(8))
    model.cut(8)
    fill(member, model, 30, seed=5, term=2)
    taken.execute()
    member.log.round_finished(taken)
    assert member.log.durable_index == 7
    check_holds(member.log, model.entries)
    member.sync()
    assert member.log.durable_index == member.log.last_index
    member.reopen(close=True)
    check_holds(member.log, model.entries)


def test_appending_during_a_round_in_flight(disk: Disk) -> None:
    member, model = filled(disk, 10)
    taken = member.take()
    fill(member, model, 15, seed=4)
    with pytest.raises(AssertionError, match="in flight"):
        member.log.take_round(None)
    taken.execute()
    assert member.log.durable_index == 0
    member.log.round_finished(taken)
    assert member.log.durable_index == 11
    check_holds(member.log, model.entries)
    member.sync()
    member.reopen(close=True)
    check_holds(member.log, model.entries)


def test_the_head_is_trimmed_by_whole_segments(disk: Disk) -> None:
    member, model = filled(disk)
    member.sync()
    log = member.log
    assert log.trim_head(log.last_position, LogIndex(1)) == []
    assert log.trim_head(Position(100), log.last_index) == []
    limit = model.entries[24].ref
    names = log.trim_head(limit.position, log.last_index)
    assert names
    assert log.trim_head(log.last_position, log.last_index) == []
    assert log.first_index == 1
    member.sync()
    first = log.first_index
    assert 1 < first <= limit.index
    assert log.first_position == model.entries[first - 1].ref.position
    assert not set(names) & set(disk[0].names(f"{disk[1]}/log"))
    check_holds(log, model.entries, first=first)
    assert log.term_at(LogIndex(first - 1)) == 1
    assert log.term_at(LogIndex(first - 2)) is None
    with pytest.raises(SpanGone, match="below"):
        log.read_span(Span(Position(log.first_position - 1), 1))
    with pytest.raises(SpanGone):
        log.entries(LogIndex(first - 1), log.last_index, 100)
    fill(member, model, 10, seed=8)
    member.sync()
    member.reopen(close=True)
    check_holds(member.log, model.entries, first=first)


@pytest.mark.parametrize("at_once", [1, 2 * SMALL.segment_size])
def test_a_long_head_is_trimmed_in_steps(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """A segment at least, else no more bytes than the limit: to free them takes the disk long."""
    member, _ = filled(disk)
    member.sync()
    log = member.log
    monkeypatch.setattr("dledger.log.memory.log_state.TRIM_BYTES_MAX", at_once)
    steps: list[int] = []
    for freeing in (False, True) * 20:
        monkeypatch.setattr(type(disk[0]), "is_freeing", freeing)
        before = log.first_position
        names = log.trim_head(log.last_position, log.last_index)
        member.sync()
        if names:
            assert not freeing, "until the disk has its space back"
            steps.append(len(names))
            assert len(names) == 1 or log.first_position - before <= at_once
    assert len(steps) > 1
    assert max(steps) == (1 if at_once == 1 else 2)


def test_the_entry_of_the_limit_stays(disk: Disk) -> None:
    """Whoever comes after the newest committed entry must find it: the logs agree up to it."""
    member, _ = filled(disk)
    member.sync()
    log = member.log
    ends = [log._state.last_index_of(place) for place in range(len(log._state.segments) - 1)]
    log.trim_head(log.last_position, ends[1])
    member.sync()
    assert log.first_index == ends[0] + 1 <= ends[1]


def test_a_late_reader_does_not_keep_a_removed_file(disk: Disk) -> None:
    """One that opens it in the moment before its name goes: its space would not come back."""
    member, _ = filled(disk)
    member.sync()
    log, fs = member.log, disk[0]
    names = log.trim_head(log.last_position, log.last_index)
    taken = member.take()
    unlink = fs.unlink

    def read_and_unlink(path: str) -> None:
        if path.endswith(".log"):
            log._pool.pread(path, 10, 0)
        unlink(path)

    fs.unlink = read_and_unlink  # type: ignore[method-assign]
    taken.execute()
    log.round_finished(taken)
    assert not [path for path in log._pool._handles if path.rpartition("/")[2] in names]


@pytest.mark.parametrize("executed", [False, True])
def test_nobody_is_sent_to_files_that_a_round_removes(disk: Disk, *, executed: bool) -> None:
    """Between the unlink and the end of the round a missing file looked like damage."""
    member, model = filled(disk)
    member.sync()
    member.reopen(close=True)  # nothing is in memory
    log = member.log
    assert log.trim_head(log.last_position, log.last_index)
    before = log.payload(LogIndex(2), 1_000)
    taken = member.take()
    if executed:
        taken.execute()
    first = log.first_index
    assert first > 1
    assert log.trim_head(log.last_position, log.last_index) == []
    for read in (
        lambda: log.payload(LogIndex(2), 1_000),
        lambda: log.entries(LogIndex(2), LogIndex(4), 1_000),
        lambda: log.ref(LogIndex(2)),
        lambda: log.read_span(before.span),
    ):
        with pytest.raises(SpanGone):
            read()
    check_holds(log, model.entries, first=first)
    if not executed:
        taken.execute()
    log.round_finished(taken)
    check_holds(log, model.entries, first=first)


def test_the_last_segment_is_never_trimmed(disk: Disk) -> None:
    member, model = filled(disk)
    member.sync()
    member.log.trim_head(member.log.last_position, member.log.last_index)
    member.sync()
    assert member.log.first_index <= member.log.last_index
    assert not member.log.is_empty
    check_holds(member.log, model.entries, first=member.log.first_index)


def test_hard_state_is_written_by_a_round_and_read_back(disk: Disk) -> None:
    member = Member(*disk)
    assert member.folder.load_hard_state() == HardState()
    state = HardState(Term(7), "m2", {MemberId("m1"): b"1" * 16}, quarantined=True)
    member.sync(state)
    assert member.folder.load_hard_state() == state
    assert member.log.take_round(state) is None
    lifted = HardState(Term(8), None, {MemberId("m1"): b"1" * 16}, lifted=True)
    member.sync(lifted)
    member.reopen(close=True)
    assert member.folder.load_hard_state() == lifted
    assert member.log.take_round(lifted) is None


def test_a_lost_index_file_is_made_again(disk: Disk) -> None:
    member, model = filled(disk)
    member.sync()
    fs, path = disk
    names = [name for name in fs.names(f"{path}/log") if name.endswith(".idx")]
    contents = {name: fs.open(f"{path}/log/{name}").pread(1 << 20, 0) for name in names}
    for name in names[::2]:
        fs.unlink(f"{path}/log/{name}")
    for name in names[1::2]:
        fs.open(f"{path}/log/{name}").pwritev([b"?"], 40)
    member.reopen(close=True)
    check_holds(member.log, model.entries)
    member.sync()
    again = {name: fs.open(f"{path}/log/{name}").pread(1 << 20, 0) for name in names}
    assert again == contents


def test_a_first_round_ends_with_the_identity(disk: Disk) -> None:
    member, _ = filled(disk, 0)
    taken = member.take()
    assert taken.describe() == (
        "create 00000000000000000000.log; write 1 entries to 00000000000000000000.log at 128; "
        "sync 00000000000000000000.log; store identity"
    )


def test_a_setting_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="segment_size is 128"):
        LogSettings(segment_size=128)
    with pytest.raises(ValueError, match="reserve_bytes is -1"):
        LogSettings(reserve_bytes=-1)


def test_a_round_writes_the_hard_state_before_the_entries(disk: Disk) -> None:
    member, _ = filled(disk, 1)
    taken = member.log.take_round(HardState(Term(1), "m2"))
    assert taken is not None
    assert taken.describe().startswith("store hard_state; create ")


def test_the_offline_reader_reads_the_same(tmp_path: Path) -> None:
    member, model = filled((OsFileSystem(), str(tmp_path / "data")))
    member.sync()
    fill(member, model, 3, seed=6)
    member.sync()
    pieces = walk_segments(tmp_path / "data")
    found = [piece.entry for piece in pieces if isinstance(piece, EntryFound)]
    assert [entry.header.header_crc for entry in found] == [e.ref.crc for e in model.entries]
    assert [list(map(bytes, entry.payloads)) for entry in found] == [
        list(written.payloads) for written in model.entries
    ]
