"""What a fault is: something done to the cluster, with its own undoing.

Owns the interface and the targets by role. A fault's `begin` does it and leaves on the scene how it
is undone; healing is running these in reverse. What cannot be done now raises Skipped.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, ParamSpec, TypeVar

from dledger_client import AsyncAdmin, MemberStatus
from jepsen_tests.backends.surface import Backend
from jepsen_tests.history.events import WHOLE, Kind
from jepsen_tests.run import members
from jepsen_tests.run.schedule import FaultKind

LEADER_SHARE: Final = 0.5
"""How often one member of a choice is the leader."""
WHOLE_SECONDS_MAX: Final = 20.0
"""For who lost its data to be filled and trusted again."""
BORNE_SECONDS: Final = 10.0
LEADER_SECONDS_MAX: Final = 5.0
HEALED_SECONDS: Final = 25.0
"""What the longest fault takes to begin, its healing, and an election after it."""
CANNOT: Final = "backend "
"""How the reason begins for which a fault cannot be done here at all."""
H = TypeVar("H")
P = ParamSpec("P")


class Undoing(AsyncExitStack):
    """What healing a phase has to undo, the last first."""

    pushed = 0
    """How many acts were noted, before they were done."""

    def push_async_callback(
        self, callback: Callable[P, Awaitable[Any]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Callable[P, Awaitable[Any]]:
        """See `AsyncExitStack`; count it."""
        self.pushed += 1
        return super().push_async_callback(callback, *args, **kwargs)


class Skipped(Exception):
    """The fault cannot be done here, or not now; the text says why.

    `targets`: whom it touched all the same; empty: not known, if it touched anybody.
    """

    def __init__(self, why: str, targets: str = "") -> None:
        super().__init__(why)
        self.targets = targets


class NoEffect(Skipped):
    """It was tried, and all is as before: not in force, also where something is to be undone."""

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
        """Return who leads; Skipped when nobody says so for a while."""
        until = asyncio.get_running_loop().time() + LEADER_SECONDS_MAX
        while True:
            statuses = await self.statuses()
            leaders = [node for node, status in statuses.items() if status.role == "leader"]
            if leaders:
                return max(leaders, key=lambda node: statuses[node].term)
            if asyncio.get_running_loop().time() > until:
                raise Skipped("nobody leads")
            await asyncio.sleep(0.05)

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

    async def wait_until_whole(self) -> None:
        """Wait until all members lead or follow; Skipped when they don't in time."""
        await self.wait_until(
            lambda found: (
                sum(each.role in WHOLE for each in found.values()) == len(self.backend.nodes)
            ),
            "all members to be whole",
        )

    async def wait_until(
        self, enough: Callable[[dict[str, MemberStatus]], bool], what: str
    ) -> None:
        """Wait until what members say is enough; Skipped naming what was waited for in vain."""
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
    """The handles of the backend it needs; the first is the one it keeps to itself."""
    begin: Callable[[Scene], Awaitable[str]]
    """Does it, pushes its undoing, returns whom it hit."""
    seconds: tuple[float, float] = (3.0, 6.0)
    is_borne: bool = True
    """A majority goes on while it is in force."""

    @property
    def kind(self) -> FaultKind:
        """Return what the schedule must know of it."""
        return FaultKind(self.name, self.handles[0], self.seconds)

    @property
    def budget_seconds(self) -> float:
        """How long sends may go unacknowledged, from any moment of the fault's beginning on.

        Not a measurement: several times what is seen on a machine that does nothing else, so that
        going beyond it is a fault of the product. What it takes is in the report.
        """
        return BORNE_SECONDS if self.is_borne else self.seconds[1] + HEALED_SECONDS
