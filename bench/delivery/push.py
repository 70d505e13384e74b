"""The push consumer: from a stored backlog, and from `send` to its listener at a low rate.

Beside it: a consumer that reads the same backlog record by record, and one that polls all the time
at the same low rate. The listener is a coroutine function that only counts.
"""

import asyncio
import itertools
import time
from collections.abc import Callable

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared, percentile
from bench.log.fetch import drain_records
from bench.log.latency import INTERVAL_SECONDS, age, end_to_end, send_paced
from bench.setup.cluster import NotReady, Running, running, within
from bench.setup.native import pour_bytes
from dledger_client import (
    AsyncProducer,
    AsyncPushConsumer,
    ConsumedRecord,
    ConsumerConfig,
    PushConfig,
    StartAt,
)

BACKLOG = "backlog"
PACED = "paced"
BATCH = 256
"""Records that one call of the listener gets, in the figure with lists."""
THREADS_RECORDS = 20_000
"""Of the figure with threads, which are slower by far."""
DRAIN_SECONDS_MAX = 300.0
JOIN_SECONDS_MAX = 30.0
LATE_SECONDS_MAX = 10.0
LOOK_SECONDS = 0.01
GROUPS = itertools.count(1)

Listener = Callable[[ConsumedRecord], object] | Callable[[list[ConsumedRecord]], object]
"""What `Count` offers."""


class Count:
    """Counts records, and keeps when the first and the last of them came."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._got = 0
        self._numbers = itertools.count(1)
        self._began = 0.0
        self.seconds = 0.0
        self.is_over = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def one(self, _record: ConsumedRecord) -> None:
        """Take a record; a coroutine function as listener."""
        self._add(1)

    async def many(self, records: list[ConsumedRecord]) -> None:
        """Take a list of records."""
        self._add(len(records))

    def blocking(self, _record: ConsumedRecord) -> None:
        """Take a record in one of many threads."""
        number = next(self._numbers)
        if number == 1:
            self._began = time.perf_counter()
        if number == self._wanted:
            self._end()

    def _add(self, count: int) -> None:
        if not self._got:
            self._began = time.perf_counter()
        self._got += count
        if self._got == self._wanted:
            self._end()

    def _end(self) -> None:
        self.seconds = time.perf_counter() - self._began
        self._loop.call_soon_threadsafe(self.is_over.set)


async def measure(effort: Effort) -> list[Figure]:
    """Measure in turn: plain reading, push consumers, both ways at a low rate."""
    rounds = Rounds()
    async with running(effort.folder) as here:
        topic = await here.create_topic(BACKLOG)
        await here.create_topic(PACED)
        stored = (await pour_bytes(here, topic, int(effort.seconds * (200 << 20)))).records
        await drain_records(here, BACKLOG, stored)
        for _ in range(effort.runs):
            rounds.add("fetch", stored / await drain_records(here, BACKLOG, stored))
            rounds.add("push", await _drain(here, stored, lambda count: count.one))
            rounds.add("lists", await _drain(here, stored, lambda count: count.many, BATCH))
            few = min(stored, THREADS_RECORDS)
            rounds.add("threads", await _drain(here, few, lambda count: count.blocking))
            for name, way in (("poll", end_to_end), ("listener", _to_listener)):
                ages = await way(here, max(effort.seconds, 2.0), PACED)
                rounds.add(f"{name} p50", percentile(ages, 0.5) * 1_000)
                rounds.add(f"{name} p99", percentile(ages, 0.99) * 1_000)
    floor = "AsyncConsumer.poll, record by record"
    rate = f"{1 / INTERVAL_SECONDS:.0f} messages/s"
    return [
        compared("push", rounds["push"], "records/s", floor, rounds["fetch"], ">=", 0.6,
                 note="an empty coroutine function as listener, default settings"),
        compared("push_lists", rounds["lists"], "records/s", floor, rounds["fetch"],
                 note=f"the same with batch_size {BATCH}"),
        compared("push_threads", rounds["threads"], "records/s", floor, rounds["fetch"],
                 note="an empty function as listener, which runs in a thread"),
        compared("push_end_to_end_p50", rounds["listener p50"], "ms", "send to poll",
                 rounds["poll p50"], "<=", 1.3, f"{rate}, send to listener"),
        compared("push_end_to_end_p99", rounds["listener p99"], "ms", "send to poll",
                 rounds["poll p99"]),
    ]  # fmt: skip


async def _drain(
    here: Running, wanted: int, listener_of: Callable[[Count], Listener], batch_size: int = 1
) -> float:
    """Return the records a second that a new group's only consumer hands to its listener.

    Counted from its first call on: what joining takes is not in it.
    """
    count = Count(wanted)
    listener = listener_of(count)
    config = PushConfig(consumer=ConsumerConfig(start_at=StartAt.FIRST), batch_size=batch_size)
    name_server = here.cluster.name_server
    async with (
        AsyncPushConsumer(name_server, _group(), BACKLOG, listener, config),
        within(DRAIN_SECONDS_MAX, "the end of the backlog"),
    ):
        await count.is_over.wait()
    return wanted / count.seconds


async def _to_listener(here: Running, seconds: float, topic: str) -> list[float]:
    """Send with the time of sending in the body; return the ages in the listener, in seconds."""
    ages: list[float] = []
    is_over = asyncio.Event()
    count = int(seconds / INTERVAL_SECONDS)

    async def listen(record: ConsumedRecord) -> None:
        ages.append(age(record))
        if len(ages) == count:
            is_over.set()

    name_server = here.cluster.name_server
    async with (
        AsyncProducer(name_server) as producer,
        AsyncPushConsumer(name_server, _group(), topic, listen) as consumer,
    ):
        until = time.monotonic() + JOIN_SECONDS_MAX
        while (topic, 0) not in consumer.assignment():
            if time.monotonic() > until:
                raise NotReady(f"a consumer did not get its queue within {JOIN_SECONDS_MAX:g} s")
            await asyncio.sleep(LOOK_SECONDS)
        await send_paced(producer, topic, count)
        async with within(LATE_SECONDS_MAX, "the last message"):
            await is_over.wait()
    return ages


def _group() -> str:
    """Return the name of a group that did not exist."""
    return f"push-{next(GROUPS)}"
