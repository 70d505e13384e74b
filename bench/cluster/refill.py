"""A member loses its disk after the head was trimmed: how fast a peer refills it, and who feels it.

Beside the refill stands `cp` of a member's files of the same size, synced at the end. Beside the
sends meanwhile stand the same sends before. The refill keeps its default bound of bytes per second.
"""

import asyncio
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared, percentile
from bench.setup.cluster import NotReady, Running, require_room, running
from bench.setup.native import Window, plain_records, pour_bytes, pour_for
from dledger_client import AsyncAdmin

TOPIC: Final = "refill"
MIB: Final = 1 << 20
PER_BATCH: Final = 64
PACE: Final = 0.15
"""The share of the producer's peak rate at which it sends. The refill takes this, too, and each
member's disk has to hold it."""
SEGMENTS: Final = 16
TRIMMED_PART: Final = 8
"""Of the log the first part of so many is trimmed."""
TRIM_SECONDS_MAX: Final = 120.0
LOOK_SECONDS: Final = 0.25
SLOWEST: Final = 4 * MIB
"""Bytes a second below which a refill has failed."""


async def measure(effort: Effort) -> list[Figure]:
    """Fill, trim, measure; then wipe one member, and measure until it is whole."""
    size = effort.large_log_bytes
    require_room(effort.folder, 5 * size)
    rounds = Rounds()
    async with running(effort.folder, storage__segment_size_bytes=size // SEGMENTS) as here:
        topic = await here.create_topic(TOPIC)
        peak = await pour_for(here, topic, plain_records(PER_BATCH), Window(64), effort.seconds)
        await pour_bytes(here, topic, size)
        await here.caught_up()
        await _trim(here)
        window = Window(64, batches_per_second=PACE * peak.rate / PER_BATCH)

        async def send(name: str) -> None:
            poured = await pour_for(here, topic, plain_records(PER_BATCH), window, effort.seconds)
            rounds.add(f"{name} p99", percentile(poured.batch_seconds, 0.99) * 1_000)
            rounds.add(f"{name} rate", poured.rate)

        for _ in range(effort.runs):
            await send("alone")
        wiped = await here.follower()
        folder = here.cluster.folder / wiped / "data"
        held, copied = await asyncio.to_thread(_copy, folder, effort.folder / "copy")
        here.cluster.kill(wiped)
        shutil.rmtree(folder)
        here.cluster.start(wiped)
        began = time.perf_counter()
        whole = asyncio.create_task(_whole(here, wiped, held / SLOWEST))
        while not whole.done():
            await send("beside")
        taken = await whole - began
        gathered = _size(folder)
    return [
        compared("refill_rate", [gathered / MIB / taken], "MiB/s", "cp of its files, synced",
                 [held / MIB / copied],
                 note=f"{held / MIB:.0f} MiB at first, {gathered / MIB:.0f} MiB at the end, from "
                 f"the start of the empty process until it followed: {taken:.0f} s"),
        compared("refill_p99", rounds["beside p99"], "ms", "before", rounds["alone p99"], "<=", 1.5,
                 note=f"of batches of {PER_BATCH}, paced at {PACE:g} of the peak"),
        compared("refill_sent", rounds["beside rate"], "records/s", "before",
                 rounds["alone rate"]),
    ]  # fmt: skip


async def _trim(here: Running) -> None:
    """Trim the first part of the queue; wait until each member has let a segment go."""
    async with AsyncAdmin(here.cluster.name_server) as admin:
        queue = (await admin.queue_offsets(TOPIC))[0]
        await admin.trim(TOPIC, 0, queue.maximum // TRIMMED_PART)
    async with asyncio.timeout(TRIM_SECONDS_MAX):
        while True:
            found = [await here.status(name) for name in here.cluster.member_names]
            if all(each is not None and each.first_index > 1 for each in found):
                return
            await asyncio.sleep(LOOK_SECONDS)


def _copy(folder: Path, to: Path) -> tuple[int, float]:
    """Copy a member's files, and sync them; return their bytes and the seconds. Blocks."""
    began = time.perf_counter()
    subprocess.run(["cp", "--sparse=never", "-r", str(folder), str(to)], check=True)
    subprocess.run(["sync", "-f", str(to)], check=True)
    taken = time.perf_counter() - began
    held = _size(to)
    shutil.rmtree(to)
    return held, taken


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def _whole(here: Running, member: str, seconds: float) -> float:
    """Return when a member has the head of the others, and follows without quarantine."""
    leader = await here.leader()
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        here.check_alive()
        own, other = await here.status(member), await here.status(leader)
        if own is not None and other is not None:
            quarantined = any(each.quarantined for each in other.members if each.member == member)
            is_near = own.applied_index >= other.commit_index - PER_BATCH
            if own.role == "follower" and is_near and not quarantined and own.first_index > 1:
                return time.perf_counter()
        await asyncio.sleep(LOOK_SECONDS)
    raise NotReady(f"{member} was not refilled in {seconds:.0f} s; see {here.cluster.folder}")
