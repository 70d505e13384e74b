"""Bounds of the log: memory, reading at a restart, syncs, and reads beside cuts."""

import gc
from dataclasses import replace

import pytest

from dledger.log.commit_log import CommitLog
from dledger.log.errors import SpanGone
from dledger.log.reading.file_pool import FilePool
from dledger.log.recovery.recover import examine
from dledger.types import EntryKind, LogIndex, Position, Span, Term
from dledger_proto.rpc.views import kept_bytes
from tests.sim.disk.disk import SimFileSystem
from tests.unit.log.support import (
    SMALL,
    Disk,
    Member,
    Model,
    check_holds,
    fill,
    filled,
    frames_of,
    headers_in,
    open_folder,
)


def test_spans_above_the_durable_end_are_not_read_from_the_disk(disk: Disk) -> None:
    member, _ = filled(disk, 3)
    span = Span(Position(0), 10)
    with pytest.raises(SpanGone, match="above"):
        member.log.read_span(span)
    assert member.log.tail_span(span) is not None
    member.sync()
    assert len(member.log.read_span(span)) == 10


def test_the_tail_keeps_its_bound_and_everything_unsynced(disk: Disk) -> None:
    member, _ = filled(disk, 60)
    log = member.log
    assert log.payload(LogIndex(1), 100).buffers is not None
    member.sync()
    assert log.payload(LogIndex(1), 100).buffers is None
    assert log.payload(log.last_index, 100).buffers is not None


def kept_by_tail(log: CommitLog) -> int:
    """Return the bytes of all buffers that views of the tail keep alive."""
    views: list[memoryview] = []
    index = log.last_index
    while index and (buffers := log.payload(index, 1).buffers) is not None:
        views += [memoryview(buffer) for buffer in buffers]
        index = LogIndex(index - 1)
    return kept_bytes(views)


def test_the_tail_keeps_no_frame_for_a_small_part_of_it(disk: Disk) -> None:
    """Clients send large frames of which almost all is refused."""
    member = Member(*disk)
    member.genesis()
    log = member.log
    for number in range(20):
        frame = bytes(1 << 20)
        part = memoryview(frame)[1_000 * number :][:50]
        log.append_new(EntryKind.COMMANDS, [part], Term(1), log.last_time_ms + 1)
    assert kept_by_tail(log) < SMALL.tail_cache_bytes
    assert log.entries(LogIndex(3), LogIndex(3), 1)[0].payloads[0] == bytes(50)


def test_the_tail_keeps_no_message_for_the_little_that_was_new_in_it(disk: Disk) -> None:
    """A follower is sent again what it holds, with one new entry behind."""
    fs, path = disk
    leader, _ = filled((fs, f"{path}-leader"), 40)
    follower = Member(fs, f"{path}-follower")
    for last in range(1, 41):
        message = frames_of(leader.log, 1, last)
        held = follower.log.last_index
        found = [entry for entry in headers_in(message) if entry[0].index > held]
        padded = memoryview(message + bytes(1 << 20))  # a frame of the link holds other messages
        follower.log.append_frames(padded[: len(message)], found)
    assert kept_by_tail(follower.log) < 100_000
    for member in (leader, follower):
        member.close()


def test_one_sync_covers_all_that_gathered(sim: SimFileSystem) -> None:
    large = 1 << 20
    settings = replace(SMALL, segment_size=large, checkpoint_bytes=large, allocate_bytes=large)
    member = Member(sim, "/disk/data", settings)
    member.genesis()
    member.append(b"first")
    member.sync()
    for i in range(50):
        member.append(b"x" * i, b"y" * 10)
    calls: list[str] = []
    sim.hook = lambda call, path: calls.append(call)
    member.sync()
    assert calls.count("write") == 1
    assert calls.count("sync") == 1
    assert "rename" not in calls


@pytest.mark.parametrize("close", [True, False])
def test_a_restart_reads_no_more_of_a_longer_log(sim: SimFileSystem, *, close: bool) -> None:
    settings = replace(
        SMALL, segment_size=256 * 1024, checkpoint_bytes=64 * 1024, allocate_bytes=16 * 1024
    )
    member = Member(sim, "/disk/data", settings)
    member.genesis()
    read: list[int] = []
    for _ in range(2):
        for _ in range(1000 if not read else 9000):
            member.append(b"x" * 1000)
            if member.log.last_index % 20 == 0:
                member.sync()
        member.sync()
        if close:
            member.log.close()
        before = sim.read_bytes
        member.reopen(close=False)
        read.append(sim.read_bytes - before)
    segments_added = 9000 * 1084 // settings.segment_size
    # Per segment its header and a line of the checkpoint; behind the checkpoint up to its distance.
    allowed = read[0] + 200 * segments_added + 2 * settings.checkpoint_bytes
    assert read[1] < allowed < member.log.last_position // 20
    assert member.log.last_index == 10_001


def test_memory_does_not_grow_with_the_number_of_entries(sim: SimFileSystem) -> None:
    settings = replace(SMALL, segment_size=1 << 20, tail_cache_bytes=0, checkpoint_bytes=1 << 20)
    member = Member(sim, "/disk/data", settings)
    member.genesis()

    def held() -> int:
        gc.collect()
        return len(gc.get_objects())

    before = 0
    for entries in range(20_000):
        member.append(b"x" * 100)
        if entries % 100 == 99:
            member.sync()
        if entries == 2_000:
            member.sync()
            before = held()
    assert held() - before < 1_000


def test_a_cut_leaves_no_stale_bytes_behind_the_new_end(sim: SimFileSystem) -> None:
    settings = replace(SMALL, segment_size=1 << 20, checkpoint_bytes=1 << 20)
    member = Member(sim, "/disk/data", settings)
    model = Model([member.genesis()])
    for _ in range(6):
        # Each in a round of its own, so later stamps prove that earlier ones were synced.
        model.entries.append(member.append(b"x" * 300))
        member.sync()
    member.log.truncate_from(LogIndex(2))
    model.cut(2)
    model.entries.append(member.append(b"short", term=2))
    member.sync()
    path = "/disk/data/log/00000000000000000000.log"
    end = 128 + member.log.last_position
    assert not sim.content(path)[end:].strip(b"\0")
    member.folder.close()
    assert not examine(open_folder(sim, "/disk/data"), FilePool(sim)).notes
    member.reopen(close=False)
    check_holds(member.log, model.entries)


@pytest.mark.parametrize("refilled", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_a_read_that_a_cut_overtakes_gives_no_old_bytes(
    sim: SimFileSystem, monkeypatch: pytest.MonkeyPatch, *, refilled: bool, late: bool
) -> None:
    member = Member(sim, "/disk/data", replace(SMALL, tail_cache_bytes=0, segment_size=1 << 20))
    model = Model([member.genesis()])
    fill(member, model, 4)
    member.sync()
    wanted = model.entries[4].ref
    pread = FilePool.pread

    def cut() -> None:
        monkeypatch.undo()
        member.log.truncate_from(LogIndex(4))
        if refilled:
            member.append(b"y" * 5000, term=2)
        member.sync()

    def overtaken(pool: FilePool, path: str, size: int, offset: int) -> bytes:
        if not late:
            cut()
        data = pread(pool, path, size, offset)
        if late:
            cut()
        return data

    monkeypatch.setattr(FilePool, "pread", overtaken)
    span = Span(wanted.position, wanted.size)
    if refilled:
        # The caller compares index and term: these are bytes of the new entry.
        assert member.log.read_span(span) == b"y" * wanted.size
    else:
        with pytest.raises(SpanGone, match="above the written end of the log"):
            member.log.read_span(span)
    committed = model.entries[1].ref
    assert len(member.log.read_span(Span(committed.position, committed.size))) == committed.size
