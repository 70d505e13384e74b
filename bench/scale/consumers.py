"""Reading one queue by the number of its readers, each of which reads all of it."""

import asyncio
import time
from collections.abc import AsyncIterator

from bench.effort import Effort
from bench.log.fetch import drain_wire
from bench.setup.cluster import running
from bench.setup.native import BODY_SIZE, pour_bytes

POINTS = (1, 16, 64)
BYTES_PER_SECOND = 32 << 20
"""The backlog, for each second of effort: 64 readers take 64 times as much."""


async def measure(consumers: int, effort: Effort) -> AsyncIterator[tuple[str, float, str]]:
    """Yield what so many readers of one queue take: name, value, unit."""
    async with running(effort.folder) as here:
        topic = await here.create_topic("scale")
        total = int(effort.seconds * BYTES_PER_SECOND)
        stored = (await pour_bytes(here, topic, total)).records
        before = here.processor_seconds()
        start = time.perf_counter()
        # Batches are not checked: the readers are many, and share one process.
        await asyncio.gather(
            *(drain_wire(here, topic, stored, checks=False) for _ in range(consumers))
        )
        seconds = time.perf_counter() - start
        megabytes = consumers * stored * BODY_SIZE / 1e6
        used = here.processor_seconds() - before
        yield "fetch", megabytes / seconds, "MB/s, all readers"
        yield "cost", used * 1000 / megabytes, "core-ms per MB"
        yield "memory", max(here.memory_mib()), "MiB"
