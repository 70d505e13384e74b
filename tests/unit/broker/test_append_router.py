"""The router: order, elections, forwarding once, and that no proposed batch is ever sent again."""

import asyncio
from collections.abc import Sequence

from dledger.raft.api import Role
from dledger.raft.commit.proposals import PORTION_SIZE_TARGET
from dledger.state.results import Appended, Refused
from dledger.types import Buffer, EntryKind, LogIndex, OnSettled, Settled, Term
from dledger_broker.append.router import AppendRouter, PendingBatch
from dledger_broker.metrics.meters import GroupMeters
from dledger_proto.errors import Code, Outcome
from tests.unit.broker.fakes import (
    ME,
    NAMES,
    OTHER,
    AnswerList,
    FakeForwarder,
    FakeHost,
    ManualClock,
    refusal,
)
from tests.waiting import until

LEADER_NAME = "dledger://c/member/g/n2"


class Stage:
    """A router with everything around it replaced."""

    def __init__(self, role: Role = Role.LEADER, host: FakeHost | None = None) -> None:
        self.clock = ManualClock()
        self.host = host or FakeHost(role, ME if role is Role.LEADER else None)
        self.forwarder = FakeForwarder()
        self.owner = AnswerList()
        self.router = AppendRouter(
            self.host,
            NAMES,
            self.forwarder.send,
            self.clock,
            GroupMeters(),
        )

    def items(self, *bodies: bytes, seconds: float = 10.0) -> list[PendingBatch]:
        deadline = self.clock.now + seconds
        return [
            PendingBatch(memoryview(body), number, deadline, self.owner)
            for number, body in enumerate(bodies, 1)
        ]

    async def submit(self, *bodies: bytes, forwarded: bool = False, seconds: float = 10.0) -> None:
        self.router.submit(self.items(*bodies, seconds=seconds), forwarded=forwarded)
        await turn()


async def turn() -> None:
    """Let callbacks of this turn of the loop run."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def stored(*offsets: int) -> Settled:
    return Settled(
        Outcome.STORED,
        Code.OK,
        index=LogIndex(7),
        term=Term(3),
        results=[Appended(offset, 1) for offset in offsets],
    )


def test_what_comes_in_one_turn_is_one_proposal() -> None:
    async def run() -> None:
        stage = Stage()
        stage.router.submit(stage.items(b"a"), forwarded=False)
        stage.router.submit(stage.items(b"b", b"c"), forwarded=False)
        await turn()
        assert [payloads for payloads, _ in stage.host.proposals] == [[b"a", b"b", b"c"]]
        stage.host.settle(stored(4, 5, 6))
        assert [row.base_offset for row in stage.owner.rows] == [4, 5, 6]
        assert {(row.index, row.term) for row in stage.owner.rows} == {(7, 3)}

    asyncio.run(run())


def test_answers_say_when_a_majority_may_not_have_synced() -> None:
    async def run() -> None:
        stage = Stage()
        for unsynced in (False, True):
            stage.host.unsynced = unsynced
            await stage.submit(b"a")
            stage.host.settle(stored(4))
        assert [row.unsynced for row in stage.owner.rows] == [False, True]

    asyncio.run(run())


def test_large_arrivals_are_cut_into_portions_in_order() -> None:
    async def run() -> None:
        stage = Stage()
        bodies = [bytes([number]) * (PORTION_SIZE_TARGET // 3) for number in range(10)]
        await stage.submit(*bodies)
        assert len(stage.host.proposals) > 1
        assert stage.host.proposed() == bodies

    asyncio.run(run())


def test_void_batches_say_why() -> None:
    async def run() -> None:
        stage = Stage()
        await stage.submit(b"a", b"b")
        results = [Refused(Code.SEQUENCE_GAP, "after 3"), Appended(1, 1, duplicate=True)]
        stage.host.settle(Settled(Outcome.STORED, Code.OK, results=results))
        assert [row.code for row in stage.owner.rows] == [Code.SEQUENCE_GAP, Code.OK]
        assert stage.owner.rows[1].duplicate

    asyncio.run(run())


def test_unknown_travels_and_is_never_repeated() -> None:
    async def run() -> None:
        stage = Stage()
        await stage.submit(b"a")
        stage.host.become(Role.FOLLOWER, OTHER)
        stage.host.settle(Settled(Outcome.UNKNOWN, Code.UNKNOWN_OUTCOME, "lost"))
        await turn()
        assert [row.code for row in stage.owner.rows] == [Code.UNKNOWN_OUTCOME]
        assert stage.forwarder.sent == []
        assert stage.host.proposals == []

    asyncio.run(run())


def test_a_replaced_entry_is_answered_not_repeated() -> None:
    """It is certainly not stored, but it was proposed: the client alone retries (D10)."""

    async def run() -> None:
        stage = Stage()
        await stage.submit(b"a")
        stage.host.become(Role.FOLLOWER, OTHER)
        stage.host.settle(refusal(Code.NOT_LEADER, index=9))
        await turn()
        assert [row.code for row in stage.owner.rows] == [Code.NOT_LEADER]
        assert stage.forwarder.sent == []

    asyncio.run(run())


def test_never_proposed_goes_to_the_new_leader() -> None:
    async def run() -> None:
        stage = Stage()
        await stage.submit(b"a", b"b")
        stage.host.become(Role.FOLLOWER, OTHER)
        stage.host.settle(refusal(Code.NOT_LEADER))
        await turn()
        assert stage.owner.rows == []
        leader, items = stage.forwarder.sent[0]
        assert (leader.address, leader.name) == ("n2:1", LEADER_NAME)
        assert [bytes(item.batch) for item in items] == [b"a", b"b"]

    asyncio.run(run())


def test_a_leader_that_was_deposed_this_moment_waits_for_the_next() -> None:
    """The group refuses at once while the host still says leader: no endless proposing."""

    class Deposed(FakeHost):
        def propose_nowait(
            self,
            kind: EntryKind,
            payloads: Sequence[Buffer],
            settled: OnSettled,
            *,
            frees_space: bool = False,
            rows: int = 0,
        ) -> None:
            super().propose_nowait(kind, payloads, settled)
            self.proposals.clear()
            settled(refusal(Code.NOT_LEADER))

    async def run() -> None:
        stage = Stage(host=Deposed())
        large = bytes(PORTION_SIZE_TARGET)
        await stage.submit(b"a", large, b"b")
        assert len(stage.router._parked) == 3
        stage.host.become(Role.FOLLOWER, OTHER)
        await turn()
        [(leader, items)] = stage.forwarder.sent
        assert (leader.address, leader.name) == ("n2:1", LEADER_NAME)
        assert [bytes(item.batch) for item in items] == [b"a", large, b"b"]

    asyncio.run(run())


def test_an_election_is_waited_out_in_order() -> None:
    async def run() -> None:
        stage = Stage(Role.FOLLOWER)
        await stage.submit(b"a")
        await stage.submit(b"b")
        assert len(stage.router._parked) == 2
        stage.host.become(Role.LEADER, ME)
        await turn()
        assert stage.host.proposed() == [b"a", b"b"]

    asyncio.run(run())


def test_the_deadline_ends_the_wait() -> None:
    async def run() -> None:
        stage = Stage(Role.FOLLOWER)
        await stage.submit(b"late", seconds=1.0)
        await stage.submit(b"later", seconds=5.0)
        stage.clock.now += 2.0
        await until(lambda: len(stage.owner.rows) == 1, "an answer")
        assert stage.owner.rows[0].code is Code.NO_LEADER
        assert len(stage.router._parked) == 1

    asyncio.run(run())


def test_a_forwarded_batch_is_not_forwarded_again() -> None:
    async def run() -> None:
        stage = Stage(Role.FOLLOWER)
        stage.host.become(Role.FOLLOWER, OTHER)
        await stage.submit(b"a", forwarded=True)
        row = stage.owner.rows[0]
        assert (row.code, row.hint, row.term) == (Code.NOT_LEADER, "published-2:1", 4)
        assert stage.forwarder.sent == []

    asyncio.run(run())


def test_what_could_not_be_sent_goes_first_again() -> None:
    async def run() -> None:
        stage = Stage(Role.FOLLOWER)
        await stage.submit(b"second")
        stage.router.reroute(stage.items(b"first"))
        stage.host.become(Role.LEADER, ME)
        await turn()
        assert stage.host.proposed() == [b"first", b"second"]

    asyncio.run(run())


def test_stopping_refuses_what_waits() -> None:
    async def run() -> None:
        stage = Stage(Role.FOLLOWER)
        await stage.submit(b"a")
        stage.router.stop()
        await stage.submit(b"b")
        assert [row.code for row in stage.owner.rows] == [Code.SHUTTING_DOWN] * 2

    asyncio.run(run())


def test_what_comes_back_while_stopping_is_refused() -> None:
    async def scenario() -> None:
        stage = Stage(Role.FOLLOWER)
        items = stage.items(b"a", b"b")
        stage.router.stop()
        stage.router.reroute(items)
        assert [row.code for row in stage.owner.rows] == [Code.SHUTTING_DOWN] * 2

    asyncio.run(scenario())
