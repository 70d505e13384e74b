"""What a group takes when it has nothing to do, and what it keeps after much was appended."""

import asyncio
import statistics
import time

from bench.effort import Effort
from bench.figures import Figure, stated
from bench.setup.cluster import Running, anonymous_bytes, cpu_seconds, require_room, running
from bench.setup.native import pour_bytes

MIB = 1 << 20


async def measure(effort: Effort) -> list[Figure]:
    """Measure an idle group, then fill it and look again."""
    # Three members hold everything, and reserve a segment each.
    require_room(effort.folder, 3 * effort.filled_bytes + (8 << 30))
    async with running(effort.folder) as here:
        topic = await here.create_topic("idle", queues=4)
        await asyncio.sleep(1.0)
        share = await idle_share(here, effort.idle_seconds)
        idle = _memory(here)
        await pour_bytes(here, topic, effort.filled_bytes)
        filled = _memory(here)
        await here.caught_up()
        share_after = await idle_share(here, effort.idle_seconds)
        settled = _memory(here)
    gib = effort.filled_bytes / 2**30
    return [
        stated("idle_processor", [share], "% of one core, all members", "<=", 3.0),
        stated("idle_processor_filled", [share_after], "% of one core, all members", "<=", 3.0),
        Figure("idle_memory", max(idle), "MiB", wanted=120.0, sense="<=", runs=idle,
               note="RssAnon of the largest member"),
        Figure("filled_memory", max(filled), "MiB", wanted=250.0, sense="<=", runs=filled,
               note=f"RssAnon of the largest member after {gib:g} GiB were appended"),
        stated("filled_memory_settled", [statistics.mean(settled)], "MiB"),
    ]  # fmt: skip


async def idle_share(here: Running, seconds: float) -> float:
    """Return the processor time of all members while nothing is asked, in % of one core."""
    pids = [here.cluster.pid(name) for name in here.cluster.member_names]
    before = sum(cpu_seconds(pid) for pid in pids)
    start = time.perf_counter()
    await asyncio.sleep(seconds)
    used = sum(cpu_seconds(pid) for pid in pids) - before
    return used / (time.perf_counter() - start) * 100


def _memory(here: Running) -> list[float]:
    names = here.cluster.member_names
    return [anonymous_bytes(here.cluster.pid(name)) / MIB for name in names]
