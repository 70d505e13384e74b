"""Links between members, or from clients to members, that are cut, hold or lose what is sent."""

from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.faults.fault import Fault, Trait

if TYPE_CHECKING:
    from tests.sim.faults.nemesis import Nemesis
    from tests.sim.world.world import World


def isolate(nemesis: "Nemesis", world: "World", random: Random) -> str | None:
    member = nemesis.target()
    if member is None:
        return None
    for other in world.names:
        if other != member.name:
            _cut_pair(nemesis, world, member.name, other, 0.3, 6.0)
    if random.random() < 0.5:
        _cut_clients(nemesis, world, random, member.name)
    return member.name


def one_way(nemesis: "Nemesis", world: "World", random: Random) -> str | None:
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


def bridge(nemesis: "Nemesis", world: "World", random: Random) -> str | None:
    """Two halves that only one member can reach both of."""
    names = list(world.names)
    random.shuffle(names)
    middle, *rest = names
    half = max(1, len(rest) // 2)
    for a in rest[:half]:
        for b in rest[half:]:
            _cut_pair(nemesis, world, a, b, 1.0, 6.0)
    return middle


def break_streams(nemesis: "Nemesis", world: "World", random: Random) -> str | None:
    pairs = list(world.network.links)
    for source, target in random.sample(pairs, random.randint(1, len(pairs))):
        for _ in range(random.randint(1, 3)):
            nemesis.later(0.0, 0.5, world.network.break_stream, source, target)
    return "streams"


def hold_link(nemesis: "Nemesis", world: "World", random: Random) -> str | None:
    """One link keeps everything for seconds, across leader changes, then delivers it all (F3)."""
    source, target = random.choice(list(world.network.links))
    world.network.hold(source, target)
    nemesis.later(0.5, 8.0, world.network.release, source, target)
    if random.random() < 0.5:
        member = nemesis.target()
        if member is not None:
            nemesis.later(0.1, 1.0, member.transfer, None)
    return f"{source}>{target}"


def noise(nemesis: "Nemesis", world: "World", random: Random) -> str | None:
    for link in world.network.links.values():
        while not (link.loss or link.repeat or link.reorder):
            link.loss = random.choice((0.0, 0.02, 0.1, 0.3))
            link.repeat = random.choice((0.0, 0.05, 0.2))
            link.reorder = random.choice((0.0, 0.05, 0.2))
    nemesis.later(0.5, 6.0, world.network.quiet)
    return "all links"


def client_cut(nemesis: "Nemesis", world: "World", random: Random) -> str | None:
    return _cut_clients(nemesis, world, random)


def _cut_pair(nemesis: "Nemesis", world: "World", a: str, b: str, low: float, high: float) -> None:
    world.network.cut(a, b)
    world.network.cut(b, a)
    nemesis.later(low, high, world.network.heal, a, b)
    nemesis.later(low, high, world.network.heal, b, a)


def _cut_clients(nemesis: "Nemesis", world: "World", random: Random, member: str = "") -> str:
    chosen = member or random.choice(list(world.names))
    clients = random.sample(world.client_names, random.randint(1, len(world.client_names)))
    pairs = [(client, chosen) for client in clients]
    world.calls.cut.update(pairs)
    nemesis.later(0.3, 5.0, world.calls.cut.difference_update, pairs)
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
