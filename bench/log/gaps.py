"""How long nothing is acknowledged while nothing is wrong: full speed, small bodies, keys.

A producer takes messages as fast as its loop can and lets it turn once every 256. The figure is
the longest time between two acknowledgements, of each run the worst.
"""

import asyncio
import itertools
import os
import time

from bench.effort import Effort
from bench.figures import Figure, Rounds, stated
from bench.setup.cluster import running
from bench.setup.users import BREATH_MESSAGES
from dledger_client import AsyncProducer, AsyncSendFuture
from dledger_client.errors import BufferFull

TOPIC = "gaps"
QUEUES = 8
BODY_SIZE = 150
KEYS = 4_000
SECONDS_FACTOR = 4
"""Runs are so many times longer than usual: a stall may come only every few seconds."""
GAP_MAX_SECONDS = 0.1


async def measure(effort: Effort) -> list[Figure]:
    rounds = Rounds()
    async with running(effort.folder) as here:
        await here.create_topic(TOPIC, queues=QUEUES)
        async with AsyncProducer(here.cluster.name_server) as producer:
            await acknowledgements(producer, 1.0)
            for _ in range(effort.runs):
                times = await acknowledgements(producer, effort.seconds * SECONDS_FACTOR)
                rounds.add(
                    "gap", max(after - before for before, after in itertools.pairwise(times))
                )
                rounds.add("rate", len(times) / (times[-1] - times[0]))
    note = f"the median of each run's worst; the worst of all {max(rounds['gap']):.3f} s"
    return [
        stated("largest_gap_without_fault", rounds["gap"], "s", "<=", GAP_MAX_SECONDS, note),
        stated("gaps_rate", rounds["rate"], "records/s"),
    ]


async def acknowledgements(producer: AsyncProducer, seconds: float) -> list[float]:
    """Send at full speed; return when each message was acknowledged, in seconds of one clock."""
    keys = [f"N{number:05d}" for number in range(KEYS)]
    body = os.urandom(BODY_SIZE)
    times: list[float] = []

    def heard(future: AsyncSendFuture) -> None:
        future.result()  # raises what went wrong
        times.append(time.perf_counter())

    sent = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(BREATH_MESSAGES):
            key = keys[sent * 7919 % KEYS]
            try:
                producer.submit(TOPIC, body, key=key, ordering_key=key, on_done=heard)
                sent += 1
            except BufferFull:
                await producer.wait_for_room()
        await asyncio.sleep(0)
    await producer.flush()
    assert len(times) == sent, f"{len(times)} of {sent} messages were heard of"
    return times
