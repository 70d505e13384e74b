"""Members that replication cannot fill are refilled by a peer (D18): the hard moments."""

from dledger.raft.api import Role
from dledger_proto.errors import Code
from tests.scenarios.stage import Stage
from tests.sim.clients.requests import TrimQueue

SEGMENT, MIB = 16 << 10, 1 << 20


def _trimmed(bytes_per_second: int = MIB) -> Stage:
    """Return a group that a leads and whose members have trimmed the first entry."""
    stage = Stage("abc", segment_size=SEGMENT, refill_bytes_per_second=bytes_per_second).formed()
    for number in range(60):
        stage.put("a", f"v{number}", 1_000)
        stage.run_for(0.01)
    _trim(stage, 50)
    stage.run_until(lambda: _first(stage, "a") > 1, 10.0, "the head is trimmed")
    del stage.puts[:50]
    return stage


def _trim(stage: Stage, offset: int) -> None:
    queue = stage.plan.queues[0]
    stage.oracle.minimums[queue] = offset
    answers: list[Code] = []
    stage.ask("a", TrimQueue(queue, offset), answers.append)


def _says(stage: Stage, name: str) -> str:
    process = stage.members[name].process
    return "" if process is None else process.runtime.view.refill_says()


def _first(stage: Stage, name: str) -> int:
    process = stage.members[name].process
    assert process is not None
    return int(process.log.first_index)


def _wipe(stage: Stage, name: str) -> None:
    stage.members[name].power_cut()
    stage.group.wipe(name)
    stage.start_member(name)


def _is_whole(stage: Stage, name: str) -> bool:
    return stage.members[name].role is Role.FOLLOWER


def _load_until_whole(stage: Stage, name: str) -> None:
    for number in range(2_000):
        if _is_whole(stage, name):
            return
        if stage.leader:
            stage.put(stage.leader, f"more{number}", 200)
        stage.run_for(0.01)
    raise AssertionError(f"{name} is not whole")


def test_a_wiped_member_is_refilled_under_load() -> None:
    """It could not be filled any more. So slow a refill gets a state that is newer than its log."""
    stage = _trimmed(64 << 10)
    _wipe(stage, "c")
    _load_until_whole(stage, "c")
    assert stage.counts["started anew"] == 1
    assert _first(stage, "c") > 1
    stage.finish()


def test_a_refill_keeps_to_its_rate() -> None:
    """What its parts take to come is a part of that time. The state is small beside the log."""
    rate = 8 << 10
    stage = _trimmed(rate)
    _wipe(stage, "c")
    began = stage.scheduler.now
    stage.run_until(lambda: _is_whole(stage, "c"), 60.0, "c is whole")
    process = stage.members["a"].process
    assert process is not None
    log = process.log
    seconds = log.size_between(log.first_index, log.last_index) / rate
    assert seconds <= stage.scheduler.now - began <= 1.5 * seconds + 2.0


def test_a_wiped_member_of_a_group_that_forgot_its_first_entry_is_refilled() -> None:
    """Nobody can tell it the first entry, so it cannot even form."""
    stage = _trimmed()
    stage.run_until(lambda: all(_first(stage, name) > 1 for name in "ab"), 10.0, "both have")
    stage.settle()
    stage.members["c"].power_cut()
    for name in "ab":
        stage.members[name].kill()
    for name in "ab":
        stage.start_member(name)
    stage.run_until(lambda: bool(stage.leader), 5.0, "somebody leads")
    stage.group.wipe("c")
    stage.start_member("c")
    stage.run_for(0.5)
    assert stage.members["c"].role is Role.UNFORMED
    _load_until_whole(stage, "c")
    stage.finish()


def test_a_refill_begins_anew_when_what_follows_was_trimmed() -> None:
    """A member that was killed in its refill finds that the others went on without it."""
    stage = _trimmed(4 << 10)
    _wipe(stage, "c")
    stage.run_until(lambda: "entries up to" in _says(stage, "c"), 10.0, "the refill has begun")
    stage.members["c"].kill()
    for number in range(60):
        stage.put("a", f"w{number}", 1_000)
        stage.run_for(0.01)
    before = _first(stage, "a")
    _trim(stage, 110)
    stage.run_until(lambda: _first(stage, "a") > before + 40, 10.0, "the head is trimmed again")
    del stage.puts[:-10]
    stage.start_member("c")
    stage.run_until(lambda: _is_whole(stage, "c"), 60.0, "c is whole")
    assert _first(stage, "c") > before
    stage.finish()


def test_a_wiped_member_is_not_trusted_before_all_know_of_it() -> None:
    """D18 (a): it is refilled by one peer, and stays in quarantine until the other one knows of it.

    The other one is cut off from it, and not killed: without two members there is no leader, and it
    depends on moments whether the last one still tells the wiped one what it needs.
    """
    stage = _trimmed()
    stage.cut("b", "c")
    stage.run_for(0.1)
    _wipe(stage, "c")
    stage.run_until(lambda: stage.counts["started anew"] == 1, 20.0, "c is refilled by a")
    stage.run_for(3.0)
    assert stage.members["c"].role is Role.QUARANTINED
    stage.join_pair("b", "c")
    stage.run_until(lambda: _is_whole(stage, "c"), 20.0, "b has recorded the new life")
    stage.finish()
