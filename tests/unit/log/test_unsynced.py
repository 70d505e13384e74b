"""Rounds that leave the sync to a later one (`flush: async`), and the checkpoint of an idle log."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from dledger.log.errors import DamagedLog
from dledger.log.reading.walk import walk_entries
from dledger.types import LogIndex, Position
from dledger_proto.entry import SEGMENT_HEADER_SIZE
from tests.sim.disk.disk import BLOCK_SIZE, SimFileSystem
from tests.unit.log.support import SMALL, Disk, Member, Written, check_holds

PATH = "/disk/data"
ONE_SEGMENT = replace(SMALL, segment_size=1 << 20, checkpoint_bytes=1 << 20)


def write(member: Member, *sizes: int, sync: bool = False) -> list[Written]:
    """Append entries and run one round."""
    random = Random(len(sizes))
    entries = [member.append(random.randbytes(size)) for size in sizes]
    taken = member.log.take_round(None, sync=sync)
    assert taken is not None
    taken.execute()
    member.log.round_finished(taken)
    return entries


def stamps(fs: SimFileSystem, path: str) -> Sequence[int]:
    """Return the synced position that each entry of a segment file records."""
    content = fs.content(path)

    def read(size: int, position: Position) -> bytes:
        at = SEGMENT_HEADER_SIZE + position
        return content[at : at + size]

    end = Position(fs.size_of(path) - SEGMENT_HEADER_SIZE)
    return [entry.header.synced_position for entry in walk_entries(read, Position(0), end)]


def test_a_round_without_sync_moves_what_is_written_only(disk: Disk) -> None:
    member = Member(*disk, ONE_SEGMENT)
    entries = [member.genesis()]
    member.sync()
    entries += write(member, 100, 200)
    log = member.log
    assert (log.written_index, log.durable_index) == (3, 1)
    assert log.unsynced_bytes == entries[1].ref.size + entries[2].ref.size
    check_holds(log, entries)
    member.sync()
    assert (log.written_index, log.durable_index, log.unsynced_bytes) == (3, 3, 0)
    entries += write(member, 50)
    member.reopen(close=False)
    check_holds(member.log, entries)
    assert member.log.unsynced_bytes == 0, "what a start finds it makes durable"


def test_the_genesis_entry_is_always_synced(disk: Disk) -> None:
    member = Member(*disk, ONE_SEGMENT)
    member.genesis()
    write(member)
    assert member.log.durable_index == 1
    assert member.folder.identity.group_id


def test_stamps_say_what_was_really_synced(sim: SimFileSystem) -> None:
    member = Member(sim, PATH, replace(ONE_SEGMENT, allocate_bytes=0))
    entries = [member.genesis()]
    member.sync()
    for sync in (False, False, True, False, False):
        entries += write(member, 300, sync=sync)
    synced = [0, *[entries[1].ref.position] * 3, *[entries[4].ref.position] * 2]
    assert stamps(sim, f"{PATH}/log/{0:020}.log") == synced


def test_a_power_cut_takes_what_no_sync_covered_and_nothing_else() -> None:
    lost = 0
    for seed in range(40):
        fs = SimFileSystem(Random(seed))
        member = Member(fs, PATH, ONE_SEGMENT)
        entries = [member.genesis()]
        member.sync()
        entries += write(member, 300, sync=True)
        for _ in range(4):
            entries += write(member, 700, 900)
        fs.power_cut(Random(seed))
        member.reopen(close=False)
        kept = member.log.last_index
        assert kept >= 2
        lost += kept < len(entries)
        check_holds(member.log, entries[:kept])
    assert lost > 20


def test_a_clean_end_syncs(sim: SimFileSystem) -> None:
    member = Member(sim, PATH, ONE_SEGMENT)
    entries = [member.genesis()]
    entries += write(member, 300)
    entries += write(member, 300)
    member.close()
    sim.power_cut(Random(1))
    member.reopen(close=False)
    check_holds(member.log, entries)


# Idle.


def idle(fs: SimFileSystem, *, checkpoint: bool, power_cut: bool) -> tuple[Member, list[Written]]:
    """Write three rounds, let the log be idle, end it in no order, and damage the last round."""
    member = Member(fs, PATH, ONE_SEGMENT)
    entries = [member.genesis()]
    member.sync()
    entries += write(member, 300, sync=True)
    entries += write(member, 300, sync=True)
    if checkpoint:
        assert member.log.checkpoint_is_behind
        taken = member.log.take_round(None, checkpoint=True)
        assert taken is not None
        assert taken.describe() == "store checkpoint"
        taken.execute()
        member.log.round_finished(taken)
        assert not member.log.checkpoint_is_behind
        assert member.log.take_round(None) is None
    if power_cut:
        fs.power_cut(Random(1))
    else:
        fs.kill()
    last = entries[-1].ref
    fs.flip(f"{PATH}/log/{0:020}.log", SEGMENT_HEADER_SIZE + last.position + last.size - 5)
    return member, entries


@pytest.mark.parametrize("power_cut", [False, True])
def test_damage_in_the_last_round_before_the_checkpoint_reads_as_torn(
    sim: SimFileSystem, *, power_cut: bool
) -> None:
    member, entries = idle(sim, checkpoint=False, power_cut=power_cut)
    member.reopen(close=False)
    check_holds(member.log, entries[:-1])


@pytest.mark.parametrize("power_cut", [False, True])
def test_damage_in_the_last_round_of_an_idle_log_is_refused(
    sim: SimFileSystem, *, power_cut: bool
) -> None:
    member, entries = idle(sim, checkpoint=True, power_cut=power_cut)
    member.reopen(close=False)
    last = LogIndex(len(entries))
    assert member.log.last_index == last, "nothing is cut"
    with pytest.raises(DamagedLog, match="READ"):
        member.log.entries(last, last, 1 << 20)


def test_a_checkpoint_of_unsynced_entries_syncs_them_first(sim: SimFileSystem) -> None:
    member = Member(sim, PATH, ONE_SEGMENT)
    entries = [member.genesis()]
    member.sync()
    entries += write(member, 300)
    taken = member.log.take_round(None, sync=False, checkpoint=True)
    assert taken is not None
    assert taken.describe() == f"sync {0:020}.log; store checkpoint"
    taken.execute()
    member.log.round_finished(taken)
    assert member.log.durable_index == 2
    sim.power_cut(Random(3))
    member.reopen(close=False)
    check_holds(member.log, entries)


def test_an_idle_log_leaves_a_full_disk_alone() -> None:
    """A checkpoint that nothing needs took from the reserve, and past it ended the member, again
    1 s after each start: with reads that it could have served.
    """
    fs = SimFileSystem(Random(1), budget_bytes=1 << 20)
    member = Member(fs, PATH, replace(ONE_SEGMENT, reserve_bytes=4096))
    member.genesis()
    member.sync()
    write(member, 300, sync=True)
    ballast = fs.open("/disk/ballast", create=True)
    ballast.allocate(0, fs.free_bytes(PATH) // BLOCK_SIZE * BLOCK_SIZE)
    assert member.log.space.check()
    assert not member.log.checkpoint_is_behind
    ballast.truncate(0)
    assert not member.log.space.check()
    assert member.log.checkpoint_is_behind
