"""Several faults at once, aimed by role: each has made some system of this kind lose data."""

import asyncio
from typing import Final

from jepsen_tests.nemeses.disks import cut_power, slow_one
from jepsen_tests.nemeses.fault import Fault, Scene
from jepsen_tests.nemeses.network import cut, cut_off, join
from jepsen_tests.nemeses.processes import bring_back

SLOW_SECONDS: Final = (0.1, 0.5)
"""The slow member's acknowledgements are still on the way when the leader is lost."""
GOING_ON_SECONDS: Final = 2.0
"""So long the others acknowledge without the late member."""
CANDIDATES_SECONDS: Final = 1.6
"""Longer than the longest election timeout: a member that is cut off wants an election by then."""


async def _slow(scene: Scene, node: str) -> None:
    """Let a member's disk be slow for a while."""
    await slow_one(scene, node, scene.random.choice(SLOW_SECONDS))
    await asyncio.sleep(scene.random.uniform(0.5, 1.5))


async def _slow_follower(scene: Scene) -> tuple[str, str]:
    """Let a follower's disk be slow for a while; return the leader and it."""
    leader = await scene.leader()
    follower = scene.random.choice(scene.running_but(leader))
    await _slow(scene, follower)
    return leader, follower


async def kill_while_slow(scene: Scene) -> str:
    """The leader is killed while a follower has not synced what it got."""
    processes = scene.handle("processes", scene.backend.processes)
    leader, follower = await _slow_follower(scene)
    scene.undo.push_async_callback(bring_back, scene, leader)
    await processes.kill(leader)
    return f"{leader} killed, {follower} slow"


async def cut_while_slow(scene: Scene) -> str:
    """The leader is cut off while a follower has not synced what it got."""
    leader, follower = await _slow_follower(scene)
    await cut_off(scene, leader)
    return f"{leader} cut off, {follower} slow"


async def cut_while_slow_itself(scene: Scene) -> str:
    """The leader is cut off before it synced entries that the others have."""
    leader = await scene.leader()
    await _slow(scene, leader)
    await cut_off(scene, leader)
    return f"{leader} cut off, and slow"


async def power_cut_but_one(scene: Scene) -> str:
    """All but one lose their power at once: only that one still has what nobody had synced."""
    spared = await scene.one()
    return await cut_power(scene, [node for node in scene.running() if node != spared])


async def split_vote(scene: Scene) -> str:
    """Two candidates with as many votes each: the halves meet when both want an election."""
    leader = await scene.leader()
    rest = [node for node in scene.backend.nodes if node != leader]
    scene.random.shuffle(rest)
    left, right = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    await cut(scene, left, right)
    await cut(scene, [leader], rest)
    await asyncio.sleep(CANDIDATES_SECONDS)
    await join(scene, left, right)
    return f"{','.join(left)} and {','.join(right)} without {leader}"


async def late_first(scene: Scene) -> str:
    """A member that was down while the others went on starts first, with a bare majority."""
    processes = scene.handle("processes", scene.backend.processes)
    nodes = scene.some(len(scene.backend.nodes))
    late, others = nodes[0], nodes[1:]
    for node in nodes:
        scene.undo.push_async_callback(bring_back, scene, node)
    await processes.kill(late)
    await asyncio.sleep(GOING_ON_SECONDS)
    await asyncio.gather(*(processes.kill(node) for node in others))
    await processes.start(late)
    await asyncio.sleep(scene.random.uniform(0.0, 1.0))
    company = others[: scene.majority - 1]
    for node in company:
        await processes.start(node)
    return f"{late} first, with {','.join(company)}, without {','.join(others[len(company) :])}"


FAULTS: Final = (
    Fault("kill-while-slow", "the leader killed, a follower's syncs slow", ["processes", "syncs"],
          kill_while_slow, is_borne=False),
    Fault("cut-while-slow", "the leader cut off, a follower's syncs slow", ["network", "syncs"],
          cut_while_slow, is_borne=False),
    Fault("cut-while-slow-itself", "the leader cut off, its own syncs slow",
          ["network", "syncs"], cut_while_slow_itself, is_borne=False),
    Fault("power-cut-but-one", "all but one lose unsynced writes", ["disks", "processes"],
          power_cut_but_one, (1.0, 3.0), is_borne=False),
    Fault("split-vote", "two candidates, as many votes each", ["network"], split_vote, (1.0, 3.0),
          is_borne=False),
    Fault("late-first", "the member that was behind starts first", ["processes"], late_first,
          is_borne=False),
)  # fmt: skip
