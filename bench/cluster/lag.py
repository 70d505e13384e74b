"""A follower that is stopped (SIGSTOP) for a minute.

Under full load: what the leader keeps for it. At half load: how long it takes to catch up.
"""

import asyncio
import time
from collections.abc import Callable

from bench.effort import Effort
from bench.figures import Figure, compared, stated
from bench.setup.cluster import NotReady, Running, anonymous_bytes, require_room, running
from bench.setup.native import Window, plain_records, pour, pour_for, register

MIB = 1 << 20
WARM_SECONDS = 5.0
LOOK_SECONDS = 0.1
PER_BATCH = 256
WINDOW = 32
CATCH_UP_FACTOR_MAX = 10.0
"""The follower may take so many times the pause to catch up."""


async def measure(effort: Effort) -> list[Figure]:
    require_room(effort.folder, int(4 * effort.pause_seconds * (200 << 20)))
    async with running(effort.folder) as here:
        topic = await here.create_topic("lag", queues=4)
        warm = await pour_for(here, topic, plain_records(PER_BATCH), Window(WINDOW), WARM_SECONDS)
        growth = await _growth(here, topic, effort.pause_seconds)
        await here.caught_up()
        half = warm.rate / PER_BATCH / 2
        took, missed = await _catch_up(here, topic, half, effort.pause_seconds)
    return [
        stated("lag_leader_memory", [growth / MIB], "MiB", "<=", 64.0,
               f"growth of the leader's RssAnon, a follower stopped for {missed:.0f} s"),
        compared("lag_catch_up", [took], "s", "the time it was stopped", [missed], "<=", 2.0,
                 f"at half load, {half * PER_BATCH:.0f} records/s"),
    ]  # fmt: skip


async def _pour(here: Running, topic: bytes, window: Window, go_on: Callable[[int], bool]) -> None:
    batches = await register(here, await here.leader(), topic, 0, plain_records(PER_BATCH))
    await pour(here, batches, window, go_on)


async def _growth(here: Running, topic: bytes, seconds: float) -> float:
    """Return by how many bytes the leader grew while a follower was stopped."""
    leader, follower = await here.leader(), await here.follower()
    pid = here.cluster.pid(leader)
    before = anonymous_bytes(pid)
    most = before
    end = time.perf_counter() + seconds
    here.cluster.pause(follower)
    try:
        load = asyncio.create_task(
            _pour(here, topic, Window(WINDOW), lambda _: time.perf_counter() < end)
        )
        while not load.done():
            await asyncio.sleep(LOOK_SECONDS)
            most = max(most, anonymous_bytes(pid))
        await load
    finally:
        here.cluster.resume(follower)
    if await here.leader() != leader:
        raise NotReady("the leader changed while a follower was stopped")
    return most - before


async def _catch_up(
    here: Running, topic: bytes, batches_per_second: float, seconds: float
) -> tuple[float, float]:
    """Return how long the follower took to catch up, and how long it was stopped."""
    leader, follower = await here.leader(), await here.follower()
    is_over = False
    window = Window(WINDOW, batches_per_second=batches_per_second)
    load = asyncio.create_task(_pour(here, topic, window, lambda _: not is_over))
    try:
        here.cluster.pause(follower)
        stopped = time.perf_counter()
        try:
            await asyncio.sleep(seconds)
        finally:
            here.cluster.resume(follower)
        resumed = time.perf_counter()
        while time.perf_counter() - resumed < seconds * CATCH_UP_FACTOR_MAX:
            if await _is_level(here, leader, follower):
                return time.perf_counter() - resumed, resumed - stopped
            await asyncio.sleep(LOOK_SECONDS)
        raise NotReady(f"{follower} did not catch up in {CATCH_UP_FACTOR_MAX} times the pause")
    finally:
        is_over = True
        await load


async def _is_level(here: Running, leader: str, follower: str) -> bool:
    """Tell whether the follower has applied what was committed when the leader was asked."""
    known = await here.status(leader)
    status = await here.status(follower)
    return known is not None and status is not None and status.applied_index >= known.commit_index
