"""W9: holds on queues are placed, renewed and released, while others trim; under wrong clocks.

One more queue takes a message every moment. Its store times tell later when each hold ended.
"""

import itertools
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from dledger_client import AsyncAdmin
from jepsen_tests.backends.surface import Setting
from jepsen_tests.run.patience import Revive
from jepsen_tests.workloads.clients import Worker, place_of, split_place
from jepsen_tests.workloads.stored.doing import trim_at_random, worker_and_admin
from jepsen_tests.workloads.stored.finding import look_at, show_stamps
from jepsen_tests.workloads.workload import LeastOk, Stage, Workload

TOPIC: Final = "chaos-holds"
QUEUES: Final = 6
PLACES: Final = tuple(place_of(TOPIC, queue) for queue in range(QUEUES))
CLOCK: Final = place_of("chaos-hold-clock", 0)
"""Nobody trims it."""
TICK_SECONDS: Final = 0.1
TTLS_MS: Final = (1_000, 2_000, 4_000, 8_000)
LONG_MS: Final = 600_000
"""Such a hold is released in any case: else it would keep its queue for the rest of the run."""
LONG: Final = 0.15
"""Share of holds that are long."""
HOLDERS: Final = 4
TRIMMERS: Final = 2
LOOKS_MAX: Final = 4
"""A holder reads so many records between two changes of its hold."""
BATCH_MAX: Final = 10


class HoldsWorkload(Workload):
    """What somebody holds is not trimmed."""

    name = "holds"
    trims = True
    what = "W9: place, renew and release holds while others trim: no trim passes a live hold"
    topics: ClassVar[Mapping[str, int]] = {TOPIC: QUEUES, "chaos-hold-clock": 1}
    settings: ClassVar[Mapping[str, Setting]] = {"storage.segment_size_bytes": 32 << 20}
    least_ok: ClassVar[LeastOk] = {
        "send": (100, 0.3), "hold": (30, 0.2), "release": (5, 0.2), "trim": (10, 0.05),
        "lookup": (30, 0.3),
    }  # fmt: skip

    def workers(self, stage: Stage) -> Sequence[Coroutine[Any, Any, None]]:
        randoms = (Random(stage.random.random()) for _ in itertools.count())
        senders = max(1, stage.concurrency - HOLDERS - TRIMMERS - 1)
        return [
            self._tick(stage, next(randoms)),
            *(self._send(stage, next(randoms)) for _ in range(senders)),
            *(self._hold(stage, next(randoms)) for _ in range(HOLDERS)),
            *(trim_at_random(stage, next(randoms), PLACES, 0) for _ in range(TRIMMERS)),
        ]

    async def _tick(self, stage: Stage, random: Random) -> None:
        async with aclosing(stage.worker(random)) as worker:
            while not stage.over.is_set():
                await worker.send(CLOCK, 1, 20)
                await stage.pause(random, TICK_SECONDS)

    async def _send(self, stage: Stage, random: Random) -> None:
        async with aclosing(stage.worker(random)) as worker:
            while not stage.over.is_set():
                await worker.send(random.choice(PLACES), random.choice((1, BATCH_MAX)), 100)
                await stage.pause(random)

    async def _hold(self, stage: Stage, random: Random) -> None:
        """Hold one queue after the other. Each hold's owner is new.

        An owner whose call had an unknown outcome is not used again: a late copy of that call could
        take the place of a later hold.
        """
        async with worker_and_admin(stage, random) as (worker, admin):
            for turn in itertools.count():
                if stage.over.is_set():
                    return
                place, owner = random.choice(PLACES), f"p{worker.process.number}-{turn}"
                bounds = await worker.bounds(place)
                if bounds is not None:
                    await self._keep(stage, worker, admin, place, owner, bounds)
                await stage.pause(random)

    async def _keep(
        self, stage: Stage, worker: Worker, admin: AsyncAdmin, place: str, owner: str,
        bounds: Sequence[int],
    ) -> None:  # fmt: skip
        """Hold a queue, read what is held, renew the hold, and perhaps release it."""
        process, number, random = worker.process, worker.process.number, worker.random
        offset, end = random.randint(*bounds), bounds[1]
        while not stage.over.is_set() and process.number == number:
            ttl_ms = LONG_MS if random.random() < LONG else random.choice(TTLS_MS)
            if not await _hold(worker, admin, place, owner, offset, ttl_ms):
                return
            for _ in range(random.randint(0, LOOKS_MAX)):
                if offset < end:
                    await look_at(process, admin, place, random.randrange(offset, end))
                await stage.pause(random, 0.2)
            if process.number == number and random.random() < 0.5:
                release = partial(admin.release_hold, owner, *split_place(place))
                await process.do("release", place, owner, release, lambda _: None)
                return
            offset = random.randint(offset, end)
            if ttl_ms != LONG_MS and random.random() < 0.3:
                return  # the hold ends by itself

    async def finish(self, stage: Stage, revive: Revive) -> None:
        await show_stamps(stage, (*PLACES, CLOCK), revive)


async def _hold(
    worker: Worker, admin: AsyncAdmin, place: str, owner: str, offset: int, ttl_ms: int
) -> bool:
    asked = {"owner": owner, "offset": offset, "ttl_ms": ttl_ms}
    call = partial(admin.hold, owner, *split_place(place), offset, ttl_ms)
    done, _ = await worker.process.do("hold", place, asked, call, lambda until: until)
    return done
