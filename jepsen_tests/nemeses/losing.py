"""Which member may lose its data now: what a majority stored must stay whole on some member.

Damage may lie in a member's files for long before the member notices it. If another member lost its
data meanwhile, acknowledged messages would be lost without any fault of the product. So the harness
remembers damaged members, and examines them first.
"""

from dledger_proto.exit_codes import Exit
from jepsen_tests.backends.surface import CannotRepair
from jepsen_tests.history.events import EXAMINE, WHOLE, Kind
from jepsen_tests.nemeses.fault import Scene, Skipped


async def lose_disk(scene: Scene, node: str) -> None:
    """Note that a member's data will be gone; Skipped when the others cannot bear it.

    One that lost its data before is waited for: it is filled again. So is one that was damaged and
    has not noticed.
    """
    if scene.lost - {node}:
        raise Skipped(f"{', '.join(scene.lost)} loses its disk in this phase")
    for other in sorted(scene.hurt & set(scene.backend.nodes) - {node}):
        await examine(scene, other)
    await scene.wait_until(
        lambda found: (
            sum(each.role in WHOLE for n, each in found.items() if n != node) >= scene.majority
        ),
        f"a majority without {node} to be whole",
    )
    scene.lost.add(node)


async def examine(scene: Scene, node: str) -> None:
    """Read all that a damaged member stores, and replace it if it is damaged still.

    Returns when it has what the group had committed; Skipped when that cannot be brought about.
    Writes itself down as a fault, for the member is ended, with what was found ("sound" or
    "repaired" after its name) unless it was broken off before.
    """
    processes = scene.handle("processes", scene.backend.processes)
    folders = scene.handle("folders", scene.backend.folders)
    if not processes.is_running(node) and processes.exit_code(node) != Exit.DAMAGED:
        raise Skipped(f"{node} was damaged, and another fault ended it before it was examined")
    scene.note(EXAMINE, "", Kind.INVOKE)
    told = node
    try:
        await processes.stop(node)
        if await folders.is_sound(node):
            told = f"{node} sound"
        else:
            await folders.repair(node)
            told = f"{node} repaired"
    except CannotRepair as error:
        raise Skipped(f"{node} cannot be repaired: {error}") from error
    finally:  # also when the run is broken off, while it stops perhaps: it did not die
        if processes.is_running(node):
            await processes.kill(node)
        await processes.start(node)
        scene.note(EXAMINE, told, Kind.OK)
    committed = max((each.commit_index for each in (await scene.statuses()).values()), default=0)
    await scene.wait_until(
        lambda found: (
            node in found and found[node].role in WHOLE and found[node].applied_index >= committed
        ),
        f"{node} to be whole",
    )
    scene.hurt.discard(node)
