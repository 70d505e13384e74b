"""What `flush: async` promises and what it may lose; and damage in the newest bytes of an idle log.

In an `ASYNC` stage the invariants take what was written for what is on disk. So a kill must lose
nothing; a power cut may, and the script says so to the observer.
"""

from dledger.log.commit_log import CommitLog
from dledger.raft.durability import CHECKPOINT_IDLE_SECONDS
from dledger.types import FlushMode
from dledger_broker.config.sections import StorageConfig
from tests.scenarios.stage import Stage
from tests.sim.disk.disk import SimFileSystem

VALUE_SIZE = 3_000
"""Of a record: an entry covers several sectors, of which a power cut may keep any."""


def _log(stage: Stage, name: str) -> CommitLog:
    process = stage.members[name].process
    assert process is not None, f"{name} does not run"
    return process.log


def test_async_a_kill_of_all_members_loses_nothing_acknowledged() -> None:
    """kill -9 leaves what was written in the page cache, and only that is acknowledged."""
    stage = Stage("abc", flush=FlushMode.ASYNC).formed()
    unsynced = acknowledged = 0
    for life in range(12):
        leader = stage.leader
        puts = [stage.put(leader, f"v{life}-{number}", VALUE_SIZE) for number in range(6)]
        stage.run_for(0.004 + 0.003 * life)
        acknowledged += sum(put.stored for put in puts)
        logs = [_log(stage, name) for name in stage.names]
        unsynced += all(log.durable_index < log.written_index for log in logs)
        for name in stage.names:
            stage.members[name].kill()
        for name in stage.names:
            stage.start_member(name)
        stage.run_until(lambda: bool(stage.leader), 10.0, "a leader")
    assert unsynced > 6, "kills must find something that is not synced"
    assert acknowledged > 20
    stage.finish()


def test_async_syncs_in_the_background() -> None:
    """However steadily it is written to, a log is synced up to a half second ago."""
    stage = Stage("abc", flush=FlushMode.ASYNC).formed()
    interval = StorageConfig().flush_interval_ms / 1_000
    behind = 0
    for number in range(10):
        before = int(_log(stage, "b").written_index)
        for place in range(12):
            stage.put("a", f"v{number}-{place}")
            stage.run_for((interval + 0.1) / 12)
            log = _log(stage, "b")
            behind += log.durable_index < log.written_index
        assert log.durable_index >= before
    assert behind > 60, "it does not sync each round"
    stage.finish()


def test_async_a_power_cut_loses_the_unsynced_and_the_member_goes_on() -> None:
    """A follower without its newest entries starts, is no damaged one, and is filled again."""
    stage = Stage("abc", flush=FlushMode.ASYNC).formed()
    lost = 0
    for life in range(25):
        for number in range(8):
            stage.put("a", f"v{life}-{number}", VALUE_SIZE)
            stage.run_for(0.01)
        held = int(_log(stage, "b").written_index)
        stage.members["b"].power_cut()
        stage.group.observer.wiped(
            "b"
        )  # what it held is not on its disk any more, as the setting allows
        stage.start_member("b")
        stage.run_until(lambda: stage.members["b"].running, 5.0, "it starts")
        lost += _log(stage, "b").last_index < held
        stage.run_for(1.0)
    assert lost > 10
    stage.finish()


def test_an_idle_log_shows_damage_in_its_last_round() -> None:
    """No later stamp proves the last round synced: without a checkpoint damage reads as torn."""
    stage = Stage("abc").formed()
    stage.put("a", "last", VALUE_SIZE)
    stage.run_for(CHECKPOINT_IDLE_SECONDS + 0.5)
    member = stage.members["b"]
    last = int(_log(stage, "b").last_index)
    ref = stage.group.facts.members["b"].log[last]
    member.kill()
    place = member.view.place(ref)
    assert place is not None
    member.fs.flip(place[0], place[1] + ref.size - 20)
    member.damaged = "the last entry"
    stage.start_member("b")
    assert _log(stage, "b").last_index == last, "an acknowledged entry was cut"
    member.kill()
    member.wipe()
    stage.group.observer.wiped("b")
    stage.start_member("b")
    stage.finish()


def test_an_idle_group_writes_nothing() -> None:
    """The checkpoint costs one round; then the disks rest."""
    stage = Stage("abc").formed()
    stage.put("a", "last")
    stage.run_for(CHECKPOINT_IDLE_SECONDS + 0.5)
    disks: list[SimFileSystem] = [member.fs for member in stage.members.values()]
    before = [disk.calls for disk in disks]
    stage.run_for(60.0)
    assert [disk.calls for disk in disks] == before
    stage.finish()
