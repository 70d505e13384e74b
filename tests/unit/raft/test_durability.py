"""Versions of the hard state, what a round covers, and `flush: async`."""

import math
from dataclasses import replace
from typing import cast

import pytest

from dledger.log.errors import DamagedFile
from dledger.log.hard_state import HardState
from dledger.raft.api import GroupSettings
from dledger.raft.durability import CHECKPOINT_IDLE_SECONDS, FLUSH_BYTES, Durability
from dledger.raft.wire.messages import VoteAnswer
from dledger.types import FlushMode, MemberId, Term
from dledger_proto.errors import Outcome
from tests.unit.raft.harness import Call, ListMachine, World


class FakeRound:
    def __init__(self, *, sync: bool, checkpoint: bool) -> None:
        self.sync = sync
        self.checkpoint = checkpoint

    def execute(self) -> None: ...


class FakeLog:
    """Hands out a round when the hard state differs from the one on disk, or entries wait.

    Every entry has 1 KiB.
    """

    def __init__(self) -> None:
        self.last_index = 5
        self.written_index = 5
        self.durable_index = 5
        self.checkpoint_index = 5
        self.on_disk = HardState()
        self.taken: list[HardState | None] = []

    @property
    def unsynced_bytes(self) -> int:
        return (self.written_index - self.durable_index) * 1024

    @property
    def checkpoint_is_behind(self) -> bool:
        return self.checkpoint_index != self.durable_index

    def take_round(
        self, state: HardState | None, *, sync: bool, checkpoint: bool
    ) -> FakeRound | None:
        self.taken.append(state)
        is_changed = state not in (None, self.on_disk)
        is_dirty = self.last_index != (self.durable_index if sync else self.written_index)
        if not (is_changed or is_dirty or checkpoint):
            return None
        self.on_disk = state or self.on_disk
        return FakeRound(sync=sync, checkpoint=checkpoint)

    def round_finished(self, finished: FakeRound) -> None:
        self.written_index = self.last_index
        if finished.sync:
            self.durable_index = self.written_index
        if finished.checkpoint:
            self.checkpoint_index = self.durable_index


def durability_on(log: FakeLog, flush: FlushMode = FlushMode.SYNC) -> Durability:
    return Durability(
        log, HardState(), flush, hang_limit=2.0, flush_interval=0.5, now=10.0,  # type: ignore[arg-type]
    )  # fmt: skip


def run_round(durability: Durability, now: float) -> FakeRound | None:
    """Take and finish the round that is due, if one is."""
    taken = durability.take_round(now)
    if taken is None:
        return None
    durability.finish_round(taken, now)
    return cast("FakeRound", taken)


def test_a_round_covers_what_was_known_when_it_was_taken() -> None:
    durability = durability_on(FakeLog())
    durability.set_term(1, "a")
    first = durability.take_round(10.0)
    assert first is not None
    durability.set_term(2, None)
    assert durability.take_round(10.0) is None, "one at a time"
    durability.finish_round(first, 10.0)
    assert durability.durable_state == HardState(term=Term(1), vote="a")
    assert durability.durable_version < durability.version
    second = durability.take_round(10.0)
    assert second is not None
    durability.finish_round(second, 10.0)
    assert durability.durable_version == durability.version


def test_a_change_that_was_taken_back_needs_no_round() -> None:
    durability = durability_on(FakeLog())
    durability.set_incarnation(MemberId("b"), bytes(16))
    durability.begin_life({}, quarantined=False)
    assert durability.version == 2
    assert durability.take_round(10.0) is None
    assert durability.durable_version == 2


def test_nothing_dirty_asks_the_log_for_nothing() -> None:
    log = FakeLog()
    durability = durability_on(log)
    durability.take_round(10.0)
    asked = len(log.taken)
    for _ in range(10):
        assert durability.take_round(10.0) is None
    assert len(log.taken) == asked
    durability.touch()
    durability.take_round(10.0)
    assert len(log.taken) == asked + 1


def test_a_round_in_flight_for_too_long_hangs() -> None:
    log = FakeLog()
    durability = durability_on(log)
    assert durability.hang_at is None
    log.last_index = 6
    taken = durability.take_round(10.0)
    assert taken is not None
    assert durability.hang_at == 12.0
    assert not durability.hangs(11.9)
    assert durability.hangs(12.0)
    durability.finish_round(taken, 10.0)
    assert not durability.hangs(100.0)


def test_sync_acknowledges_what_a_round_synced() -> None:
    log = FakeLog()
    durability = durability_on(log)
    log.last_index = 9
    taken = run_round(durability, 10.0)
    assert taken is not None
    assert taken.sync
    assert durability.covered_index == log.durable_index == 9


def test_async_acknowledges_what_is_written_and_nothing_before() -> None:
    log = FakeLog()
    durability = durability_on(log, FlushMode.ASYNC)
    log.last_index = 9
    assert durability.covered_index == 5, "nothing has written the entries yet"
    taken = run_round(durability, 10.0)
    assert taken is not None
    assert not taken.sync
    assert durability.covered_index == 9
    assert log.durable_index == 5
    durability.set_term(1, "a")
    assert durability.durable_version < durability.version


def test_async_syncs_within_the_interval_and_then_not_again() -> None:
    log = FakeLog()
    durability = durability_on(log, FlushMode.ASYNC)
    assert durability.next_deadline == math.inf
    log.last_index = 9
    run_round(durability, 10.0)
    log.last_index = 12
    run_round(durability, 10.4)
    assert durability.next_deadline == 10.5, "counted from the oldest write that is not synced"
    assert run_round(durability, 10.49) is None
    taken = run_round(durability, 10.5)
    assert taken is not None
    assert taken.sync
    assert log.durable_index == 12
    assert durability.next_deadline >= 10.5 + CHECKPOINT_IDLE_SECONDS


def test_async_syncs_when_much_is_not_synced() -> None:
    log = FakeLog()
    durability = durability_on(log, FlushMode.ASYNC)
    log.last_index += FLUSH_BYTES // 1024 - 1
    run_round(durability, 10.0)
    assert run_round(durability, 10.01) is None
    log.last_index += 1
    taken = run_round(durability, 10.02)
    assert taken is not None
    assert not taken.sync, "what it brings is acknowledged before the sync begins"
    assert durability.next_deadline <= 10.02
    taken = run_round(durability, 10.02)
    assert taken is not None
    assert taken.sync


@pytest.mark.parametrize("flush", list(FlushMode))
def test_an_idle_log_gets_one_checkpoint_and_then_nothing(flush: FlushMode) -> None:
    log = FakeLog()
    durability = durability_on(log, flush)
    log.last_index = 9
    run_round(durability, 10.0)
    rounds: list[tuple[float, bool]] = []
    while (now := durability.next_deadline) < math.inf:
        taken = run_round(durability, now)
        assert taken is not None
        rounds.append((now, taken.checkpoint))
    idle = CHECKPOINT_IDLE_SECONDS
    is_synced = flush is FlushMode.SYNC
    assert rounds == ([(10.0 + idle, True)] if is_synced else [(10.5, False), (10.5 + idle, True)])
    assert run_round(durability, 2000.0) is None


def test_a_log_that_is_written_to_is_not_idle() -> None:
    log = FakeLog()
    durability = durability_on(log)
    for number in range(20):
        log.last_index += 1
        taken = run_round(durability, 10.0 + 0.9 * number)
        assert taken is not None
        assert not taken.checkpoint


def test_async_acknowledges_before_the_sync_and_votes_after_it() -> None:
    world = World(flush=FlushMode.ASYNC)
    leader = world.elect("a")
    world.run(1.0)
    for member in world.alive:
        member.disk_stalls = True
    lost = leader.put(b"lost")
    world.run(0.1)
    assert lost.outcome is None, "nobody has written it"
    for member in world.alive:
        member.disk_stalls = False
        member.drain()
    world.run(0.1)
    call = leader.put(b"one")
    world.run(0.1)
    assert call.outcome is Outcome.STORED
    assert leader.log.durable_index < leader.log.written_index == leader.log.last_index
    world.run(0.6)
    assert leader.log.durable_index == leader.log.last_index
    for member in world.alive:
        member.disk_stalls = True
    candidate = world["c"]
    world.sent.clear()
    candidate.group._wiring.elections.campaign("test")
    candidate.drain()
    world.run(0.1)
    assert not [message for _, _, message in world.sent if isinstance(message, VoteAnswer)]


def test_async_loses_no_acknowledgement_when_every_process_is_killed() -> None:
    world = World(flush=FlushMode.ASYNC)
    leader = world.elect("a")
    world.run(1.0)
    calls = [leader.put(b"%d" % number) for number in range(5)]
    world.run(0.1)
    assert {call.outcome for call in calls} == {Outcome.STORED}
    assert leader.log.durable_index < leader.log.last_index
    for member in list(world.alive):
        member.kill()
    for member in world.members.values():
        member.start()
    world.run(3.0)
    assert all(member.machine.values == leader.machine.values for member in world.alive)
    assert {call.value for call in calls} <= set(leader.machine.values)


def unsynced_then_cut(world: World, names: str) -> list[Call]:
    """Acknowledge entries that nobody has synced, then cut the power of some members."""
    leader = world.elect("a")
    world.run(1.0)
    calls = [leader.put(bytes(3_000)) for _ in range(4)]
    world.run(0.1)
    assert {call.outcome for call in calls} == {Outcome.STORED}
    for member in list(world.alive):
        assert member.log.durable_index < member.log.last_index - 2
        member.kill(power_cut=member.name in names)
        if member.name in names:
            member.machine = ListMachine()  # its state was saved up to the synced part at most
    return calls


def test_async_loses_in_a_power_cut_of_all_and_the_group_goes_on() -> None:
    world = World(flush=FlushMode.ASYNC)
    calls = unsynced_then_cut(world, "abc")
    for member in world.members.values():
        member.start()
    world.run(3.0)
    (leader,) = world.leaders
    assert len(leader.machine.values) < len(calls), "nothing was lost: the test proves nothing"
    call = leader.put(b"new")
    world.run(0.5)
    assert call.outcome is Outcome.STORED
    world.assert_equal_logs()


def test_async_a_member_that_kept_what_the_others_lost_asks_for_repair() -> None:
    """It has applied entries that the group has replaced: no bug of ours, and nothing to go on."""
    world = World(flush=FlushMode.ASYNC)
    unsynced_then_cut(world, "bc")
    world["b"].start()
    world["c"].start()
    world.run(3.0)
    world.leaders[0].put(b"new")
    world.run(0.5)
    world["a"].start()
    with pytest.raises(DamagedFile, match=r"flush: async.*dledger repair"):
        world.run(3.0)


class _Mixed(World):
    """Only `c` flushes asynchronously, as in the middle of a change of configuration."""

    def settings_of(self, name: MemberId) -> GroupSettings:
        flush = FlushMode.ASYNC if name == "c" else FlushMode.SYNC
        return replace(super().settings_of(name), flush=flush)


def test_a_leader_knows_that_a_follower_only_writes() -> None:
    """I6: what it counted may be unsynced, so its results must not claim more."""
    world = _Mixed()
    leader = world.elect("a")
    leader.put(b"one")
    world.run(0.2)
    assert leader.group.counts_unsynced
    assert not _alike(FlushMode.SYNC)
    assert _alike(FlushMode.ASYNC)


def _alike(flush: FlushMode) -> bool:
    world = World(flush=flush)
    leader = world.elect("a")
    leader.put(b"one")
    world.run(0.2)
    return leader.group.counts_unsynced
