"""What a fault is: it hurts the cluster, and pushes its own undoing.

Owns the interface, and the choice of targets by role. `begin` of a fault does it and pushes on the
scene how to undo it. Healing runs what was pushed in reverse. A fault that cannot be done now
raises Skipped.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, ParamSpec, TypeVar

from dledger_client import AsyncAdmin, MemberStatus
from jepsen_tests.backends.surface import Backend
from jepsen_tests.history.events import Kind
from jepsen_tests.run import members
from jepsen_tests.run.schedule import FaultKind

LEADER_SHARE: Final = 0.5
"""How often the leader is the one member that a fault takes."""
WHOLE_SECONDS_MAX: Final = 20.0
"""The time in which a member that lost its data is filled and trusted again."""
BORNE_SECONDS: Final = 10.0
LEADER_SECONDS_MAX: Final = 5.0
HEALED_SECONDS: Final = 25.0
"""What the longest fault takes to begin, its healing, and an election after it."""
CANNOT: Final = "backend "
"""The reason begins so when this machine cannot do a fault at all."""
H = TypeVar("H")
P = ParamSpec("P")


class Undoing(AsyncExitStack):
    """What the heal of a phase has to undo, the last act first."""

    pushed = 0
    """How many acts were noted, before they were done."""

    def push_async_callback(
        self, callback: Callable[P, Awaitable[Any]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Callable[P, Awaitable[Any]]:
        """See `AsyncExitStack`; count it."""
        self.pushed += 1
        return super().push_async_callback(callback, *args, **kwargs)


class Skipped(Exception):
    """The fault cannot be done here, or not now. The text says why.

    `targets`: the members that it touched all the same. Empty: nobody knows.
    """

    def __init__(self, why: str, targets: str = "") -> None:
        super().__init__(why)
        self.targets = targets


class NoEffect(Skipped):
    """The fault was tried and changed nothing: it is not in force."""

    def __init__(self, why: str) -> None:
        super().__init__(f"without effect: {why}")


@dataclass(slots=True)
class Scene:
    """The cluster as a fault sees it."""

    backend: Backend
    admin: AsyncAdmin
    random: Random
    undo: Undoing
    """Closed by healing."""
    lost: set[str] = field(default_factory=set[str])
    """Members whose data were taken or damaged in this phase: never a majority."""
    hurt: set[str] = field(default_factory=set[str])
    """Members that were damaged in this run, and that nobody has found whole since."""
    note: Callable[[str, str, Kind], None] = lambda _fault, _targets, _kind: None
    """Writes down what was done beside the fault itself, as a fault: name, targets, how far."""

    async def statuses(self) -> dict[str, MemberStatus]:
        """Return what the members that answer say of themselves."""
        return await members.statuses(self.backend, self.admin)

    async def leader(self) -> str:
        """Return the member that leads; Skipped if no member says so for a while."""
        until = asyncio.get_running_loop().time() + LEADER_SECONDS_MAX
        while True:
            statuses = await self.statuses()
            leaders = [node for node, status in statuses.items() if status.role == "leader"]
            if leaders:
                return max(leaders, key=lambda node: statuses[node].term)
            if asyncio.get_running_loop().time() > until:
                raise Skipped("nobody leads")
            await asyncio.sleep(0.05)

    async def each_leader(self, times: int, hurt: Callable[[str], Awaitable[None]]) -> str:
        """Do something to the leader, as often as asked for where one leads; return whom it hit."""
        hit: dict[str, None] = {}
        for _ in range(times):
            try:
                leader = await self.leader()
            except Skipped:
                continue
            await hurt(leader)
            hit[leader] = None
        if not hit:
            raise Skipped("nobody leads")
        return ",".join(hit)

    async def one(self) -> str:
        """Return one member, often the leader."""
        running = self.running()
        if not running:
            raise Skipped("no member runs")
        if self.random.random() < LEADER_SHARE:
            return await self.leader()
        return self.random.choice(running)

    async def follower(self) -> str:
        """Return a member that does not lead."""
        return self.random.choice(self.running_but(await self.leader()))

    def running_but(self, node: str) -> list[str]:
        """Return the other members that run; Skipped when none does."""
        others = [each for each in self.running() if each != node]
        if not others:
            raise Skipped(f"nobody runs but {node}")
        return others

    def some(self, count: int) -> list[str]:
        """Return so many running members."""
        running = self.running()
        if len(running) < count:
            raise Skipped(f"{len(running)} members run, {count} are needed")
        return self.random.sample(running, count)

    def running(self) -> list[str]:
        """Return the members that run."""
        processes = self.backend.processes
        nodes = self.backend.nodes
        return [n for n in nodes if processes is None or processes.is_running(n)]

    @property
    def majority(self) -> int:
        """How many members are a majority."""
        return len(self.backend.nodes) // 2 + 1

    def handle(self, name: str, found: H | None) -> H:
        """Return a handle of the backend; Skipped when it has none."""
        if found is None:
            why = self.backend.missing.get(name, "it has none")
            raise Skipped(f"{CANNOT}{self.backend.name}, {name}: {why}")
        return found

    async def wait_until(
        self, enough: Callable[[dict[str, MemberStatus]], bool], what: str
    ) -> None:
        """Wait until what members say is enough; Skipped names what did not come in time."""
        until = asyncio.get_running_loop().time() + WHOLE_SECONDS_MAX
        while True:
            found = await self.statuses()
            if enough(found):
                return
            if asyncio.get_running_loop().time() > until:
                said = ", ".join(f"{node} is {each.role}" for node, each in sorted(found.items()))
                raise Skipped(f"waited for {what}, in vain: {said or 'nobody answers'}")
            await asyncio.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that can go wrong."""

    name: str
    what: str
    handles: Sequence[str]
    """The handles of the backend that it needs. No other fault uses the first meanwhile."""
    begin: Callable[[Scene], Awaitable[str]]
    """Does the fault, pushes its undoing, returns its targets."""
    seconds: tuple[float, float] = (3.0, 6.0)
    is_borne: bool = True
    """A majority goes on while the fault is in force."""
    is_alone: bool = False
    """The group bears it only while no other fault is in force."""
    loses_disk: bool = False
    """It takes or damages a member's data: the log must fill that member from its first entry."""

    @property
    def kind(self) -> FaultKind:
        """Return what the schedule must know of it."""
        return FaultKind(self.name, self.handles[0], self.seconds, self.is_alone)

    @property
    def budget_seconds(self) -> float:
        """How long sends may go unacknowledged, from any moment while the fault begins.

        This is several times what an idle machine shows, so that only a fault of the product goes
        beyond it. The report shows what it really took.
        """
        return BORNE_SECONDS if self.is_borne else self.seconds[1] + HEALED_SECONDS
