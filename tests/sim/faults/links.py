"""Links between members, or from clients to members, that are cut, hold or lose what is sent."""

from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.faults.fault import Fault, Trait

if TYPE_CHECKING:
    from tests.sim.faults.nemesis import Nemesis
    from tests.sim.world.group import Group


def isolate(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    member = nemesis.target()
    if member is None:
        return None
    for other in group.names:
        if other != member.name:
            _cut_pair(nemesis, group, member.name, other, 0.3, 6.0)
    if random.random() < 0.5:
        _cut_clients(nemesis, group, random, member.name)
    return member.name


def one_way(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    member = nemesis.target()
    if member is None:
        return None
    deaf = random.random() < 0.5
    others = [name for name in group.names if name != member.name]
    for other in random.sample(others, random.randint((len(others) + 1) // 2, len(others))):
        pair = (other, member.name) if deaf else (member.name, other)
        group.network.cut(*pair)
        nemesis.later(0.5, 6.0, group.network.heal, *pair)
    return f"{member.name} {'deaf' if deaf else 'mute'}"


def bridge(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Two halves that only one member can reach both of."""
    names = list(group.names)
    random.shuffle(names)
    middle, *rest = names
    half = max(1, len(rest) // 2)
    for a in rest[:half]:
        for b in rest[half:]:
            _cut_pair(nemesis, group, a, b, 1.0, 6.0)
    return middle


def break_streams(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    pairs = group.pairs
    for source, target in random.sample(pairs, random.randint(1, len(pairs))):
        for _ in range(random.randint(1, 3)):
            nemesis.later(0.0, 0.5, group.network.break_connections, source, target)
    return "streams"


def hold_link(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """One link keeps everything for seconds, across leader changes, then delivers it all (F3)."""
    source, target = random.choice(group.pairs)
    group.network.hold(source, target)
    nemesis.later(0.5, 8.0, group.network.release, source, target)
    if random.random() < 0.5:
        member = nemesis.target()
        if member is not None:
            nemesis.later(0.1, 1.0, member.transfer, None)
    return f"{source}>{target}"


def noise(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    for link in [group.network.path(*pair) for pair in group.pairs]:
        while not (link.loss or link.repeat or link.reorder):
            link.loss = random.choice((0.0, 0.02, 0.1, 0.3))
            link.repeat = random.choice((0.0, 0.05, 0.2))
            link.reorder = random.choice((0.0, 0.05, 0.2))
    nemesis.later(0.5, 6.0, group.network.quiet)
    return "all links"


def client_cut(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    return _cut_clients(nemesis, group, random)


def _cut_pair(nemesis: "Nemesis", group: "Group", a: str, b: str, low: float, high: float) -> None:
    group.network.cut(a, b)
    group.network.cut(b, a)
    nemesis.later(low, high, group.network.heal, a, b)
    nemesis.later(low, high, group.network.heal, b, a)


def _cut_clients(nemesis: "Nemesis", group: "Group", random: Random, member: str = "") -> str:
    chosen = member or random.choice(list(group.names))
    clients = random.sample(
        group.world.client_names, random.randint(1, len(group.world.client_names))
    )
    for client in clients:
        _cut_pair(nemesis, group, client, chosen, 0.3, 5.0)
    return chosen


FAULTS: Final = (
    Fault("isolate", isolate,
          Trait.AT_WRITES | Trait.AT_ELECTIONS | Trait.OF_DISKS | Trait.OF_LINKS, 1.5),
    Fault("one-way", one_way, Trait.AT_WRITES | Trait.AT_ELECTIONS | Trait.OF_LINKS, 1.5),
    Fault("bridge", bridge, Trait.OF_LINKS),
    Fault("break-streams", break_streams, Trait.OF_DISKS | Trait.OF_LINKS, 1.5),
    Fault("hold-link", hold_link, Trait.OF_LINKS, 1.5),
    Fault("noise", noise, Trait.OF_DISKS | Trait.OF_LINKS),
    Fault("client-cut", client_cut, Trait.ALONE | Trait.AT_ELECTIONS | Trait.OF_LINKS),
)  # fmt: skip
