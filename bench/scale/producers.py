"""Lone sends by the number of producers: each waits for its answer before it sends again."""

import asyncio
import time
from collections.abc import AsyncIterator

from bench.effort import Effort
from bench.figures import percentile
from bench.setup.callers import WARM_UP_SECONDS
from bench.setup.cluster import Running, running
from bench.setup.native import BODY_SIZE, Batches, Poured, Window, plain_records, pour, register

POINTS = (1, 10, 100, 500)
QUEUES = 4


async def measure(producers: int, effort: Effort) -> AsyncIterator[tuple[str, float, str]]:
    """Yield what so many producers take, each with one message in flight: name, value, unit."""
    async with running(effort.folder) as here:
        topic = await here.create_topic("scale", queues=QUEUES)
        leader = await here.leader()
        makers = [
            await register(here, leader, topic, number % QUEUES, plain_records(1))
            for number in range(producers)
        ]
        await _all_for(here, leader, makers, WARM_UP_SECONDS)
        before = here.processor_seconds()
        poured = await _all_for(here, leader, makers, effort.seconds)
        stored = sum(each.records for each in poured)
        # The first batch of a stream waits for the member to take it, behind all that open with it.
        seconds = [taken for each in poured for taken in each.batch_seconds[1:]]
        opening = [each.batch_seconds[0] for each in poured]
        used = here.processor_seconds() - before
        yield "rate", stored / max(each.seconds for each in poured), "messages/s"
        yield "latency_p50", percentile(seconds, 0.5) * 1000, "ms"
        yield "latency_p99", percentile(seconds, 0.99) * 1000, "ms"
        yield "opening_p99", percentile(opening, 0.99) * 1000, "ms"
        yield "cost", used * 1000 / (stored * BODY_SIZE / 1e6), "core-ms per MB"
        yield "memory", max(here.memory_mib()), "MiB"


async def _all_for(
    here: Running, leader: str, makers: list[Batches], seconds: float
) -> list[Poured]:
    """Let all producers send for so many seconds, and wait for their answers."""
    end = time.perf_counter() + seconds
    return await asyncio.gather(
        *(
            pour(here, maker, Window(1), lambda _: time.perf_counter() < end, leader)
            for maker in makers
        )
    )
