"""What workers of several workloads do: act on places at random, trim queues now and then."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from random import Random
from typing import Final

from dledger_client import AsyncAdmin
from jepsen_tests.workloads.clients import Worker, split_place
from jepsen_tests.workloads.workload import Stage

TRIM_PAUSE_SECONDS: Final = 0.4

Act = Callable[[Worker, AsyncAdmin, str], Awaitable[None]]
"""One step at a place, which the worker's own chance chooses."""


@asynccontextmanager
async def worker_and_admin(
    stage: Stage, random: Random
) -> AsyncGenerator[tuple[Worker, AsyncAdmin]]:
    """Yield a worker and an administrator; close both at the end."""
    async with (
        aclosing(stage.worker(random)) as worker,
        AsyncAdmin(stage.backend.bootstrap, stage.connection) as admin,
    ):
        yield worker, admin


async def act_at_random(stage: Stage, random: Random, places: Sequence[str], act: Act) -> None:
    """Read all places from their beginnings, and act at one after the other until the end."""
    async with worker_and_admin(stage, random) as (worker, admin):
        await worker.assign(dict.fromkeys(places, 0))
        while not stage.over.is_set():
            await act(worker, admin, random.choice(places))
            await stage.pause(random)


async def trim_at_random(stage: Stage, random: Random, places: Sequence[str], keeps: int) -> None:
    """Trim one queue after the other, somewhere below its last `keeps` records, until the end."""
    async with worker_and_admin(stage, random) as (worker, admin):
        while not stage.over.is_set():
            await stage.pause(random, TRIM_PAUSE_SECONDS)
            place = random.choice(places)
            bounds = await worker.bounds(place)
            if bounds is not None and bounds[0] < bounds[1] - keeps:
                offset = random.randint(bounds[0] + 1, bounds[1] - keeps)
                trim = partial(admin.trim, *split_place(place), offset)
                await worker.process.do("trim", place, offset, trim, lambda found: found)
