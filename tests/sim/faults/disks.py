"""Disks that are slow, hang, fail, are full or lost, and state stores that refuse a save."""

from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.faults.fault import Fault, Trait

if TYPE_CHECKING:
    from tests.sim.faults.nemesis import Nemesis
    from tests.sim.world.group import Group


def slow_disk(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    member = random.choice(list(group.members.values()))
    member.disk.slow(random.uniform(0.02, 0.4))
    nemesis.later(0.5, 6.0, member.disk.quick)
    return member.name


def hang_disk(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    member = nemesis.target()
    if member is None:
        return None
    member.disk.hang()
    nemesis.later(0.5, 6.0, member.disk.quick)
    return member.name


def fail_disk(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    member = nemesis.target()
    if member is None:
        return None
    member.disk.fail(random.choice(("write", "sync")))
    nemesis.later(0.2, 3.0, group.replace_disk_controller, member.name)
    return member.name


def fail_state(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Let the state store refuse or fail its saves; the disk is also the new process's."""
    member = nemesis.target()
    if member is None:
        return None
    full = random.random() < 0.5
    member.break_store(full=full)
    nemesis.later(0.2, 3.0, member.mend_store)
    return f"{member.name} {'full' if full else 'failing'}"


def full_disk(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    member = nemesis.target()
    if member is None:
        return None
    member.disk.fill()
    nemesis.later(0.5, 6.0, group.make_room, member.name)
    return member.name


def wipe(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    member = random.choice(list(group.members.values()))
    if not group.may_lose_disk(member.name):
        return None
    member.power_cut()
    group.wipe(member.name)
    nemesis.later(0.01, 2.0, group.start_member, member.name)
    return member.name


FAULTS: Final = (
    Fault("slow-disk", slow_disk, Trait.ALONE | Trait.OF_LINKS | Trait.OF_WRITES),
    Fault("hang-disk", hang_disk, Trait.ALONE | Trait.AT_ELECTIONS | Trait.OF_WRITES),
    Fault("fail-disk", fail_disk, Trait.ALONE | Trait.AT_ELECTIONS | Trait.OF_WRITES),
    Fault("fail-state", fail_state, Trait.ALONE | Trait.OF_WRITES),
    Fault("full-disk", full_disk, Trait.ALONE | Trait.OF_WRITES),
    Fault("wipe", wipe, Trait.LOSES_DISK | Trait.OF_DISKS),
)  # fmt: skip
