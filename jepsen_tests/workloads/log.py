"""W1 and W8: a log of many queues, written and read by everybody; W8 also trims the heads."""

from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from random import Random
from typing import Any, ClassVar, Final

from dledger_client import AsyncAdmin
from jepsen_tests.backends.surface import Setting
from jepsen_tests.workloads.clients import Worker, place_of, shown_stored, split_place
from jepsen_tests.workloads.values import message_of
from jepsen_tests.workloads.wire import Wire, batch_of, wires_to
from jepsen_tests.workloads.workload import LeastOk, Stage, Workload

TOPIC: Final = "chaos-log"
QUEUES: Final = 6
BATCH_MAX: Final = 5
BODY_SIZES: Final = (32, 200, 1_000, 20_000)
ACTIONS: Final = {
    "send": 40,
    "batch": 12,
    "bare": 12,
    "poll": 40,
    "assign": 4,
    "bounds": 6,
    "crash": 1,
}
BARE_SECONDS: Final = 3.0
TRIM_PAUSE_SECONDS: Final = 0.7
TRIM_KEEPS: Final = 20
"""A trim keeps at least so many of the newest offsets."""


class LogWorkload(Workload):
    """W1: sends (single, batches, without a stamp), polls, assigns, bounds, client crashes."""

    name = "log"
    what = "W1: many queues, single and batched sends, polls from anywhere, client crashes"
    topics: ClassVar[Mapping[str, int]] = {TOPIC: QUEUES}
    least_ok: ClassVar[LeastOk] = {"send": (100, 0.3), "poll": (100, 0.3), "bounds": (10, 0.2)}
    _topic_id = b""

    async def setup(self, stage: Stage) -> None:
        async with AsyncAdmin(stage.backend.bootstrap, stage.connection) as admin:
            self._topic_id = (await admin.describe_topic(TOPIC)).id

    async def work(self, stage: Stage, random: Random) -> None:
        places = [place_of(TOPIC, queue) for queue in range(QUEUES)]
        async with (
            aclosing(stage.worker(random)) as worker,
            wires_to(stage.backend, stage.addresses) as wires,
        ):
            await self._reassign(worker, places)
            while not stage.over.is_set():
                await self._act(worker, places, random.choice(wires))
                await stage.pause(random)

    async def _send_bare(self, worker: Worker, place: str, size: int, wire: Wire) -> None:
        """Send once without a producer's stamp: no member could recognise a repeat."""
        value = worker.new_value()
        message = message_of(value, worker.random, size)
        batch = batch_of(self._topic_id, split_place(place)[1], [message], None)
        await worker.process.do(
            "send", place, [value],
            lambda: wire.append(batch, BARE_SECONDS),
            lambda row: shown_stored(row.base_offset, row.term),
        )  # fmt: skip

    async def _act(self, worker: Worker, places: Sequence[str], wire: Wire) -> None:
        random = worker.random
        size = random.choice(BODY_SIZES)
        match random.choices(list(ACTIONS), list(ACTIONS.values()))[0]:
            case "send":
                await worker.send(random.choice(places), 1, size)
            case "batch":
                await worker.send(random.choice(places), random.randint(2, BATCH_MAX), size)
            case "bare":
                await self._send_bare(worker, random.choice(places), size, wire)
            case "poll":
                await worker.poll()
            case "bounds":
                await worker.bounds(random.choice(places))
            case "assign":
                await self._reassign(worker, places)
            case _:
                await worker.crash()
                await self._reassign(worker, places)

    async def _reassign(self, worker: Worker, places: Sequence[str]) -> None:
        """Read some queues, each from a place of its own: the start, or somewhere behind it."""
        random = worker.random
        chosen = random.sample(places, random.randint(1, len(places)))
        starts: dict[str, int] = {}
        for place in chosen:
            known = await worker.bounds(place) if random.random() < 0.5 else None
            low, high = known or (0, 0)
            starts[place] = random.randint(low, high) if high > low else 0
        await worker.assign(starts)


class RetentionWorkload(LogWorkload):
    """W8: the same, while the head of each queue is trimmed."""

    name = "retention"
    trims = True
    what = "W8: as log, while the heads of the queues are trimmed: only what is below may go"
    settings: ClassVar[Mapping[str, Setting]] = {"storage.segment_size_bytes": 32 << 20}
    least_ok: ClassVar[LeastOk] = {**LogWorkload.least_ok, "trim": (10, 0.2)}

    def workers(self, stage: Stage) -> Sequence[Coroutine[Any, Any, None]]:
        return [*super().workers(stage), self._trim(stage, Random(stage.random.random()))]

    async def _trim(self, stage: Stage, random: Random) -> None:
        async with (
            aclosing(stage.worker(random)) as worker,
            AsyncAdmin(stage.backend.bootstrap, stage.connection) as admin,
        ):
            while not stage.over.is_set():
                await stage.pause(random, TRIM_PAUSE_SECONDS)
                place = place_of(TOPIC, random.randrange(QUEUES))
                bounds = await worker.bounds(place)
                if bounds is None or bounds[1] - TRIM_KEEPS <= bounds[0]:
                    continue
                offset = random.randint(bounds[0], bounds[1] - TRIM_KEEPS)
                await _trim_to(worker, admin, place, offset)


async def _trim_to(worker: Worker, admin: AsyncAdmin, place: str, offset: int) -> None:
    await worker.process.do(
        "trim", place, offset, lambda: admin.trim(*split_place(place), offset), lambda found: found
    )
