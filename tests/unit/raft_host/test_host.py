"""Three hosts with real groups, logs, links and disks in one process: elect, commit, go on."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from dledger.clock import SystemClock
from dledger.files import OsFileSystem
from dledger.log.commit_log import CommitLog
from dledger.log.folder import DataFolder
from dledger.log.settings import LogSettings
from dledger.raft.api import GroupSettings, Role
from dledger.raft.driver.host import GroupHost, HostSettings
from dledger.raft.driver.worker import ThreadWorker
from dledger.raft.group import RISK_SENTENCE, RaftGroup
from dledger.raft.links.greeting import LinkIdentity
from dledger.raft.links.peer_link import LinkSettings, PeerLink
from dledger.raft.links.peer_listener import LinkTarget, PeerListener
from dledger.raft.wire.messages import TermNotice
from dledger.state.commands.registry import encode
from dledger.state.machine import StateMachine
from dledger.state.producers.registration import RegisterProducer
from dledger.state.results import Registered
from dledger.store.lmdb_store import LmdbStore
from dledger.store.store import StoreFull
from dledger.types import EntryKind, LogIndex, MemberId, Settled
from dledger_proto.errors import Code, DledgerError, Outcome
from dledger_proto.limits import MIB
from dledger_proto.network.ports import free_ports
from tests.list_trace import ListTrace
from tests.waiting import until

SCENARIO_SECONDS = 60
MEMBERS = [MemberId(name) for name in ("a", "b", "c")]
LOG_SETTINGS = LogSettings(
    segment_size=16 * MIB, allocate_bytes=MIB, reserve_bytes=MIB, low_water_bytes=MIB
)


class Node:
    """Everything of one member but the broker."""

    def __init__(self, folder: Path, member: MemberId, ports: dict[MemberId, int]) -> None:
        self.path, self.member, self.ports = folder / member, member, ports
        self.failures: list[BaseException] = []
        self.life = 0

    async def start(self) -> None:
        self.life += 1
        fs, random = OsFileSystem(), Random(f"{self.member} {self.life}")
        self.folder = DataFolder.open(fs, str(self.path), "c", "g", self.member, random)
        self.log = CommitLog(fs, self.folder, LOG_SETTINGS, random)
        self.store = LmdbStore(self.folder.state_path, 64 * MIB)
        self.machine = StateMachine(self.store, "g")
        self.trace = ListTrace()
        group = RaftGroup(
            GroupSettings("c", "g", self.member, MEMBERS),
            self.folder.identity,
            self.log,
            self.folder.load_hard_state(),
            self.machine,
            SystemClock(),
            random,
            self.trace,
        )
        self.host = GroupHost(
            group,
            self.machine,
            self.log,
            HostSettings(save_interval=0.05, state_full=StoreFull),
            SystemClock(),
            self.failures.append,
            ThreadWorker,
            name="g",
        )
        await self._connect(random)

    async def _connect(self, random: Random) -> None:
        identity = LinkIdentity("c", "g", self.member, self.folder.identity.incarnation)
        pool = ThreadPoolExecutor(2)
        self.links = {
            peer: PeerLink(
                identity, peer, f"127.0.0.1:{port}", self.host, self.log, pool, random,
                self.trace, LinkSettings(),
            )
            for peer, port in self.ports.items() if peer != self.member
        }  # fmt: skip
        listener = PeerListener("c", self.trace)
        listener.add_group(
            "g", LinkTarget(self.member, frozenset(self.links), self.host, self.links)
        )
        self.listener = listener
        await listener.listen(f"127.0.0.1:{self.ports[self.member]}")
        self.host.start(self.links)
        for link in self.links.values():
            link.start()

    async def stop(self) -> None:
        await self.host.stop()
        await self.hang_up()
        self.log.close()
        self.machine.close()
        self.folder.close()

    async def hang_up(self) -> None:
        """End the links."""
        for link in self.links.values():
            await link.stop()
        self.listener.close()

    @property
    def leads(self) -> bool:
        return self.host.leadership.role is Role.LEADER


@asynccontextmanager
async def nodes(folder: Path) -> AsyncIterator[list[Node]]:
    ports = dict(zip(MEMBERS, free_ports(len(MEMBERS)), strict=True))
    found = [Node(folder, member, ports) for member in MEMBERS]
    running: list[Node] = []
    try:
        for node in found:
            await node.start()
            running.append(node)
        yield found
    finally:
        for node in running:
            if node.host.group.role is Role.STOPPED:
                await node.hang_up()
            else:
                await node.stop()


async def leader_of(found: list[Node]) -> Node:
    await until(lambda: any(node.leads for node in found), "a leader")
    return next(node for node in found if node.leads)


def register(seed: int) -> bytes:
    return encode(RegisterProducer(Random(seed).randbytes(16), bytes([1] * 16)))


def run(folder: Path, scenario: Callable[[list[Node]], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(SCENARIO_SECONDS), nodes(folder) as found:
            await scenario(found)

    asyncio.run(whole())


def test_a_proposal_is_stored_everywhere(tmp_path: Path) -> None:
    async def scenario(found: list[Node]) -> None:
        leader = await leader_of(found)
        settled = await leader.host.propose(EntryKind.COMMANDS, [register(1), register(2)])
        assert settled.outcome is Outcome.STORED
        assert [type(result) for result in settled.results] == [Registered, Registered]
        for node in found:
            async with asyncio.timeout(10):
                await node.host.wait_applied(settled.index)
        digests = {node.machine.digest for node in found}
        assert len(digests) == 1
        assert all(not node.failures for node in found)

    run(tmp_path, scenario)


def test_a_follower_refuses_and_a_barrier_works_everywhere(tmp_path: Path) -> None:
    async def scenario(found: list[Node]) -> None:
        leader = await leader_of(found)
        follower = next(node for node in found if node is not leader)
        await until(lambda: follower.host.leadership.leader == leader.member, "it knows the leader")
        settled = await follower.host.propose(EntryKind.COMMANDS, [register(1)])
        assert (settled.outcome, settled.code, settled.index) == (
            Outcome.NOT_STORED,
            Code.NOT_LEADER,
            0,
        )
        stored = await leader.host.propose(EntryKind.COMMANDS, [register(1)])
        indexes = await asyncio.gather(*(follower.host.read_barrier() for _ in range(50)))
        assert min(indexes) >= stored.index
        await follower.host.wait_applied(max(indexes))

    run(tmp_path, scenario)


def test_the_group_survives_one_that_leaves_and_returns(tmp_path: Path) -> None:
    async def scenario(found: list[Node]) -> None:
        leader = await leader_of(found)
        await leader.host.propose(EntryKind.COMMANDS, [register(1)])
        await leader.stop()
        rest = [node for node in found if node is not leader]
        second = await leader_of(rest)
        settled = await second.host.propose(EntryKind.COMMANDS, [register(2)])
        assert settled.outcome is Outcome.STORED
        await leader.start()
        await leader.host.wait_applied(settled.index)
        assert leader.machine.digest == second.machine.digest
        assert await second.host.transfer(leader.member) in (leader.member, None)
        await until(lambda: leader.leads, "the member that returned leads")

    run(tmp_path, scenario)


def test_the_state_is_saved_without_being_asked(tmp_path: Path) -> None:
    async def scenario(found: list[Node]) -> None:
        leader = await leader_of(found)
        settled = await leader.host.propose(EntryKind.COMMANDS, [register(1)])
        for node in found:
            await until(lambda node=node: node.machine.saved_index >= settled.index, "it is saved")  # type: ignore[misc]

    run(tmp_path, scenario)


def test_a_failing_disk_stops_the_member_at_once(tmp_path: Path) -> None:
    """I16: the round fails, nothing more is promised, whoever waits is told, the process too."""

    async def scenario(found: list[Node]) -> None:
        leader = await leader_of(found)

        class Failing:
            def execute(self) -> None:
                raise OSError(5, "EIO")

        real = leader.log.take_round

        def failing(hard_state: object, **how: bool) -> object:
            taken = real(hard_state, **how)  # type: ignore[arg-type]
            return taken and Failing()

        leader.log.take_round = failing  # type: ignore[method-assign, assignment]
        settled = await leader.host.propose(EntryKind.COMMANDS, [register(1)])
        assert settled.outcome is Outcome.UNKNOWN
        assert [type(error) for error in leader.failures] == [OSError]
        again = await leader.host.propose(EntryKind.COMMANDS, [register(2)])
        assert (again.outcome, again.code) == (Outcome.NOT_STORED, Code.STORAGE_FAILED)
        with pytest.raises(DledgerError):
            await leader.host.read_barrier()
        with pytest.raises(DledgerError):
            await leader.host.wait_applied(LogIndex(10**9))
        rest = [node for node in found if node is not leader]
        second = await leader_of(rest)
        stored = await second.host.propose(EntryKind.COMMANDS, [register(3)])
        assert stored.outcome is Outcome.STORED

    run(tmp_path, scenario)


@pytest.mark.parametrize("call", ["append_frames", "round_finished"])
def test_an_error_met_in_any_input_ends_the_member(tmp_path: Path, call: str) -> None:
    """I16: a log that cannot be read while a message is taken is no smaller matter than a write."""

    async def scenario(found: list[Node]) -> None:
        leader = await leader_of(found)
        follower = next(node for node in found if node is not leader)

        def failing(*_given: object) -> None:
            raise OSError(5, "EIO")

        setattr(follower.log, call, failing)
        stored = await leader.host.propose(EntryKind.COMMANDS, [register(1)])
        assert stored.outcome is Outcome.STORED
        await until(lambda: follower.host.group.role is Role.STOPPED, "its group stops")
        await until(lambda: bool(follower.failures), "the process is told")
        assert [type(error) for error in follower.failures] == [OSError]
        assert follower.host._failure is follower.failures[0]

    run(tmp_path, scenario)


def test_a_proposal_that_meets_damage_is_answered(tmp_path: Path) -> None:
    """The caller hears that nothing is stored, and the member ends: nobody waits for a time-out."""

    async def scenario(found: list[Node]) -> None:
        leader = await leader_of(found)

        def damaged(*_given: object) -> None:
            raise OSError(5, "EIO")

        leader.log.size_between = damaged  # type: ignore[method-assign, assignment]
        leader.host.group._wiring.refusals._tail_seen = (LogIndex(0), LogIndex(0))
        settled: list[Settled] = []
        leader.host.propose_nowait(EntryKind.COMMANDS, [register(1)], settled.append)
        answer = settled[0]
        assert (answer.outcome, answer.code) == (Outcome.NOT_STORED, Code.STORAGE_FAILED)
        assert [type(error) for error in leader.failures] == [OSError]

    run(tmp_path, scenario)


def test_a_lifted_quarantine_is_written_at_once(tmp_path: Path) -> None:
    """The operator's word does not wait for the next tick: it is pumped, and others hear of it."""

    async def scenario(found: list[Node]) -> None:
        leader = await leader_of(found)
        wiped, away = (node for node in found if node is not leader)
        await away.stop()
        await wiped.stop()
        shutil.rmtree(wiped.path)
        await wiped.start()
        host = wiped.host
        await until(lambda: host.group.role is Role.QUARANTINED, "it is quarantined")
        await until(lambda: wiped.folder.load_hard_state().quarantined, "that is on disk")
        with pytest.raises(DledgerError, match="sentence"):
            host.lift_quarantine(wiped.member, "please")
        host._scheduled = False  # whatever else is due
        host.lift_quarantine(wiped.member, RISK_SENTENCE)
        assert host._scheduled, "a pump is due"
        await until(lambda: not wiped.folder.load_hard_state().quarantined, "the lift is on disk")
        await leader_of([leader, wiped])

    run(tmp_path, scenario)


def test_an_old_copy_of_a_folder_is_noticed_and_renewed(tmp_path: Path) -> None:
    """D18 on real disks: a follower that has forgotten what it acknowledged is one without data."""

    async def scenario(found: list[Node]) -> None:
        leader = await leader_of(found)
        follower = next(node for node in found if node is not leader)
        await follower.stop()
        shutil.copytree(follower.path, tmp_path / "copy")
        await follower.start()
        life = follower.host.group.status().incarnation
        settled = await leader.host.propose(EntryKind.COMMANDS, [register(1)])
        await follower.host.wait_applied(settled.index)
        replication = leader.host.group._wiring.replication
        await until(lambda: replication.trim_floor() >= settled.index, "all have acknowledged it")
        await follower.stop()
        shutil.rmtree(follower.path)
        (tmp_path / "copy").rename(follower.path)
        await follower.start()
        group = follower.host.group
        await until(lambda: bool(leader.trace.named("forgotten")), "it is noticed")
        await until(lambda: group.status().incarnation != life, "it begins a new life")
        await until(lambda: group.role is Role.FOLLOWER, "it is trusted again")
        await follower.host.wait_applied(settled.index)
        assert follower.machine.digest == leader.machine.digest
        assert not any(node.failures for node in found)

    run(tmp_path, scenario)


def test_an_input_that_only_brings_a_deadline_forward_is_pumped(tmp_path: Path) -> None:
    """Its timer was left as it was: hellos were repeated, and elections begun, much too late."""

    async def scenario(found: list[Node]) -> None:
        leader = await leader_of(found)
        host = next(node for node in found if node is not leader).host
        await until(lambda: not host._scheduled and not host.group.has_outputs, "it rests")

        def receive(_peer: MemberId, _message: object, now: float) -> None:
            host.group._wiring.elections._deadline = now

        host.group.receive = receive  # type: ignore[method-assign, assignment]
        host._timer.at += 10
        host.received(leader.member, TermNotice(0))
        assert host._scheduled, "a pump is due"

    run(tmp_path, scenario)


def test_a_proposal_to_a_leader_at_rest_is_pumped_at_once(tmp_path: Path) -> None:
    """And while leadership is handed over none is: nothing would come of it."""

    async def scenario(found: list[Node]) -> None:
        leader = await leader_of(found)
        host = leader.host
        settled: list[Settled] = []

        def at_rest() -> bool:
            group = host.group
            return group.commit_index == leader.log.last_index and not host._scheduled

        await until(at_rest, "it rests")
        host.propose_nowait(EntryKind.COMMANDS, [b"first"], settled.append)
        assert host._scheduled
        await until(lambda: bool(settled), "it is stored")
        await until(at_rest, "it rests again")
        host.group._wiring.transfer._done = lambda _done, _reason: None
        host.propose_nowait(EntryKind.COMMANDS, [b"second"], settled.append)
        assert not host._scheduled, "while leadership is handed over no entry is made"
        host.group._wiring.transfer._done = None
        host._due()
        await until(lambda: len(settled) == 2, "it is stored")

    run(tmp_path, scenario)


def test_callers_that_give_up_are_forgotten(tmp_path: Path) -> None:
    """I17: a member that is cut off applies nothing, and its readers come and go."""

    async def scenario(found: list[Node]) -> None:
        host = (await leader_of(found)).host
        patient = asyncio.ensure_future(host.wait_applied(LogIndex(host.applied_index + 1)))
        await asyncio.sleep(0)
        for _ in range(200):
            waiting = [asyncio.ensure_future(host.wait_applied(LogIndex(10**9))) for _ in range(5)]
            await asyncio.sleep(0)
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        assert len(host._applied_waiters) <= 6
        stored = await host.propose(EntryKind.COMMANDS, [register(1)])
        assert stored.outcome is Outcome.STORED
        await patient

    run(tmp_path, scenario)


def test_an_idle_host_does_not_spin(tmp_path: Path) -> None:
    """The loop turns a few times for each heartbeat, not more."""

    async def scenario(found: list[Node]) -> None:
        leader = await leader_of(found)
        await until(lambda: leader.machine.saved_index == leader.machine.applied_index, "saved")
        pumps = 0
        real = leader.host._pump

        def counted() -> None:
            nonlocal pumps
            pumps += 1
            real()

        leader.host._pump = counted  # type: ignore[method-assign]
        seen = [len(leader.trace.events)]
        async with asyncio.timeout(10):
            for _ in range(10):  # ten heartbeats' time, told by the group's own deadlines
                deadline = leader.host.group.next_deadline()
                assert deadline is not None
                await until(lambda at=deadline: SystemClock().monotonic() > at, "a deadline")  # type: ignore[misc]
        assert pumps < 200, (pumps, seen)

    run(tmp_path, scenario)
