"""The nemesis of a world: it draws which fault comes next, when, and whom it strikes.

Owns: the draw of a subset of the faults for each seed (shifting subsets find more than all at
once), the name and the chance of each fault, quiet periods, targets by role, and the limits within
which the product promises safety: at no time more than a minority of the disks are lost (wiped or
damaged, and not yet out of quarantine). Everything else may happen to everybody at once. A fault
that cannot begin now (nobody leads, too many disks are lost) is skipped and not counted. What a
fault does is in its module.
"""

from collections import Counter
from collections.abc import Callable, Container
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from dledger.raft.api import Role
from dledger.types import FlushMode
from tests.sim.faults import clocks, damage, disks, links, old_copy, power, processes
from tests.sim.faults.fault import THEME_SHARE, THEMES, Fault, Strike, Trait

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
    """Draws and installs faults until it is told to stop.

    Each fault has a name and chance of its own: leaving one out changes no other's. `keep` holds
    the names of the faults that may come; None: all.
    """

    def __init__(self, world: "World", random: Random, keep: Container[str] | None = None) -> None:
        self._world = world
        self._keep = keep
        self.counts: Counter[str] = Counter()
        self.running = True
        self.strikes: list[Strike] = []
        """What has begun, in order."""
        self._turns = 0
        self._now: Strike | None = None
        """Whose code runs."""
        self.over_at = 0.0
        """When the last disturbance ends that goes on after its fault."""
        kinds = set(FAULTS)
        if any(len(group.names) == 1 for group in world.groups.values()):
            kinds = _with(Trait.ALONE)
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
        self._turns += 1
        name = str(self._turns)
        random = self._chance_of(name)
        if random.random() < 0.2:
            gap = random.uniform(3.0, 6.0)  # a quiet period: let the group recover and work
        else:
            gap = random.expovariate(1 / self._world.plan.fault_gap)
        self._world.scheduler.after(gap, self._turn)
        kind = random.choices(self.kinds, [FAULTS[kind].weight for kind in self.kinds])[0]
        waits = Trait.AT_WRITES in FAULTS[kind].traits and random.random() < WAITING_SHARE
        group = random.choice(list(self._world.groups.values()))
        strike = Strike(name, kind, random, group)
        if self._keeps(name):
            self._within(strike, self._wait if waits else self._install)

    def _wait(self) -> None:
        """Install the fault when the member that it strikes writes next; at once if none runs."""
        strike, member = self._strike, self.target()
        if member is None:
            self._install()
        else:
            strike.aim = member
            member.in_next_round = self.bound(self._hit)

    def elected(self, member: "SimMember", term: int) -> None:
        """Strike a new leader, perhaps: before it knows what is committed, or anybody knows it."""
        name = f"{member.name}.{term}"
        kinds = [kind for kind in self.kinds if Trait.AT_ELECTIONS in FAULTS[kind].traits]
        if not kinds or not self.running or not self._keeps(name):
            return
        random = self._chance_of(name)
        if random.random() < self._world.plan.early_strikes:
            delay = random.uniform(0.0, EARLY_MAX)
            strike = Strike(name, random.choice(kinds), random, member.group, member)
            self._world.scheduler.after(delay, self._within, strike, self._hit)

    def _hit(self) -> None:
        member = self._strike.aim
        if self.running and member is not None and member.running:
            self._install()

    def _install(self) -> None:
        strike = self._strike
        detail = FAULTS[strike.kind].begin(self, strike.group, strike.random)
        if detail is not None:
            self.begun(detail)

    def begun(self, detail: str) -> None:
        """Note that the fault whose code runs has begun; one that waits for a moment says so."""
        strike, world = self._strike, self._world
        strike.began, strike.detail = world.scheduler.now, detail
        self.strikes.append(strike)
        self.counts[strike.kind] += 1
        world.trace(f"fault {strike.kind} {detail}")
        world.story.fault_begins(strike)

    # Chance, and whose code runs.

    def _chance_of(self, name: str) -> Random:
        return Random(f"{self._world.plan.seed}/fault/{name}")

    def _keeps(self, name: str) -> bool:
        return self._keep is None or name in self._keep

    @property
    def _strike(self) -> Strike:
        assert self._now is not None, "no fault's code runs"
        return self._now

    @property
    def random(self) -> Random:
        """Return the chance of the fault whose code runs."""
        return self._strike.random

    def _within(self, strike: Strike, callback: Callable[..., None], *args: object) -> None:
        """Run code of a fault."""
        before, self._now = self._now, strike
        try:
            callback(*args)
        finally:
            self._now = before

    def bound(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Return a callback that will run as code of the fault whose code runs now."""
        return partial(self._within, self._strike, callback)

    # Targets.

    def target(self, *, running: bool = True) -> "SimMember | None":
        """Return a member: the one to strike, or else often the leader, else anybody."""
        random = self.random
        if self._strike.aim is not None:
            return self._strike.aim
        members = [m for m in self._strike.group.members.values() if m.running == running]
        if not members:
            return None
        leaders = [m for m in members if m.role is Role.LEADER]
        if leaders and random.random() < 0.45:
            return random.choice(leaders)
        return random.choice(members)

    # What a fault does later.

    def later(self, low: float, high: float, callback: Callable[..., None], *args: object) -> None:
        """End a fault after a drawn time, also when the safety phase ends before."""
        self.ends(self.random.uniform(low, high), callback, *args)
        self.lasts(high)

    def ends(self, delay: float, callback: Callable[..., None], *args: object) -> None:
        """End a fault, or a part of it, after a time."""
        self._strike.open_ends += 1
        self._world.scheduler.after(delay, self._within, self._strike, self._end, callback, args)

    def after(self, delay: float, callback: Callable[..., None], *args: object) -> None:
        """Go on with a fault after a time."""
        self._world.scheduler.after(delay, self._within, self._strike, callback, *args)

    def lasts(self, seconds: float) -> None:
        """Note that what has begun may go on for so long."""
        self.over_at = max(self.over_at, self._world.scheduler.now + seconds)

    def _end(self, callback: Callable[..., None], args: tuple[object, ...]) -> None:
        strike = self._strike
        strike.open_ends -= 1
        callback(*args)
        if strike.began is not None:
            strike.ended = self._world.scheduler.now
            self._world.story.fault_ends(strike)


def _with(trait: Trait) -> set[str]:
    return {name for name, fault in FAULTS.items() if trait in fault.traits}


def _drawn(random: Random, kinds: set[str]) -> set[str]:
    """Return the kinds of a seed: of all, or of one theme, whose faults are the denser for it."""
    if random.random() < THEME_SHARE:
        kinds = kinds & _with(random.choice(THEMES)) or kinds
    least = min(len(kinds), 4)
    return set(random.sample(sorted(kinds), random.randint(least, len(kinds))))
