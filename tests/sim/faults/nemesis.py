"""The faults of a world: what is done to it, when, and how long.

Owns: the closed list of fault kinds, the draw of a subset for each seed (shifting subsets find more
than all at once), quiet periods, targets by role, and the limits within which the product promises
safety: at no time are more than a minority of disks lost (wiped or damaged, and not yet out of
quarantine). Everything else may happen to everybody at once. A fault that cannot be installed
now (nobody leads, budget used up) is skipped and not counted.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from dledger.raft.api import Role
from dledger.types import FlushMode
from tests.sim.faults import clock_faults, power
from tests.sim.faults.damage import break_sector, damage_hard_state, damage_log
from tests.sim.faults.fault_sets import (
    ALONE,
    AT_ELECTIONS,
    AT_WRITES,
    LOSING,
    POWER,
    THEME_SHARE,
    THEMES,
)
from tests.sim.faults.old_copy import OLD_COPY, old_copy

if TYPE_CHECKING:
    from tests.sim.member.member import SimMember
    from tests.sim.world.world import World

WAITING_SHARE: Final = 0.4
"""Of the faults in `AT_WRITES`: so many wait until their member has a write under way."""
EARLY_MAX: Final = 0.15
"""So long after its election a new leader is struck, virtual seconds."""


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
        kinds = dict(KINDS)
        if len(world.names) == 1:
            kinds = {kind: weight for kind, weight in kinds.items() if kind in ALONE}
        if world.plan.trims:
            # A member without data is refilled from the first entry; bulk transfer comes later.
            kinds = {kind: weight for kind, weight in kinds.items() if kind not in LOSING}
        if world.plan.flush is FlushMode.ASYNC:
            kinds = {kind: weight for kind, weight in kinds.items() if kind not in POWER}
        chosen = _drawn(random, set(kinds))
        if OLD_COPY in chosen:  # one lost disk is what the group bears, and this may become one
            chosen -= {OLD_COPY} if random.random() < 0.6 else LOSING - {OLD_COPY}
        self.kinds = {kind: kinds[kind] for kind in sorted(chosen)}
        """The subset of this seed, with weights."""

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
        kinds = list(self.kinds)
        kind = random.choices(kinds, [self.kinds[kind] for kind in kinds])[0]
        member = self.target() if kind in AT_WRITES and random.random() < WAITING_SHARE else None
        if member is None:
            self.install(kind)
        else:
            member.in_next_round = partial(self._strike, kind, member)

    def elected(self, member: "SimMember") -> None:
        """Strike a new leader, perhaps: before it knows what is committed, or anybody knows it."""
        kinds = sorted(AT_ELECTIONS.intersection(self.kinds))
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
        detail = FAULTS[kind](self, self._world, self._random)
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


def _crash(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    member = nemesis.target()
    if member is None:
        return None
    member.kill()
    nemesis.later(0.01, 4.0, world.start_member, member.name)
    return member.name


def _absence(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    """Keep one member down for long: the others go on, trim, and must wait for it."""
    member = nemesis.target()
    if member is None:
        return None
    member.kill()
    world.absent.add(member.name)
    nemesis.later(8.0, 25.0, world.end_absence, member.name)
    return member.name


def _crash_all(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    names = [m.name for m in world.members.values() if m.running]
    together = random.random() < 0.6  # restart all within one election timeout
    for name in names:
        world.members[name].kill()
        nemesis.later(0.01, 0.3 if together else 3.0, world.start_member, name)
    return ",".join(names) or None


def _pause(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    member = nemesis.target()
    if member is None or member.paused:
        return None
    member.pause()
    nemesis.later(0.3, 5.0, member.resume)
    return member.name


def _stall(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    member = nemesis.target()
    if member is None or member.paused:
        return None
    member.pause()
    nemesis.later(0.02, 0.6, member.resume)
    return member.name


def _wipe(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    member = random.choice(list(world.members.values()))
    if not world.may_lose_disk(member.name):
        return None
    member.power_cut()
    world.wipe(member.name)
    nemesis.later(0.01, 2.0, world.start_member, member.name)
    return member.name


def _isolate(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    member = nemesis.target()
    if member is None:
        return None
    for other in world.names:
        if other != member.name:
            _cut_pair(nemesis, world, member.name, other, 0.3, 6.0)
    if random.random() < 0.5:
        _cut_clients(nemesis, world, random, member.name)
    return member.name


def _cut_pair(nemesis: Nemesis, world: "World", a: str, b: str, low: float, high: float) -> None:
    world.network.cut(a, b)
    world.network.cut(b, a)
    nemesis.later(low, high, world.network.heal, a, b)
    nemesis.later(low, high, world.network.heal, b, a)


def _one_way(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    member = nemesis.target()
    if member is None:
        return None
    deaf = random.random() < 0.5
    others = [name for name in world.names if name != member.name]
    for other in random.sample(others, random.randint((len(others) + 1) // 2, len(others))):
        pair = (other, member.name) if deaf else (member.name, other)
        world.network.cut(*pair)
        nemesis.later(0.5, 6.0, world.network.heal, *pair)
    return f"{member.name} {'deaf' if deaf else 'mute'}"


def _bridge(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    """Two halves that only one member can reach both of."""
    names = list(world.names)
    random.shuffle(names)
    middle, *rest = names
    half = max(1, len(rest) // 2)
    for a in rest[:half]:
        for b in rest[half:]:
            _cut_pair(nemesis, world, a, b, 1.0, 6.0)
    return middle


def _break_streams(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    pairs = list(world.network.links)
    for source, target in random.sample(pairs, random.randint(1, len(pairs))):
        for _ in range(random.randint(1, 3)):
            nemesis.later(0.0, 0.5, world.network.break_stream, source, target)
    return "streams"


def _hold_link(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    """One link keeps everything for seconds, across leader changes, then delivers it all (F3)."""
    source, target = random.choice(list(world.network.links))
    world.network.hold(source, target)
    nemesis.later(0.5, 8.0, world.network.release, source, target)
    if random.random() < 0.5:
        member = nemesis.target()
        if member is not None:
            nemesis.later(0.1, 1.0, member.transfer, None)
    return f"{source}>{target}"


def _noise(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    for link in world.network.links.values():
        while not (link.loss or link.repeat or link.reorder):
            link.loss = random.choice((0.0, 0.02, 0.1, 0.3))
            link.repeat = random.choice((0.0, 0.05, 0.2))
            link.reorder = random.choice((0.0, 0.05, 0.2))
    nemesis.later(0.5, 6.0, world.network.quiet)
    return "all links"


def _slow_disk(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    member = random.choice(list(world.members.values()))
    member.disk.slow(random.uniform(0.02, 0.4))
    nemesis.later(0.5, 6.0, member.disk.quick)
    return member.name


def _hang_disk(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    member = nemesis.target()
    if member is None:
        return None
    member.disk.hang()
    nemesis.later(0.5, 6.0, member.disk.quick)
    return member.name


def _fail_disk(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    member = nemesis.target()
    if member is None:
        return None
    member.disk.fail(random.choice(("write", "sync")))
    nemesis.later(0.2, 3.0, world.replace_disk_controller, member.name)
    return member.name


def _fail_state(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    """Let the state store refuse or fail its saves; the disk is also the new process's."""
    member = nemesis.target()
    if member is None:
        return None
    full = random.random() < 0.5
    member.break_store(full=full)
    nemesis.later(0.2, 3.0, member.mend_store)
    return f"{member.name} {'full' if full else 'failing'}"


def _full_disk(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    member = nemesis.target()
    if member is None:
        return None
    member.disk.fill()
    nemesis.later(0.5, 6.0, world.make_room, member.name)
    return member.name


def _damage_log(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    """Flip a bit in an entry that a later write says was synced: never to be cut as a tear."""
    return _damage(nemesis, world, random, lambda member: damage_log(member, random))


def _damage_hard_state(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    return _damage(nemesis, world, random, lambda member: damage_hard_state(member, random))


def _bad_sector(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    return _damage(nemesis, world, random, lambda member: break_sector(member, random))


def _damage(
    nemesis: Nemesis, world: "World", random: Random, damage: "Callable[[SimMember], str]"
) -> str | None:
    member = random.choice(list(world.members.values()))
    if not world.may_lose_disk(member.name):
        return None
    member.power_cut()
    nemesis.later(0.05, 1.0, world.start_member, member.name)
    what = damage(member)
    if not what:
        return None
    world.lost.add(member.name)
    return f"{member.name} {what}"


def _transfer(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    leaders = [m for m in world.members.values() if m.running and m.role is Role.LEADER]
    if not leaders:
        return None
    member = random.choice(leaders)
    others = [name for name in world.names if name != member.name]
    target = random.choice([None, *others])
    member.transfer(target)
    return f"{member.name} to {target or 'anybody'}"


def _cut_clients(nemesis: Nemesis, world: "World", random: Random, member: str = "") -> str:
    chosen = member or random.choice(list(world.names))
    clients = random.sample(world.client_names, random.randint(1, len(world.client_names)))
    pairs = [(client, chosen) for client in clients]
    world.calls.cut.update(pairs)
    nemesis.later(0.3, 5.0, world.calls.cut.difference_update, pairs)
    return chosen


def _client_cut(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    return _cut_clients(nemesis, world, random)


def _producer_crash(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    producer = random.choice(world.producers)
    producer.crash()
    return producer.plan.name


def _rolling_restart(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    delay = 0.0
    for name in world.names:
        world.scheduler.after(delay, world.members[name].kill)
        world.scheduler.after(delay + random.uniform(0.02, 0.4), world.start_member, name)
        delay += random.uniform(0.3, 1.5)
    nemesis.lasts(delay)
    return "all"


def _stop(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    """Stop a member in order, after it has handed over or not."""
    member = nemesis.target()
    if member is None:
        return None
    if random.random() < 0.5:
        member.transfer(None)
    nemesis.later(0.0, 0.3, member.stop)
    nemesis.later(0.4, 3.0, world.start_member, member.name)
    return member.name


def _slow_apply(nemesis: Nemesis, world: "World", random: Random) -> str | None:
    member = random.choice(list(world.members.values()))
    member.apply_delay = random.uniform(0.01, 0.3)
    nemesis.later(0.5, 5.0, member.apply_quickly)
    return member.name


def _drawn(random: Random, kinds: set[str]) -> set[str]:
    """Return the kinds of a seed: of all, or of one theme, whose faults are the denser for it."""
    if random.random() < THEME_SHARE:
        kinds = kinds & random.choice(THEMES) or kinds
    least = min(len(kinds), 4)
    return set(random.sample(sorted(kinds), random.randint(least, len(kinds))))


Fault = Callable[[Nemesis, "World", Random], str | None]
FAULTS: Final[dict[str, Fault]] = {
    "crash": _crash,
    "absence": _absence,
    "crash-all": _crash_all,
    "power-cut": power.power_cut,
    "power-cut-all": power.power_cut_all,
    "cut-then-choose": power.cut_then_choose,
    "pause": _pause,
    "stall": _stall,
    "wipe": _wipe,
    "isolate": _isolate,
    "one-way": _one_way,
    "bridge": _bridge,
    "break-streams": _break_streams,
    "hold-link": _hold_link,
    "noise": _noise,
    "slow-disk": _slow_disk,
    "hang-disk": _hang_disk,
    "fail-disk": _fail_disk,
    "fail-state": _fail_state,
    "full-disk": _full_disk,
    "damage-log": _damage_log,
    "damage-hard-state": _damage_hard_state,
    "bad-sector": _bad_sector,
    OLD_COPY: old_copy,
    "clock-jump": clock_faults.clock_jump,
    "clock-drift": clock_faults.clock_drift,
    "clocks-jump": clock_faults.clocks_jump,
    "transfer": _transfer,
    "client-cut": _client_cut,
    "producer-crash": _producer_crash,
    "rolling-restart": _rolling_restart,
    "stop": _stop,
    "crash-loop": power.crash_loop,
    "slow-apply": _slow_apply,
}
"""Every kind, by the name that seeds print."""
KINDS: Final[dict[str, float]] = dict.fromkeys(FAULTS, 1.0) | {
    "crash": 1.5,
    "producer-crash": 1.5,
    "isolate": 1.5,
    "one-way": 1.5,
    "break-streams": 1.5,
    "hold-link": 1.5,
    "crash-all": 0.7,
    "power-cut-all": 0.7,
    "rolling-restart": 0.5,
    "absence": 0.5,
    OLD_COPY: 3.0,
    "bad-sector": 2.0,
    "clock-jump": 2.0,
    "damage-log": 2.0,
}
