"""What a group takes when it has nothing to do, and what it keeps after much was appended."""

import asyncio
import statistics
import time

from bench.effort import Effort
from bench.figures import Figure, stated
from bench.setup.cluster import Running, require_room, running
from bench.setup.native import pour_bytes


async def measure(effort: Effort) -> list[Figure]:
    """Measure an idle group, then fill it and look again."""
    # Three members hold everything, and reserve a segment each.
    require_room(effort.folder, 3 * effort.filled_bytes + (8 << 30))
    async with running(effort.folder) as here:
        topic = await here.create_topic("idle", queues=4)
        await asyncio.sleep(1.0)
        share = await idle_share(here, effort.idle_seconds)
        idle = here.memory_mib()
        await pour_bytes(here, topic, effort.filled_bytes)
        filled = here.memory_mib()
        await here.caught_up()
        share_after = await idle_share(here, effort.idle_seconds)
        settled = here.memory_mib()
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
    before = here.processor_seconds()
    start = time.perf_counter()
    await asyncio.sleep(seconds)
    used = here.processor_seconds() - before
    return used / (time.perf_counter() - start) * 100
