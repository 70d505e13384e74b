"""Processes that end, restart or stand still."""

import asyncio
from collections.abc import Sequence
from typing import Final

from dledger_proto.exit_codes import Exit
from jepsen_tests.backends.surface import CannotRepair, Processes
from jepsen_tests.history.events import EXAMINE, WHOLE, Kind
from jepsen_tests.nemeses.fault import Fault, Scene

CRASHES: Final = 4
CRASH_PAUSE_SECONDS: Final = (0.1, 1.5)


def _processes(scene: Scene) -> Processes:
    return scene.handle("processes", scene.backend.processes)


async def bring_back(scene: Scene, node: str) -> None:
    """Start a member that does not run; one that found its data damaged is repaired first.

    A member that `dledger repair` cannot mend stays down. C18 then finds that it is missing.
    """
    processes = _processes(scene)
    if processes.is_running(node):
        return
    if processes.exit_code(node) == Exit.DAMAGED:
        try:
            await scene.handle("folders", scene.backend.folders).repair(node)
        except CannotRepair:
            return
        scene.hurt.discard(node)
        scene.note(EXAMINE, f"{node} repaired", Kind.OK)
    await processes.start(node)


async def _kill(scene: Scene, nodes: Sequence[str]) -> str:
    processes = _processes(scene)
    for node in nodes:
        scene.undo.push_async_callback(bring_back, scene, node)
    await asyncio.gather(*(processes.kill(node) for node in nodes))
    return ",".join(nodes)


async def kill(scene: Scene) -> str:
    """Kill one member, often the leader."""
    return await _kill(scene, [await scene.one()])


async def kill_leader(scene: Scene) -> str:
    """Kill the leader."""
    return await _kill(scene, [await scene.leader()])


async def kill_majority(scene: Scene) -> str:
    """Kill so many members that no majority is left."""
    return await _kill(scene, scene.some(scene.majority))


async def kill_all(scene: Scene) -> str:
    """Kill all members at once; all come back at once."""
    return await _kill(scene, scene.running())


async def crash_loop(scene: Scene) -> str:
    """Kill one member again and again, also while it recovers."""
    processes = _processes(scene)
    node = await scene.one()
    scene.undo.push_async_callback(bring_back, scene, node)
    for _ in range(CRASHES):
        await processes.kill(node)
        await processes.start(node)
        await asyncio.sleep(scene.random.uniform(*CRASH_PAUSE_SECONDS))
    return node


async def restart_rolling(scene: Scene) -> str:
    """Ask each member in turn to end, and start it again, as an upgrade does."""
    processes, nodes = _processes(scene), scene.backend.nodes
    order = scene.running()
    scene.random.shuffle(order)
    for node in order:
        scene.undo.push_async_callback(bring_back, scene, node)
        await processes.stop(node)
        await processes.start(node)
        await scene.wait_until(
            lambda found: sum(each.role in WHOLE for each in found.values()) == len(nodes),
            "all members to be whole",
        )
    return ",".join(order)


async def _pause(scene: Scene, nodes: Sequence[str]) -> str:
    processes = _processes(scene)
    for node in nodes:
        scene.undo.push_async_callback(processes.resume, node)
        await processes.pause(node)
    return ",".join(nodes)


async def pause(scene: Scene) -> str:
    """One member stands still, often the leader."""
    return await _pause(scene, [await scene.one()])


async def pause_majority(scene: Scene) -> str:
    """So many stand still that nobody can be elected."""
    return await _pause(scene, scene.some(scene.majority))


async def pauses(scene: Scene) -> str:
    """Several times the leader stands still, a little longer than an election takes."""
    processes = _processes(scene)

    async def stand_still(node: str) -> None:
        scene.undo.push_async_callback(processes.resume, node)
        await processes.pause(node)
        await asyncio.sleep(scene.random.uniform(0.5, 2.0))
        await processes.resume(node)

    return await scene.each_leader(CRASHES, stand_still)


FAULTS: Final = (
    Fault("kill", "kill -9 of one member, often the leader", ["processes"], kill),
    Fault("kill-leader", "kill -9 of the leader", ["processes"], kill_leader),
    Fault("crash-loop", "one member killed again and again", ["processes"], crash_loop, (1.0, 2.0)),
    Fault(
        "kill-majority", "kill -9 of a majority", ["processes"], kill_majority, (1.0, 4.0),
        is_borne=False,
    ),
    Fault("kill-all", "kill -9 of all", ["processes"], kill_all, (0.1, 3.0), is_borne=False),
    Fault("restart", "each member ended in order and restarted, in turn", ["processes"],
          restart_rolling, (0.5, 1.0)),
    Fault("pause", "one member stands still", ["processes"], pause),
    Fault(
        "pause-majority", "a majority stands still", ["processes"], pause_majority, (1.0, 5.0),
        is_borne=False,
    ),
    Fault("pause-leaders", "each new leader stands still for a while", ["processes"], pauses,
          (0.5, 1.0), is_borne=False),
)  # fmt: skip
