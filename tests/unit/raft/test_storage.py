"""Versions of the hard state, what a round covers, and `flush: async`."""

from dledger.log.hard_state import HardState
from dledger.raft.api import WriteRound
from dledger.raft.message import VoteAnswer
from dledger.raft.storage import Storage
from dledger.types import Durability, MemberId, Term
from dledger_proto.errors import Outcome
from tests.unit.raft.harness import World


class Round:
    def execute(self) -> None: ...


class FakeLog:
    """Hands out a round when the hard state differs from the one on disk, or entries wait."""

    def __init__(self) -> None:
        self.last_index = 5
        self.durable_index = 5
        self.on_disk = HardState()
        self.taken: list[HardState | None] = []

    def take_round(self, state: HardState | None) -> WriteRound | None:
        self.taken.append(state)
        if state in (None, self.on_disk) and self.last_index == self.durable_index:
            return None
        self.on_disk = state or self.on_disk
        return Round()

    def round_finished(self, _finished: WriteRound) -> None:
        self.durable_index = self.last_index


def storage_on(log: FakeLog, durability: Durability = Durability.SYNC) -> Storage:
    return Storage(log, HardState(), durability, hang_limit=2.0)  # type: ignore[arg-type]


def test_a_round_covers_what_was_known_when_it_was_taken() -> None:
    storage = storage_on(FakeLog())
    storage.set_term(1, "a")
    first = storage.take_round(10.0)
    assert first is not None
    storage.set_term(2, None)
    assert storage.take_round(10.0) is None, "one at a time"
    storage.finish_round(first)
    assert storage.durable_state == HardState(term=Term(1), vote="a")
    assert storage.durable_version < storage.version
    second = storage.take_round(10.0)
    assert second is not None
    storage.finish_round(second)
    assert storage.durable_version == storage.version


def test_a_change_that_was_taken_back_needs_no_round() -> None:
    storage = storage_on(FakeLog())
    storage.set_incarnation(MemberId("b"), bytes(16))
    storage.begin_life({}, quarantined=False)
    assert storage.version == 2
    assert storage.take_round(10.0) is None
    assert storage.durable_version == 2


def test_nothing_dirty_asks_the_log_for_nothing() -> None:
    log = FakeLog()
    storage = storage_on(log)
    storage.take_round(10.0)
    asked = len(log.taken)
    for _ in range(10):
        assert storage.take_round(10.0) is None
    assert len(log.taken) == asked
    storage.touch()
    storage.take_round(10.0)
    assert len(log.taken) == asked + 1


def test_a_round_in_flight_for_too_long_hangs() -> None:
    log = FakeLog()
    storage = storage_on(log)
    assert storage.hang_at is None
    log.last_index = 6
    taken = storage.take_round(10.0)
    assert taken is not None
    assert storage.hang_at == 12.0
    assert not storage.hangs(11.9)
    assert storage.hangs(12.0)
    storage.finish_round(taken)
    assert not storage.hangs(100.0)


def test_async_covers_the_log_but_never_term_and_vote() -> None:
    log = FakeLog()
    storage = storage_on(log, Durability.ASYNC)
    log.last_index = 9
    assert storage.covered_index == 9
    storage.set_term(1, "a")
    assert storage.durable_version < storage.version


def test_async_acknowledges_before_the_sync_and_votes_after_it() -> None:
    world = World(durability=Durability.ASYNC)
    leader = world.elect("a")
    world.run(0.3)
    for member in world.alive:
        member.disk_stalls = True
    call = leader.put(b"one")
    world.run(0.1)
    assert call.outcome is Outcome.STORED
    candidate = world["c"]
    world.sent.clear()
    candidate.group._parts.elections.campaign("test")
    candidate.drain()
    world.run(0.1)
    assert not [message for _, _, message in world.sent if isinstance(message, VoteAnswer)]
