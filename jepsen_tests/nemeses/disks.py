"""Disks that are slow, hang, fail, are full, lose what was not synced, or are gone."""

import asyncio
import contextlib
import shutil
from typing import Final

from jepsen_tests.backends.surface import Disks, Syncs
from jepsen_tests.nemeses.fault import Fault, Scene
from jepsen_tests.nemeses.losing import lose_disk
from jepsen_tests.nemeses.processes import bring_back

SLOW_SECONDS: Final = (0.02, 0.1, 0.5)
HANG_SECONDS: Final = 60.0
"""Longer than any limit that a member could have for one sync."""

WAIT_SECONDS: Final = 2.0
WAITING_SHARE: Final = 0.6


def _syncs(scene: Scene) -> Syncs:
    return scene.handle("syncs", scene.backend.syncs)


def _disks(scene: Scene) -> Disks:
    return scene.handle("disks", scene.backend.disks)


async def slow(scene: Scene) -> str:
    """Each sync of a member takes longer."""
    node, seconds = await scene.one(), scene.random.choice(SLOW_SECONDS)
    await slow_one(scene, node, seconds)
    return f"{node}, {seconds} s"


async def slow_one(scene: Scene, node: str, seconds: float) -> None:
    """Let each sync of this member take so much longer."""
    syncs = _syncs(scene)
    scene.undo.push_async_callback(syncs.slow, node, 0.0)
    await syncs.slow(node, seconds)


async def hang(scene: Scene) -> str:
    """No sync of a member returns."""
    syncs, node = _syncs(scene), await scene.one()
    scene.undo.push_async_callback(bring_back, scene, node)
    scene.undo.push_async_callback(syncs.slow, node, 0.0)
    await syncs.slow(node, HANG_SECONDS)
    return node


async def fail(scene: Scene) -> str:
    """The next sync of a member fails: it must end, and may come back."""
    syncs, node = _syncs(scene), await scene.one()
    scene.undo.push_async_callback(restart, scene, node)
    await syncs.fail(node)
    return node


async def restart(scene: Scene, node: str) -> None:
    """End a member if it runs, and start it; one that found its data damaged is repaired first."""
    processes = scene.handle("processes", scene.backend.processes)
    if processes.is_running(node):
        await processes.kill(node)
    await bring_back(scene, node)


async def full(scene: Scene) -> str:
    """A member's disk has no room left."""
    disks, node = _disks(scene), await scene.one()
    scene.undo.push_async_callback(bring_back, scene, node)
    scene.undo.push_async_callback(disks.give_back, node)
    await disks.fill(node)
    return node


async def cut_power(scene: Scene, nodes: list[str]) -> str:
    """Let these members lose their power at once."""
    disks = _disks(scene)
    for node in nodes:
        scene.undo.push_async_callback(bring_back, scene, node)
        scene.undo.push_async_callback(disks.power_on, node)
    await asyncio.gather(*(disks.cut_power(node) for node in nodes))
    return ",".join(nodes)


async def power_cut(scene: Scene) -> str:
    """One member loses what it had not synced."""
    return await cut_power(scene, [await scene.one()])


async def power_cut_all(scene: Scene) -> str:
    """All members at once."""
    return await cut_power(scene, scene.running())


async def power_cut_before_sync(scene: Scene) -> str:
    """All members at once, while syncs of a majority wait, or after they failed."""
    syncs, nodes = _syncs(scene), scene.running()
    _disks(scene)
    waits = scene.random.random() < WAITING_SHARE
    count = scene.random.randint(min(scene.majority, len(nodes)), len(nodes))
    for node in scene.random.sample(nodes, count):
        scene.undo.push_async_callback(syncs.slow, node, 0.0)
        await (syncs.slow(node, WAIT_SECONDS) if waits else syncs.fail(node))
    await asyncio.sleep(scene.random.uniform(0.2, 1.0) * WAIT_SECONDS)
    return await cut_power(scene, nodes)


async def wipe(scene: Scene) -> str:
    """A member loses everything and comes back empty under its name."""
    return await wipe_one(scene, await scene.one())


async def wipe_one(scene: Scene, node: str) -> str:
    """Let this member lose everything, when the others can bear it."""
    await lose_disk(scene, node)
    return await start_empty(scene, node)


async def start_empty(scene: Scene, node: str) -> str:
    """End this member and start it without its data."""
    processes = scene.handle("processes", scene.backend.processes)
    folders = scene.handle("folders", scene.backend.folders)
    scene.undo.push_async_callback(bring_back, scene, node)
    await processes.kill(node)
    with contextlib.suppress(FileNotFoundError):  # wiped before, and ended before it made one
        await asyncio.to_thread(shutil.rmtree, folders.folder(node))
    scene.hurt.discard(node)
    await processes.start(node)
    return node


FAULTS: Final = (
    Fault("slow-sync", "fdatasync takes longer", ["syncs"], slow, is_borne=False),
    Fault("hung-sync", "fdatasync does not return", ["syncs"], hang),
    Fault("failing-sync", "fdatasync fails with EIO; the member ends", ["syncs"], fail),
    Fault("full-disk", "no room left", ["disks"], full, is_borne=False),
    Fault("power-cut", "one member loses unsynced writes", ["disks", "processes"], power_cut),
    Fault("power-cut-all", "all lose unsynced writes at once", ["disks", "processes"],
          power_cut_all, (0.5, 2.0), is_borne=False),
    Fault("power-cut-before-sync", "all lose power while a majority's syncs wait or fail",
          ["disks", "syncs", "processes"], power_cut_before_sync, (0.5, 2.0), is_borne=False),
    Fault("wipe", "one member loses everything", ["folders", "processes"], wipe,
          loses_disk=True),
)  # fmt: skip
