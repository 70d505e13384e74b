"""The nemesis of a world: it draws which fault comes next, when, and whom it strikes.

Owns: the draw of a subset of the faults for each seed (shifting subsets find more than all at
once), quiet periods, targets by role, and the limits within which the product promises safety: at
no time more than a minority of the disks are lost (wiped or damaged, and not yet out of
quarantine). Everything else may happen to everybody at once. A fault that cannot begin now (nobody
leads, too many disks are lost) is skipped and not counted. What a fault does is in its module.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from dledger.raft.api import Role
from dledger.types import FlushMode
from tests.sim.faults import clocks, damage, disks, links, old_copy, power, processes
from tests.sim.faults.fault import THEME_SHARE, THEMES, Fault, Trait

if TYPE_CHECKING:
    from tests.sim.member.member import SimMember
    from tests.sim.world.world import World

FAULTS: Final[dict[str, Fault]] = {
    fault.name: fault
    for module in (processes, power, links, disks, damage, clocks, old_copy)
    for fault in module.FAULTS
}
OLD_COPY: Final = old_copy.OLD_COPY
WAITING_SHARE: Final = 0.4
"""This share of the faults `AT_WRITES` waits until the member has a write under way."""
EARLY_MAX: Final = 0.15
"""A fault strikes a new leader at most so long after its election, in virtual seconds."""


class Nemesis:
    """Draws and installs faults until it is told to stop."""

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self._random = random
        self.counts: Counter[str] = Counter()
        self.running = True
        self._aim: SimMember | None = None
        """Whom the next fault strikes; None: anybody."""
        self.over_at = 0.0
        """When the last disturbance ends that goes on after its fault."""
        kinds = set(FAULTS)
        if len(world.names) == 1:
            kinds = _with(Trait.ALONE)
        if world.plan.trims:
            # A member without data is refilled from the first entry of the log.
            kinds -= _with(Trait.LOSES_DISK)
        if world.plan.flush is FlushMode.ASYNC:
            kinds -= _with(Trait.LOSES_UNSYNCED)
        chosen = _drawn(random, kinds)
        if OLD_COPY in chosen:  # the group bears one lost disk, and an old copy may become one
            is_left_out = random.random() < 0.6
            chosen -= {OLD_COPY} if is_left_out else _with(Trait.LOSES_DISK) - {OLD_COPY}
        self.kinds = sorted(chosen)
        """The names of the faults of this seed."""

    def start(self, delay: float) -> None:
        """Begin after a virtual delay in seconds."""
        self._world.scheduler.after(delay, self._turn)

    def stop(self) -> None:
        """Install nothing more."""
        self.running = False

    def _turn(self) -> None:
        if not self.running:
            return
        random = self._random
        if random.random() < 0.2:
            gap = random.uniform(3.0, 6.0)  # a quiet period: let the group recover and work
        else:
            gap = random.expovariate(1 / self._world.plan.fault_gap)
        self._world.scheduler.after(gap, self._turn)
        kind = random.choices(self.kinds, [FAULTS[kind].weight for kind in self.kinds])[0]
        waits = Trait.AT_WRITES in FAULTS[kind].traits and random.random() < WAITING_SHARE
        member = self.target() if waits else None
        if member is None:
            self.install(kind)
        else:
            member.in_next_round = partial(self._strike, kind, member)

    def elected(self, member: "SimMember") -> None:
        """Strike a new leader, perhaps: before it knows what is committed, or anybody knows it."""
        kinds = [kind for kind in self.kinds if Trait.AT_ELECTIONS in FAULTS[kind].traits]
        if kinds and self.running and self._random.random() < self._world.plan.early_strikes:
            delay = self._random.uniform(0.0, EARLY_MAX)
            kind = self._random.choice(kinds)
            self._world.scheduler.after(delay, self._strike, kind, member)

    def _strike(self, kind: str, member: "SimMember") -> None:
        if self.running and member.running:
            self._aim = member
            self.install(kind)
            self._aim = None

    def install(self, kind: str) -> bool:
        """Install one fault now; False when it cannot be."""
        detail = FAULTS[kind].begin(self, self._world, self._random)
        if detail is None:
            return False
        self.counts[kind] += 1
        self._world.trace(f"fault {kind} {detail}")
        return True

    # Targets.

    def target(self, *, running: bool = True) -> "SimMember | None":
        """Return a member: often the leader, else anybody."""
        world, random = self._world, self._random
        if self._aim is not None:
            return self._aim
        members = [m for m in world.members.values() if m.running == running]
        if not members:
            return None
        leaders = [m for m in members if m.role is Role.LEADER]
        if leaders and random.random() < 0.45:
            return random.choice(leaders)
        return random.choice(members)

    def later(self, low: float, high: float, callback: Callable[..., None], *args: object) -> None:
        """End a fault after a drawn time, also when the safety phase ends before."""
        self._world.scheduler.after(self._random.uniform(low, high), callback, *args)
        self.lasts(high)

    def lasts(self, seconds: float) -> None:
        """Note that what has begun may go on for so long."""
        self.over_at = max(self.over_at, self._world.scheduler.now + seconds)


def _with(trait: Trait) -> set[str]:
    return {name for name, fault in FAULTS.items() if trait in fault.traits}


def _drawn(random: Random, kinds: set[str]) -> set[str]:
    """Return the kinds of a seed: of all, or of one theme, whose faults are the denser for it."""
    if random.random() < THEME_SHARE:
        kinds = kinds & _with(random.choice(THEMES)) or kinds
    least = min(len(kinds), 4)
    return set(random.sample(sorted(kinds), random.randint(least, len(kinds))))
