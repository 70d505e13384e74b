"""Wrong clocks, slow machines, leadership that moves, and faults that choose the next quorum."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from dledger_proto.errors import DledgerError
from jepsen_tests.backends.surface import CannotLimit, TroubleKind
from jepsen_tests.nemeses.disks import start_empty, wipe_one
from jepsen_tests.nemeses.fault import Fault, NoEffect, Scene
from jepsen_tests.nemeses.losing import lose_disk
from jepsen_tests.nemeses.network import around, cut, cut_off
from jepsen_tests.nemeses.processes import bring_back

CLOCK_SECONDS: Final = (-86_400.0, -3_600.0, -2.0, 2.0, 60.0, 3_600.0, 86_400.0)
CLOCK_RATES: Final = (0.5, 1.0, 1.5, 10.0)
CPU_PERCENTS: Final = (5, 15, 30)
MEMORY_BYTES: Final = 160 << 20
TIMEOUTS: Final = 5
"""So often the leader is cut off and back."""
TRANSFERS: Final = 10
TRANSFER_SECONDS_MAX: Final = 10.0
"""Limit of one transfer: longer than an election on a busy machine."""


async def clock(scene: Scene) -> str:
    """A member's wall clock is off, and runs too fast or too slowly."""
    clocks, node = scene.handle("clocks", scene.backend.clocks), await scene.one()
    seconds, rate = scene.random.choice(CLOCK_SECONDS), scene.random.choice(CLOCK_RATES)
    scene.undo.push_async_callback(clocks.shift, node, 0.0, 1.0)
    await clocks.shift(node, seconds, rate)
    return f"{node}, {seconds:+.0f} s, rate {rate}"


async def starve(scene: Scene) -> str:
    """A member gets a part of a processor and little memory."""
    cgroups, node = scene.handle("cgroups", scene.backend.cgroups), await scene.one()
    percent = scene.random.choice(CPU_PERCENTS)
    scene.undo.push_async_callback(bring_back, scene, node)
    scene.undo.push_async_callback(cgroups.starve, node, 0, 0)
    try:
        await cgroups.starve(node, percent, MEMORY_BYTES)
    except CannotLimit as error:
        raise NoEffect(str(error)) from error
    return f"{node}, {percent} % of a processor"


async def transfers(scene: Scene) -> str:
    """Leadership goes round and round."""
    done: list[str] = []
    for _ in range(TRANSFERS):
        target = scene.random.choice(scene.backend.nodes)
        try:
            async with asyncio.timeout(TRANSFER_SECONDS_MAX):
                leader, _ = await scene.admin.transfer_leadership(scene.backend.group, target)
        except TimeoutError:  # it may yet come; the next ones would take as long
            done.append(target)
            break
        except DledgerError as error:
            if not error.definite:
                done.append(target)
            # Else it was not ready to take over, or no longer: the next one may be.
            await asyncio.sleep(0.1)
            continue
        done.append(leader)
        await asyncio.sleep(scene.random.uniform(0.0, 0.5))
    if not done:
        raise NoEffect("no other member could take over")
    return ",".join(done)


async def next_quorum(scene: Scene) -> str:
    """The next quorum is one member that is late and one that lost what it had not synced.

    NATS lost data so: one member that forgot, and pauses that choose the next quorum.
    """
    disks = scene.handle("disks", scene.backend.disks)

    async def forget(node: str) -> None:
        processes = scene.handle("processes", scene.backend.processes)
        scene.undo.push_async_callback(bring_back, scene, node)
        await disks.cut_power(node)
        await disks.power_on(node)
        await processes.start(node)

    return await _choose_quorum(scene, forget)


async def next_quorum_wiped(scene: Scene) -> str:
    """The next quorum is one member that is late and one that lost everything (D18)."""
    scene.handle("folders", scene.backend.folders)
    return await _choose_quorum(scene, lambda node: start_empty(scene, node), loses_disk=True)


async def _choose_quorum(
    scene: Scene, forget: Callable[[str], Awaitable[object]], *, loses_disk: bool = False
) -> str:
    processes = scene.handle("processes", scene.backend.processes)
    nodes = scene.some(len(scene.backend.nodes))
    late, forgetful = nodes[: len(nodes) - scene.majority], nodes[len(nodes) - scene.majority]
    knowing = [node for node in nodes if node not in late and node != forgetful]
    if loses_disk:
        await lose_disk(scene, forgetful)
    for node in (*late, *knowing):
        scene.undo.push_async_callback(processes.resume, node)
    for node in late:
        await processes.pause(node)
    await asyncio.sleep(2.0)  # the others acknowledge
    paused = knowing[: len(nodes) - scene.majority]
    for node in paused:
        await processes.pause(node)
    await forget(forgetful)
    for node in late:
        await processes.resume(node)
    return f"{','.join(late)} late, {forgetful} forgot, {','.join(paused)} knew"


async def heal_at_timeout(scene: Scene) -> str:
    """The leader is cut off, and back when its followers begin to think of an election."""
    network = scene.handle("network", scene.backend.network)

    async def cut_for_a_while(node: str) -> None:
        await cut_off(scene, node)
        await asyncio.sleep(scene.random.uniform(0.4, 1.4))
        await network.heal(around(scene, node), TroubleKind.CUT)
        await asyncio.sleep(scene.random.uniform(0.1, 0.8))

    return await scene.each_leader(TIMEOUTS, cut_for_a_while)


async def wipe_cut_off(scene: Scene) -> str:
    """A follower loses everything while the leader hears only it."""
    scene.handle("network", scene.backend.network)
    leader, wiped = await scene.leader(), await scene.follower()
    others = [node for node in scene.backend.nodes if node not in (leader, wiped)]
    hit = await wipe_one(scene, wiped)
    await cut(scene, others, [leader, wiped])
    return f"{hit} wiped, alone with leader {leader}"


async def kill_while_cut(scene: Scene) -> str:
    """The leader writes on alone, is killed, and comes back into a group that went on."""
    processes = scene.handle("processes", scene.backend.processes)
    scene.handle("network", scene.backend.network)
    node = await scene.leader()
    scene.undo.push_async_callback(bring_back, scene, node)
    await cut_off(scene, node)
    await asyncio.sleep(scene.random.uniform(0.2, 1.5))
    await processes.kill(node)
    return node


FAULTS: Final = (
    Fault("clock", "a wall clock off and drifting", ["clocks"], clock, is_borne=False),
    Fault("starve", "little processor time and memory", ["cgroups"], starve, is_borne=False),
    Fault("transfer", "leadership handed round", ["leadership"], transfers, (0.2, 0.5),
          is_borne=False),
    Fault("next-quorum", "a late and a forgetful one decide", ["disks", "processes"], next_quorum,
          is_borne=False),
    Fault("next-quorum-wiped", "a late and a wiped one decide", ["folders", "processes"],
          next_quorum_wiped, is_borne=False, loses_disk=True),
    Fault("heal-at-timeout", "the leader is back as an election begins", ["network"],
          heal_at_timeout, (0.2, 0.5), is_borne=False),
    Fault("wipe-cut-off", "the leader hears a wiped member alone", ["folders", "network"],
          wipe_cut_off, is_borne=False, loses_disk=True),
    Fault("kill-while-cut", "a leader that is cut off is killed", ["network", "processes"],
          kill_while_cut, is_borne=False),
)  # fmt: skip
