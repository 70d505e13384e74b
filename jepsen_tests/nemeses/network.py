"""Networks that are cut, slow, narrow, lossy, or reset connections."""

import asyncio
from collections.abc import Sequence
from typing import Final

from jepsen_tests.backends.surface import CLIENTS, Network, Trouble, TroubleKind
from jepsen_tests.nemeses.fault import CANNOT, Fault, Scene, Skipped

Link = tuple[str, str]
FLAPS: Final = 6
RING_MIN: Final = 5
"""In a ring of three, each member would hear both others."""
CUT: Final = Trouble(TroubleKind.CUT)


def _network(scene: Scene, kind: TroubleKind, *, to_clients: bool = False) -> Network:
    network = scene.handle("network", scene.backend.network)
    if kind not in (network.client_kinds if to_clients else network.kinds):
        links = "links to clients" if to_clients else "links"
        raise Skipped(f"{CANNOT}{scene.backend.name} has no {kind} of {links}")
    return network


async def _put(scene: Scene, network: Network, links: Sequence[Link], trouble: Trouble) -> None:
    scene.undo.push_async_callback(network.heal, links, trouble.kind)
    await network.trouble(links, trouble)


async def _reset(scene: Scene, network: Network, links: Sequence[Link]) -> None:
    for _ in range(FLAPS):
        await network.trouble(links, Trouble(TroubleKind.RESET))
        await asyncio.sleep(scene.random.uniform(0.05, 0.8))


async def _trouble(scene: Scene, links: Sequence[Link], trouble: Trouble) -> None:
    await _put(scene, _network(scene, trouble.kind), links, trouble)


async def cut(scene: Scene, some: Sequence[str], others: Sequence[str]) -> None:
    """Let two sets hear nothing of each other."""
    await _trouble(scene, between(some, others), CUT)


async def cut_off(scene: Scene, node: str) -> None:
    """Let one member hear no other member, and no other member hear it."""
    await _trouble(scene, around(scene, node), CUT)


async def join(scene: Scene, some: Sequence[str], others: Sequence[str]) -> None:
    """Let two sets hear each other again, before the nemesis heals everything."""
    await _network(scene, TroubleKind.CUT).heal(between(some, others), TroubleKind.CUT)


def between(some: Sequence[str], others: Sequence[str]) -> list[Link]:
    """Return the links of both directions between two sets."""
    links = (link for a in some for b in others if a != b for link in ((a, b), (b, a)))
    return list(dict.fromkeys(links))


def around(scene: Scene, node: str) -> list[Link]:
    """Return the links of both directions between a member and all others."""
    return between([node], scene.backend.nodes)


async def isolate(scene: Scene) -> str:
    """One member, often the leader, hears nobody and nobody hears it."""
    node = await scene.one()
    await cut_off(scene, node)
    return node


async def isolate_leader(scene: Scene) -> str:
    """The leader hears no other member. It still hears its clients."""
    node = await scene.leader()
    await cut_off(scene, node)
    return node


async def halves(scene: Scene) -> str:
    """A drawn minority and the majority hear nothing of each other."""
    nodes = list(scene.backend.nodes)
    scene.random.shuffle(nodes)
    small, large = nodes[: len(nodes) - scene.majority], nodes[len(nodes) - scene.majority :]
    await cut(scene, small, large)
    return f"{','.join(small)} from the others"


async def nobody(scene: Scene) -> str:
    """Every link is cut: there is no majority anywhere."""
    await cut(scene, scene.backend.nodes, scene.backend.nodes)
    return "all"


async def ring(scene: Scene) -> str:
    """Each member hears its neighbours only: every one sees another majority."""
    nodes = list(scene.backend.nodes)
    if len(nodes) < RING_MIN:
        why = f"a ring of majorities needs {RING_MIN} members, there are {len(nodes)}"
        raise Skipped(f"{CANNOT}{scene.backend.name}: {why}")
    scene.random.shuffle(nodes)
    near = {(a, b) for a, b in zip(nodes, nodes[1:] + nodes[:1], strict=True)}
    far = [(a, b) for a in nodes for b in nodes if a != b and not {(a, b), (b, a)} & near]
    await _trouble(scene, far, CUT)
    return ",".join(nodes)


async def bridge(scene: Scene) -> str:
    """Two sides that only one member in the middle hears both of."""
    nodes = list(scene.backend.nodes)
    scene.random.shuffle(nodes)
    middle, rest = nodes[0], nodes[1:]
    left, right = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    await cut(scene, left, right)
    return f"{','.join(left)} and {','.join(right)}, bridged by {middle}"


async def one_way(scene: Scene) -> str:
    """What one member dials is cut, what others dial to it is not."""
    node = await scene.one()
    is_deaf = scene.random.random() < 0.5
    links = [link for link in around(scene, node) if link[is_deaf] == node]
    await _trouble(scene, links, CUT)
    return ",".join(f"{a}>{b}" for a, b in links)


async def flap(scene: Scene) -> str:
    """A member comes and goes, each time for about an election timeout."""
    node = await scene.one()
    links = around(scene, node)
    network = _network(scene, TroubleKind.CUT)
    scene.undo.push_async_callback(network.heal, links, TroubleKind.CUT)
    for _ in range(FLAPS):
        await network.trouble(links, CUT)
        await asyncio.sleep(scene.random.uniform(0.1, 1.5))
        await network.heal(links, TroubleKind.CUT)
        await asyncio.sleep(scene.random.uniform(0.1, 1.0))
    return node


async def resets(scene: Scene) -> str:
    """All connections of a member are reset, several times."""
    node = await scene.one()
    await _reset(scene, _network(scene, TroubleKind.RESET), around(scene, node))
    return node


async def delay(scene: Scene) -> str:
    """Everything takes longer, unevenly."""
    milliseconds = scene.random.choice([5.0, 30.0, 100.0])
    nodes = scene.backend.nodes
    trouble = Trouble(TroubleKind.DELAY, delay_ms=milliseconds, jitter_ms=milliseconds)
    await _trouble(scene, between(nodes, nodes), trouble)
    return f"all, {milliseconds:.0f} ms and up to as much again"


async def loss(scene: Scene) -> str:
    """Packets of one member get lost."""
    node = await scene.one()
    percent = scene.random.choice([5, 20, 40])
    await _trouble(scene, around(scene, node), Trouble(TroubleKind.LOSS, loss_percent=percent))
    return f"{node}, {percent} %"


async def narrow(scene: Scene) -> str:
    """A member's links carry next to nothing."""
    node = await scene.one()
    rate = scene.random.choice([20_000, 200_000])
    trouble = Trouble(TroubleKind.BANDWIDTH, bytes_per_second=rate)
    await _trouble(scene, around(scene, node), trouble)
    # Some backends narrow the member's whole interface: what it sends is late for everybody.
    return f"all, {rate} bytes/s on the links of {node}"


async def slices(scene: Scene) -> str:
    """Everything arrives in small pieces."""
    nodes = scene.backend.nodes
    size = scene.random.choice([7, 100])
    await _trouble(scene, between(nodes, nodes), Trouble(TroubleKind.SLICES, slice_bytes=size))
    return f"all, {size} bytes"


async def leader_unheard(scene: Scene) -> str:
    """The leader hears its clients and does what they ask, but its answers are lost."""
    network = _network(scene, TroubleKind.MUTE, to_clients=True)
    node = await scene.leader()
    await _put(scene, network, [(CLIENTS, node)], Trouble(TroubleKind.MUTE))
    return node


async def clients_cut(scene: Scene) -> str:
    """No client reaches a member, often the leader; the other members do."""
    network, node = _network(scene, TroubleKind.CUT, to_clients=True), await scene.one()
    await _put(scene, network, [(CLIENTS, node)], CUT)
    return node


async def client_resets(scene: Scene) -> str:
    """The connections of all clients are reset, several times."""
    network = _network(scene, TroubleKind.RESET, to_clients=True)
    await _reset(scene, network, [(CLIENTS, node) for node in scene.backend.nodes])
    return "all"


FAULTS: Final = (
    Fault("isolate", "one member cut off, often the leader", ["network"], isolate),
    Fault("isolate-leader", "the leader cut off from members, not clients", ["network"],
          isolate_leader),
    Fault("partition", "a minority cut off", ["network"], halves),
    Fault("partition-all", "every link cut", ["network"], nobody, (1.0, 4.0), is_borne=False),
    Fault("ring", "each member hears its neighbours alone", ["network"], ring, is_borne=False),
    Fault("bridge", "two sides, one member hears both", ["network"], bridge, is_borne=False),
    Fault("one-way", "one direction of dialling cut", ["network"], one_way, is_borne=False),
    Fault("flap", "a member comes and goes", ["network"], flap, (0.5, 1.0), is_borne=False),
    Fault("reset", "connections reset again and again", ["network"], resets, (0.5, 1.0),
          is_borne=False),
    Fault("delay", "all messages late, unevenly", ["network"], delay, is_borne=False),
    Fault("loss", "packets lost", ["network"], loss, is_borne=False),
    Fault("bandwidth", "narrow links", ["network"], narrow, is_borne=False),
    Fault("slices", "bytes in small pieces", ["network"], slices, is_borne=False),
    Fault("leader-unheard", "the leader's answers to clients are lost", ["network"],
          leader_unheard, is_borne=False),
    Fault("clients-cut", "one member cut off from clients, not members", ["network"],
          clients_cut, is_borne=False),
    Fault("client-reset", "clients' connections reset again and again", ["network"],
          client_resets, (0.5, 1.0), is_borne=False),
)  # fmt: skip
