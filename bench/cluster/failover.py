"""Losing the leader under one synchronous producer: killed, paused, cut off from everybody.

The gap is the time between the last acknowledgement of the old leader and the first of the new.
"""

import asyncio
import random
import time
from collections.abc import Callable
from functools import partial

from bench.effort import Effort
from bench.figures import Figure, stated
from bench.setup.blocking import sending
from bench.setup.cluster import NotReady, Running, running
from bench.setup.cuttable import cuttable

TOPIC = "failover"
RECOVERY_SECONDS_MAX = 30.0
QUIET_SECONDS = (0.5, 1.5)
"""Between a recovery and the next trial; random, so that trials meet timers at any point."""
LOOK_SECONDS = 0.002


Break = Callable[[str], None]


async def measure(effort: Effort) -> list[Figure]:
    figures: list[Figure] = []
    async with running(effort.folder) as here:
        cluster = here.cluster
        await here.create_topic(TOPIC)
        gaps = await _trials(here, effort.trials, cluster.kill, cluster.start)
        figures += _figures("kill", gaps, 0.2, 1.5, "SIGKILL")
        gaps = await _trials(here, effort.trials, cluster.pause, cluster.resume)
        figures += _figures("pause", gaps, 1.2, 2.5, "SIGSTOP")
    async with cuttable(effort.folder) as (here, network):
        await here.create_topic(TOPIC)
        gaps = await _trials(here, effort.trials, network.cut, network.heal)
        figures += _figures("cut", gaps, 1.2, 2.5, "every link through a TCP proxy goes silent")
    return figures


def _figures(name: str, gaps: list[float], median: float, worst: float, note: str) -> list[Figure]:
    return [
        stated(f"failover_{name}_median", gaps, "s", "<=", median, note),
        Figure(f"failover_{name}_worst", max(gaps), "s", wanted=worst, sense="<=",
               runs=sorted(gaps), note=f"{len(gaps)} trials"),
    ]  # fmt: skip


async def _trials(here: Running, trials: int, hurt: Break, heal: Break) -> list[float]:
    chance = random.Random(7)
    gaps: list[float] = []
    async with sending(here.cluster.name_server, TOPIC) as acks:
        await _until(lambda: acks.term > 0, "the first acknowledgement")
        for _ in range(trials):
            await asyncio.sleep(chance.uniform(*QUIET_SECONDS))
            leader = await here.leader()
            term = acks.term
            hurt(leader)
            try:
                await _until(partial(acks.has_moved_on, term), "a new leader")
            finally:
                heal(leader)
            gaps.append(acks.gap(term))
            await here.caught_up()
    if acks.failures:
        raise NotReady(f"{len(acks.failures)} sends failed: {acks.failures[0]}")
    return gaps


async def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + RECOVERY_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise NotReady(f"{what} did not come within {RECOVERY_SECONDS_MAX} s")
        await asyncio.sleep(LOOK_SECONDS)
