"""A member's folder as it was some time ago, put back while the member is down.

Raft cannot bear this at any time: an old copy has forgotten acknowledgements and votes. What the
group bears, `docs/decisions/old-copies.md` says, and this fault keeps to it: one member, a copy of
the member's present life, all others whole and one of them leading. No other fault is in force
before the member is whole again.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Final

from dledger_client import MemberStatus
from jepsen_tests.history.events import WHOLE
from jepsen_tests.nemeses.fault import Fault, Scene
from jepsen_tests.nemeses.losing import lose_disk
from jepsen_tests.nemeses.processes import bring_back

FORGOTTEN_SECONDS: Final = (1.0, 4.0)
"""So long the member takes part after its folder was copied: that much the copy does not know."""


async def old_copy(scene: Scene) -> str:
    """An old copy of a member's folder is put back, as from a backup."""
    node = await scene.one()
    await lose_disk(scene, node)
    processes = scene.handle("processes", scene.backend.processes)
    folder = scene.handle("folders", scene.backend.folders).folder(node)
    scene.undo.push_async_callback(bring_back, scene, node)
    with tempfile.TemporaryDirectory(prefix="dledger-old-copy-") as aside:
        copy = Path(aside) / folder.name
        await processes.kill(node)
        await asyncio.to_thread(shutil.copytree, folder, copy)
        incarnation = await _start_and_wait(scene, node)
        await asyncio.sleep(scene.random.uniform(*FORGOTTEN_SECONDS))
        await processes.kill(node)
        await scene.wait_until(
            lambda found: are_ready(scene, node, found), "all others to be whole, and one to lead"
        )
        await asyncio.to_thread(_put_back, copy, folder)
    now = await _start_and_wait(scene, node)
    return f"{node}, {'noticed: a new life' if now != incarnation else 'not noticed'}"


def are_ready(scene: Scene, node: str, found: dict[str, MemberStatus]) -> bool:
    """Say whether all members but this one are whole, and one of them leads."""
    roles = [each.role for name, each in found.items() if name != node]
    whole = [role for role in roles if role in WHOLE]
    return len(whole) == len(scene.backend.nodes) - 1 and "leader" in whole


async def _start_and_wait(scene: Scene, node: str) -> str:
    """Start a member; return its incarnation when it has what the group had committed."""
    processes = scene.handle("processes", scene.backend.processes)
    committed = max((each.commit_index for each in (await scene.statuses()).values()), default=0)
    await processes.start(node)
    await scene.wait_until(
        lambda found: (
            node in found and found[node].role in WHOLE and found[node].applied_index >= committed
        ),
        f"{node} to be whole",
    )
    return (await scene.statuses())[node].incarnation


def _put_back(copy: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


FAULTS: Final = (
    Fault("old-copy", "a member's folder as it was before", ["folders", "processes"], old_copy,
          (0.5, 1.0), loses_disk=True, is_alone=True),
)  # fmt: skip
"""The folder is put back and the member is whole before the fault is in force."""
