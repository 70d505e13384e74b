"""One group as the services see it: its host, state and log, and what every use case needs.

Owns the rules that all use cases share: a member refuses only after it has read confirmed state
(D10), and it names the leader when it refuses. The host alone knows who leads. Others ask
`host.leadership`, or hear of changes by `host.watch_leadership`. Not owned: how a group is
opened and closed (`process.group_runtime`), what each call does (`usecases`).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from typing import Final

from dledger.clock import Clock
from dledger.log.commit_log import CommitLog
from dledger.raft.api import Leadership, Role
from dledger.raft.driver.host import GroupHost
from dledger.repair.findings import Findings
from dledger.state.events import Applied
from dledger.state.machine import StateMachine
from dledger.state.values import AS_THE_CLUSTER, Retention
from dledger.types import MemberId
from dledger_broker.group.commands import Commands
from dledger_broker.group.leases import Leases
from dledger_broker.group.long_poll import LongPoll
from dledger_broker.group.topic_watch import TopicWatch
from dledger_broker.metrics.meters import GroupMeters
from dledger_proto.errors import Code, DledgerError
from dledger_proto.network.tls import Callee, member_name

BARRIER_RETRY_SECONDS: Final = 0.05
ANSWER_BY: Final[ContextVar[float]] = ContextVar("answer_by", default=inf)
"""The latest time for the answer to the current call, on the monotonic clock. A refusal that comes
after the caller's deadline is an unknown outcome for the caller."""
CALL_SECONDS_MAX: Final = 300.0
"""No call is served for longer, whatever its caller's deadline is."""
CONFIRM_SECONDS: Final = 1.25
"""How long a call waits for confirmed state when no deadline is passed on. It is as long as most
elections, and shorter than a try of the client, so that the client learns that nothing was done."""


@dataclass(frozen=True, slots=True)
class GroupNames:
    """The names of this member and its group, and the addresses of the members."""

    cluster: str
    group: str
    member: MemberId
    addresses: Mapping[MemberId, str]
    """Where the members reach each other."""
    clients: Mapping[MemberId, str]
    """Where clients reach the members. Hints and `leader_address` name these; routes carry both."""
    is_control: bool

    def callee(self, member: MemberId) -> Callee:
        """Return whom to call for a member."""
        name = member_name(self.cluster, self.group, member)
        return Callee(self.addresses.get(member, ""), name)


@dataclass(slots=True)
class GroupView:
    """A running group of this process."""

    names: GroupNames
    host: GroupHost
    machine: StateMachine
    topic_watch: TopicWatch
    log: CommitLog
    pool: Executor
    long_poll: LongPoll
    commands: Commands
    clock: Clock
    leases: Leases
    retention: Retention = AS_THE_CLUSTER
    """Of topics that have none of their own."""
    tombstone_ms: int = 0
    """How long a message that deletes its key stays in a compacted topic."""
    refill_says: Callable[[], str] = str
    """Returns what a refill of this member does; empty when none is under way."""
    refill_left_bytes: Callable[[], int] = int
    """Returns how many bytes of log that refill has yet to fetch."""
    keeps_snapshots: Callable[[], bool] = bool
    """Tells whether snapshots of this member may keep the space of what is deleted."""
    endangered: Callable[[], Sequence[str]] = tuple
    """Returns which consumer groups will soon lose messages, if this member leads."""
    look_at: Callable[[int], None] = lambda _position: None
    """Lets a scrub look at a position of the log, because something there could not be read."""
    findings: Findings = field(default_factory=Findings)
    """What the newest scrub of this member found, and what is damaged now."""
    scrub_now: Callable[[int], int] = lambda _rate: 0
    """Begins a scrub with so many bytes in a second, 0 for no bound; returns its number."""
    meters: GroupMeters = field(default_factory=GroupMeters)
    """What is counted for metrics."""
    _leadership_waiters: list[asyncio.Future[None]] = field(default_factory=list)

    def watch(self) -> None:
        """Connect to the events of host and machine; called once, before anything runs."""
        self.host.watch_leadership(self._leadership_changed)
        self.host.watch_leadership(self.meters.leadership_changed)
        self.host.round_took = self.meters.write_seconds.add
        self.machine.events.subscribe(self._applied)

    @property
    def leads(self) -> bool:
        """True while this member leads."""
        return self.host.leadership.role is Role.LEADER

    @property
    def now_ms(self) -> int:
        """The group's time (D8), as far as this member knows it."""
        return max(self.host.time_ms or 0, self.machine.applied_time_ms)

    @property
    def leader(self) -> MemberId | None:
        """The leader this member knows."""
        return self.host.leadership.leader

    def leader_address(self) -> str:
        """Return where clients reach the leader; empty when none is known."""
        leader = self.leader
        return self.names.clients.get(leader, "") if leader is not None else ""

    def leader_callee(self) -> Callee | None:
        """Return whom members call for the leader; None when none is known."""
        leader = self.leader
        if leader is None or leader not in self.names.addresses:
            return None
        return self.names.callee(leader)

    def not_leader(self) -> DledgerError:
        """Return NOT_LEADER naming the leader, its address and the term."""
        leadership = self.host.leadership
        return DledgerError(
            Code.NOT_LEADER,
            f"leader of {self.names.group} is {leadership.leader or 'not known'} "
            f"in term {leadership.term}",
            hint=self.leader_address(),
        )

    def no_leader(self) -> DledgerError:
        """Return why the group cannot serve now."""
        status = self.host.group.status()
        if status.role is Role.UNFORMED:
            return DledgerError(Code.NOT_FORMED, status.reason)
        return DledgerError(
            Code.NO_LEADER,
            status.reason or f"{self.names.group} has no leader in term {status.term}",
        )

    async def leadership_change(self, timeout: float) -> None:
        """Wait for a change of leadership, at most `timeout` seconds."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leadership_waiters.append(future)
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            return
        finally:
            if future in self._leadership_waiters:
                self._leadership_waiters.remove(future)

    async def confirm(self, timeout: float = CONFIRM_SECONDS) -> None:
        """Return once everything that was committed before the call is applied here (D9, D10).

        It waits for the end of an election. NO_LEADER or NOT_FORMED when there is no leader within
        `timeout` seconds, or before the current call must be answered.
        """
        until = min(self.clock.monotonic() + timeout, ANSWER_BY.get())
        while (left := until - self.clock.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self.host.wait_applied(await self.host.read_barrier())
            except TimeoutError:
                break
            except DledgerError as error:
                if error.code not in (Code.NOT_LEADER, Code.NO_LEADER):
                    raise
                await self.leadership_change(min(left, BARRIER_RETRY_SECONDS))
            else:
                return
        raise self.no_leader()

    def _leadership_changed(self, _leadership: Leadership) -> None:
        waiters, self._leadership_waiters = self._leadership_waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)

    def _applied(self, applied: Applied) -> None:
        for queue in applied.grown:
            self.long_poll.arrived(*queue.id)
