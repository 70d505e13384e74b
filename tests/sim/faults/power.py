"""The power fails: now, or while a write is on its way to the disk.

Owns: when and for whom. What is lost is `SimFileSystem`'s, how far a write got `SimMember`'s. A cut
at any moment mostly finds everything synced, so most of these wait for a write.
"""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from dledger.types import FlushMode
from tests.sim.faults.fault import Fault, Trait

if TYPE_CHECKING:
    from tests.sim.faults.nemesis import Nemesis
    from tests.sim.member.member import SimMember
    from tests.sim.world.group import Group

WAITING_SHARE: Final = 0.7
"""Of the power cuts: so many wait for a write to be on its way."""
SAVES_SHARE: Final = 0.2
"""Of the power cuts: so many of them wait for a save of the state."""


def power_cut(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Cut the power of one member."""
    member = nemesis.target()
    return None if member is None else _cut(nemesis, group, member, [member])


def power_cut_all(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Cut everybody's power at once."""
    member = nemesis.target()
    everybody = list(group.members.values())
    return None if member is None else _cut(nemesis, group, member, everybody)


def _cut(
    nemesis: "Nemesis", group: "Group", member: "SimMember", victims: Sequence["SimMember"]
) -> str | None:
    """Cut it now, or (None) when `member` is writing next; it begins when it is cut."""
    names = ",".join(victim.name for victim in victims)

    def cut() -> None:
        for victim in victims:
            victim.power_cut()
            nemesis.later(0.05, 3.0, group.start_member, victim.name)

    def cut_later() -> None:
        if nemesis.running:
            nemesis.begun(names)
            cut()

    waits = nemesis.random.random()
    if waits < WAITING_SHARE:
        if waits < SAVES_SHARE:
            member.in_next_save = nemesis.bound(cut_later)
        else:
            member.in_next_round = nemesis.bound(cut_later)
        return None
    cut()
    return names


def cut_then_choose(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Pause some, cut the power of one, then let only a chosen majority run (NATS 7567)."""
    names = list(group.names)
    random.shuffle(names)
    victim, *others = names
    for name in others[: len(others) // 2]:
        group.members[name].pause()
        nemesis.later(1.0, 2.0, group.members[name].resume)
    group.members[victim].power_cut()
    nemesis.later(0.05, 0.5, group.start_member, victim)
    for name in others[len(others) // 2 :]:
        nemesis.after(1.0, group.members[name].pause)
        nemesis.later(2.0, 4.0, group.members[name].resume)
    nemesis.lasts(4.0)
    return victim


def crash_loop(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Kill a member or cut its power again and again while it starts."""
    member = nemesis.target()
    if member is None:
        return None
    delay = 0.0
    for _ in range(random.randint(2, 6)):
        is_kill = random.random() < 0.6 or group.plan.flush is FlushMode.ASYNC
        stop = member.kill if is_kill else member.power_cut
        nemesis.after(delay, stop)
        delay += random.uniform(0.005, 0.1)
        nemesis.ends(delay, group.start_member, member.name)
        delay += random.uniform(0.005, 0.5)
    nemesis.lasts(delay)
    return member.name


FAULTS: Final = (
    Fault("power-cut", power_cut,
          Trait.ALONE | Trait.LOSES_UNSYNCED | Trait.AT_ELECTIONS | Trait.OF_DISKS |
          Trait.OF_WRITES),
    Fault("power-cut-all", power_cut_all, Trait.LOSES_UNSYNCED | Trait.OF_WRITES, 0.7),
    Fault("cut-then-choose", cut_then_choose, Trait.LOSES_UNSYNCED | Trait.OF_WRITES),
    Fault("crash-loop", crash_loop, Trait.ALONE | Trait.OF_WRITES),
)  # fmt: skip
