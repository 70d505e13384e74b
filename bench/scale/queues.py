"""Appends, a lone send, reading, idling, memory and a start, by the number of queues."""

import asyncio
import time
from collections.abc import AsyncIterator

from bench.cluster.idle import idle_share
from bench.cluster.restart import start_seconds
from bench.effort import Effort
from bench.log.fetch import drain_batches
from bench.scale.load import (
    Spread,
    append_cost,
    create_topics,
    lone_ms,
    records_of,
    spread_over,
    topic_name,
)
from bench.setup.cluster import Running, running
from bench.setup.native import BODY_SIZE, Window, plain_records, pour

POINTS = (1, 100, 10_000)
TOUCH = Window(256)


async def measure(queues: int, effort: Effort) -> AsyncIterator[tuple[str, float, str]]:
    """Yield what a cluster with so many queues takes, every queue written to: name, value, unit."""
    async with running(effort.folder) as here:
        places = await create_topics(here, queues)
        single = await spread_over(here, places, plain_records(1))
        await pour(here, single, TOUCH, lambda stored: stored < queues)
        makes = await spread_over(here, places, records_of(BODY_SIZE))
        cost = await append_cost(here, makes, BODY_SIZE, effort.seconds)
        yield "append", cost.megabytes_per_second, "MB/s"
        yield "append_cost", cost.core_ms_per_megabyte, "core-ms per MB"
        yield "lone_send", await lone_ms(here, single, effort.seconds), "ms"
        yield "fetch", await _read_all(here, makes, single), "MB/s"
        await here.caught_up()
        yield "idle", await idle_share(here, effort.idle_seconds), "% of one core"
        yield "memory", max(here.memory_mib()), "MiB"
        follower = await here.follower()
        here.cluster.kill(follower)
        yield "start", await asyncio.to_thread(start_seconds, here.cluster, follower), "s"


async def _read_all(here: Running, makes: Spread, single: Spread) -> float:
    """Read everything by one consumer for each topic, all at once; return MB/s."""
    stored = dict.fromkeys((queue.topic_id for queue in makes.queues), 0)
    for spread in (makes, single):
        for queue in spread.queues:
            stored[queue.topic_id] += queue.sequence
    start = time.perf_counter()
    await asyncio.gather(
        *(
            drain_batches(here, topic_name(number), count)
            for number, count in enumerate(stored.values())
        )
    )
    return sum(stored.values()) * BODY_SIZE / 1e6 / (time.perf_counter() - start)
