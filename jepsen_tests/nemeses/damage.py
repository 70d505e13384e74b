"""Damage to the files of a stopped member: flipped bits, lost ends, old blocks, missing files.

A member that finds damage must end, not start, or let a peer mend it: it must never serve wrong
data. Healing sets the folder of a member that ended aside, as an operator would.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from jepsen_tests.backends.surface import Folders, Processes
from jepsen_tests.history.events import WHOLE
from jepsen_tests.nemeses.fault import Fault, Scene, Skipped
from jepsen_tests.nemeses.losing import lose_disk
from jepsen_tests.nemeses.processes import bring_back

BLOCK_SIZE: Final = 4096
FLIPS_MAX: Final = 8
CHANGING_SECONDS: Final = 2.0
"""How long a member takes part between the copy of its blocks and their being put back."""
CHANGING: Final = (".log", ".mdb")
"""Files that a member writes to all the time: the newest segment, the state."""
LOCK: Final = "lock.mdb"
"""LMDB's table of readers. It means nothing after the process has ended."""
RESERVE: Final = "reserve"
"""A file that only takes up room: nothing is ever read from it."""


def _files(folder: Path) -> list[Path]:
    """Return the files that hold something, of all classes: log, index, state, hard state."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.name != RESERVE]
    return sorted(path for path in found if path.stat().st_size)


def _choose(node: str, folder: Path, random: Random) -> Path:
    """Return a file; each class (its suffix or name) is as likely as another."""
    classes: dict[str, list[Path]] = {}
    for path in _files(folder):
        classes.setdefault(path.suffix or path.name, []).append(path)
    if not classes:
        raise Skipped(f"nothing is stored in {folder}", node)
    return random.choice(classes[random.choice(sorted(classes))])


def _used_size(path: Path) -> int:
    """Return where a file's content ends: space that was allocated ahead holds zeros."""
    data = path.read_bytes()
    return max(1, len(data.rstrip(b"\0")))


def flip(path: Path, random: Random) -> str:
    """Flip some bits."""
    data = bytearray(path.read_bytes())
    used = _used_size(path)
    flips = random.randint(1, FLIPS_MAX)
    for _ in range(flips):
        data[random.randrange(used)] ^= 1 << random.randrange(8)
    path.write_bytes(data)
    return f"{flips} bits flipped"


def truncate(path: Path, random: Random) -> str:
    """Cut off the end of a file."""
    size = random.randrange(_used_size(path))
    with path.open("r+b") as file:
        file.truncate(size)
    return f"cut to {size} bytes"


def delete(path: Path, random: Random) -> str:
    """Delete a file."""
    del random
    path.unlink()
    return "deleted"


def _repairing(scene: Scene, node: str) -> tuple[Processes, Folders]:
    processes = scene.handle("processes", scene.backend.processes)
    folders = scene.handle("folders", scene.backend.folders)
    scene.undo.push_async_callback(bring_back, scene, node)
    return processes, folders


async def _damage(scene: Scene, *, how: Callable[[Path, Random], str]) -> str:
    """Damage a file of a member that is stopped for it."""
    node = await scene.one()
    await lose_disk(scene, node)
    processes, folders = _repairing(scene, node)
    await processes.kill(node)
    folder = folders.folder(node)
    path = await asyncio.to_thread(_choose, node, folder, scene.random)
    scene.hurt.add(node)
    done = await asyncio.to_thread(how, path, scene.random)
    await processes.start(node)
    return f"{node}, {path.relative_to(folder)} {done}"


async def stale_blocks(scene: Scene) -> str:
    """A block of a file is as it was some time ago: a write that the disk lost."""
    node = await scene.one()
    await lose_disk(scene, node)
    processes, folders = _repairing(scene, node)
    folder = folders.folder(node)
    await processes.kill(node)
    before = await asyncio.to_thread(_contents, folder)
    await processes.start(node)
    await scene.wait_until(
        lambda found: node in found and found[node].role in WHOLE, f"{node} to take part again"
    )
    await asyncio.sleep(CHANGING_SECONDS)
    if processes.is_running(node):
        await processes.kill(node)
    now = await asyncio.to_thread(_contents, folder)
    changed = {path: _changed(old, now.get(path, b"")) for path, old in before.items()}
    paths = sorted(path for path, starts in changed.items() if starts)
    if not paths:
        await processes.start(node)
        raise Skipped("no file changed", node)
    path = scene.random.choice(paths)
    start = scene.random.choice(changed[path])
    end = start + BLOCK_SIZE
    data = now[path][:start] + before[path][start:end] + now[path][end:]
    scene.hurt.add(node)
    await asyncio.to_thread(path.write_bytes, data)
    await processes.start(node)
    return f"{node}, {path.relative_to(folder)} block at {start} is old"


def _contents(folder: Path) -> dict[Path, bytes]:
    """Read the files that a member writes to all the time and reads again."""
    return {
        path: path.read_bytes()
        for path in _files(folder)
        if path.suffix in CHANGING and path.name != LOCK
    }


def _changed(before: bytes, now: bytes) -> list[int]:
    """Return where the blocks begin that have changed."""
    starts = range(0, min(len(before), len(now)), BLOCK_SIZE)
    return [s for s in starts if before[s : s + BLOCK_SIZE] != now[s : s + BLOCK_SIZE]]


FAULTS: Final = (
    Fault("bit-flips", "bits of a file flipped", ["folders", "processes"],
          partial(_damage, how=flip), loses_disk=True),
    Fault("truncation", "the end of a file lost", ["folders", "processes"],
          partial(_damage, how=truncate), loses_disk=True),
    Fault("deletion", "a file lost", ["folders", "processes"], partial(_damage, how=delete),
          loses_disk=True),
    Fault("stale-blocks", "a block as it was before", ["folders", "processes"], stale_blocks,
          loses_disk=True),
)  # fmt: skip
