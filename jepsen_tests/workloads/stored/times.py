"""W11: offsets by time, under wrong clocks."""

import time
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import ClassVar, Final

from dledger_client import AsyncAdmin
from jepsen_tests.run.patience import Revive
from jepsen_tests.workloads.clients import Worker, place_of, split_place
from jepsen_tests.workloads.stored.doing import act_at_random
from jepsen_tests.workloads.stored.finding import look_at, show_stamps
from jepsen_tests.workloads.workload import LeastOk, Stage, Workload

TOPIC: Final = "chaos-times"
QUEUES: Final = 3
PLACES: Final = tuple(place_of(TOPIC, queue) for queue in range(QUEUES))
BATCH_MAX: Final = 4
ACTIONS: Final = {"send": 30, "time": 40, "lookup": 10, "poll": 10}
AROUND_MS: Final = (-1, 0, 0, 1, -50, 50)
"""How far from a known store time a call asks."""
FAR_MS: Final = (-90_000_000, -1_000, 0, 1_000, 90_000_000)
"""How far from the harness's own time a call asks, if not from a store time."""
STAMPS_MAX: Final = 200


class TimesWorkload(Workload):
    """Whoever asks for a time gets the first record that was stored at or after it."""

    name = "times"
    what = "W11: ask for the first offset stored at or after a time while messages are sent"
    topics: ClassVar[Mapping[str, int]] = {TOPIC: QUEUES}
    least_ok: ClassVar[LeastOk] = {
        "send": (100, 0.3), "poll": (10, 0.3), "by-time": (100, 0.3), "lookup": (20, 0.3),
    }  # fmt: skip

    def __init__(self) -> None:
        self._stamps: list[int] = []
        """Store times that lookups showed."""

    async def work(self, stage: Stage, random: Random) -> None:
        await act_at_random(stage, random, PLACES, self._act)

    async def _act(self, worker: Worker, admin: AsyncAdmin, place: str) -> None:
        random = worker.random
        match random.choices(list(ACTIONS), list(ACTIONS.values()))[0]:
            case "send":
                await worker.send(place, random.choice((1, 1, BATCH_MAX)), 100)
            case "time":
                await _offset_by_time(worker, admin, place, self._time(random))
            case "lookup":
                await self._learn(worker, admin, place)
            case _:
                await worker.poll()

    def _time(self, random: Random) -> int:
        if self._stamps and random.random() < 0.8:
            return random.choice(self._stamps[-STAMPS_MAX:]) + random.choice(AROUND_MS)
        return time.time_ns() // 1_000_000 + random.choice(FAR_MS)

    async def _learn(self, worker: Worker, admin: AsyncAdmin, place: str) -> None:
        bounds = await worker.bounds(place)
        if bounds is not None and bounds[0] < bounds[1]:
            offset = worker.random.randrange(*bounds)
            self._stamps += [row[3] for row in await look_at(worker.process, admin, place, offset)]

    async def finish(self, stage: Stage, revive: Revive) -> None:
        await show_stamps(stage, PLACES, revive)


async def _offset_by_time(worker: Worker, admin: AsyncAdmin, place: str, time_ms: int) -> None:
    call = partial(admin.offset_by_time, *split_place(place), time_ms)
    await worker.process.do("by-time", place, time_ms, call, lambda found: found, reads=True)
