"""Processes that end, stand still or apply slowly, and leadership that is handed over."""

from random import Random
from typing import TYPE_CHECKING, Final

from dledger.raft.api import Role
from tests.sim.faults.fault import Fault, Trait

if TYPE_CHECKING:
    from tests.sim.faults.nemesis import Nemesis
    from tests.sim.world.group import Group


def crash(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    member = nemesis.target()
    if member is None:
        return None
    member.kill()
    nemesis.later(0.01, 4.0, group.start_member, member.name)
    return member.name


def absence(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Keep one member down for long: the others go on, trim, and must wait for it."""
    member = nemesis.target()
    if member is None:
        return None
    member.kill()
    group.absent.add(member.name)
    nemesis.later(8.0, 25.0, group.end_absence, member.name)
    return member.name


def crash_all(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    names = [m.name for m in group.members.values() if m.running]
    together = random.random() < 0.6  # restart all within one election timeout
    for name in names:
        group.members[name].kill()
        nemesis.later(0.01, 0.3 if together else 3.0, group.start_member, name)
    return ",".join(names) or None


def pause(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    member = nemesis.target()
    if member is None or member.paused:
        return None
    member.pause()
    nemesis.later(0.3, 5.0, member.resume)
    return member.name


def stall(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    member = nemesis.target()
    if member is None or member.paused:
        return None
    member.pause()
    nemesis.later(0.02, 0.6, member.resume)
    return member.name


def rolling_restart(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    delay = 0.0
    for name in group.names:
        nemesis.after(delay, group.members[name].kill)
        nemesis.ends(delay + random.uniform(0.02, 0.4), group.start_member, name)
        delay += random.uniform(0.3, 1.5)
    nemesis.lasts(delay)
    return "all"


def stop(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Stop a member in order, after it has handed over or not."""
    member = nemesis.target()
    if member is None:
        return None
    if random.random() < 0.5:
        member.transfer(None)
    nemesis.later(0.0, 0.3, member.stop)
    nemesis.later(0.4, 3.0, group.start_member, member.name)
    return member.name


def producer_crash(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    producer = random.choice(group.world.clients.producers)
    producer.crash()
    return producer.plan.name


def name_server(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """End a name server, or let it stand still: what it tells is old, and then it knows nothing."""
    servers = list(group.world.name_servers.values())
    if not servers:
        return None
    server = random.choice(servers)
    befall = random.choice((server.kill, server.kill, server.stop, server.pause))
    befall()
    nemesis.later(0.2, 8.0, server.resume)
    nemesis.later(0.5, 8.0, server.start)
    return server.name


def slow_apply(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    member = random.choice(list(group.members.values()))
    member.apply_delay = random.uniform(0.01, 0.3)
    nemesis.later(0.5, 5.0, member.apply_quickly)
    return member.name


def transfer(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    leaders = [m for m in group.members.values() if m.running and m.role is Role.LEADER]
    if not leaders:
        return None
    member = random.choice(leaders)
    others = [name for name in group.names if name != member.name]
    target = random.choice([None, *others])
    member.transfer(target)
    return f"{member.name} to {target or 'anybody'}"


FAULTS: Final = (
    Fault("crash", crash,
          Trait.ALONE | Trait.AT_WRITES | Trait.AT_ELECTIONS | Trait.OF_DISKS | Trait.OF_LINKS |
          Trait.OF_WRITES, 1.5),
    Fault("absence", absence, Trait(0), 0.5),
    Fault("crash-all", crash_all, Trait.OF_WRITES, 0.7),
    Fault("pause", pause, Trait.ALONE | Trait.AT_WRITES | Trait.AT_ELECTIONS | Trait.OF_LINKS),
    Fault("stall", stall, Trait.ALONE | Trait.AT_WRITES | Trait.AT_ELECTIONS | Trait.OF_LINKS),
    Fault("rolling-restart", rolling_restart, Trait.OF_WRITES, 0.5),
    Fault("stop", stop, Trait.ALONE | Trait.AT_WRITES | Trait.AT_ELECTIONS | Trait.OF_WRITES),
    Fault("producer-crash", producer_crash, Trait.ALONE | Trait.OF_LINKS | Trait.OF_WRITES, 1.5),
    Fault("name-server", name_server, Trait.ALONE | Trait.OF_LINKS),
    Fault("slow-apply", slow_apply, Trait.ALONE),
    Fault("transfer", transfer, Trait.OF_DISKS | Trait.OF_LINKS),
)  # fmt: skip
