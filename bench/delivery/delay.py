"""Delayed messages: how many fire in a second when all are due at once, and how late they come.

Each message is a timer of its own, which is the dearest way: neighbours have different due times.
Beside that, the rate of batches that share a due time, which are one timer each.
"""

import asyncio
import os
import time

from bench.effort import Effort
from bench.figures import Figure, Rounds, percentile, stated
from bench.setup.cluster import NotReady, Running, running, within
from bench.setup.native import BODY_SIZE
from bench.setup.users import due_times, send_delayed
from dledger_client import AsyncAdmin, AsyncConsumer, AsyncProducer, ConsumerConfig, StartAt

TOPIC = "delay"
QUEUES = 4
RATE_WANTED = 20_000.0
DUE_RATE = 2 * RATE_WANTED
"""Messages that are due in a second. So how they are due bounds the measured rate at twice what is
wanted, and 200,000 are due within five seconds."""
BATCH = 64
BATCH_DUE_RATE = 10 * DUE_RATE
"""The same of messages in batches."""
BATCH_TASKS = 16
EVEN_RATE = 5_000
"""Messages due in a second while their lateness is measured."""
EVEN_SECONDS_FACTOR = 3
"""They are due for so many times the length of a usual run."""
LATE_P99_MAX_MS = 200.0
WARM_MESSAGES = 2_000
WARM_SPAN_MS = 100
LEAD_FACTOR = 2.0
"""Messages are due after so many times what sending them should take, and LEAD_SECONDS."""
LEAD_SECONDS = 3.0
FIRED_SECONDS_MAX = 120.0
LOOK_SECONDS = 0.01


async def measure(effort: Effort) -> list[Figure]:
    """Measure in turn: single messages, batches, lateness."""
    rounds = Rounds()
    async with running(effort.folder) as here:
        await here.create_topic(TOPIC, queues=QUEUES)
        name_server = here.cluster.name_server
        async with AsyncProducer(name_server) as producer, AsyncAdmin(name_server) as admin:
            delayed = Delayed(here, producer, admin)
            await delayed.warm_up()
            for _ in range(effort.runs):
                rounds.add("singles", await delayed.singles(effort.timers_fired))
                rounds.add("sent", delayed.sent_per_second)
                rounds.add("batches", await delayed.batches(effort.timers_fired))
                await _lateness(delayed, effort.seconds * EVEN_SECONDS_FACTOR, rounds)
    count = f"{effort.timers_fired} messages due within {effort.timers_fired / DUE_RATE:g} s"
    even = f"{EVEN_RATE} messages a second due evenly"
    return [
        stated("delay_firing_rate", rounds["singles"], "messages/s", ">=", RATE_WANTED,
               f"{count}, each a timer; from the first due time until all are in their queues"),
        stated("delay_firing_rate_batches", rounds["batches"], "messages/s",
               note=f"the same in batches of {BATCH}, each a timer"),
        stated("delay_sent_rate", rounds["sent"], "messages/s", note="storing the single ones"),
        stated("delay_late_p50", rounds["p50"], "ms", note=f"{even}; due time to poll"),
        stated("delay_late_p99", rounds["p99"], "ms", "<=", LATE_P99_MAX_MS, f"{even}, to poll"),
        stated("delay_late_stamp_p99", rounds["stamp p99"], "ms",
               note="due time to the leader's stamp of the entry that fired it"),
    ]  # fmt: skip


class Delayed:
    """Sends messages ahead of their due times, and waits until they are in their queues."""

    def __init__(self, here: Running, producer: AsyncProducer, admin: AsyncAdmin) -> None:
        self.here = here
        self._producer = producer
        self._admin = admin
        self.sent_per_second = 0.0

    async def warm_up(self) -> None:
        """Fire some messages, and learn how fast they can be sent."""
        base = await self.stored()
        due = _now_ms() + 1_000
        dues = due_times(due, WARM_SPAN_MS, WARM_MESSAGES)
        self.sent_per_second = await send_delayed(self._producer, TOPIC, dues)
        await self.fired(base + WARM_MESSAGES)

    async def singles(self, count: int) -> float:
        """Return how many single messages a second come into their queues."""
        base = await self.stored()
        first_ms = await self.send(count, int(count / DUE_RATE * 1_000))
        return count / (await self.fired(base + count) - first_ms / 1_000)

    async def batches(self, count: int) -> float:
        """Return the same of batches."""
        base = await self.stored()
        span_ms, calls = int(count / BATCH_DUE_RATE * 1_000), count // BATCH
        # To store a batch takes less time than to store four single messages.
        first_ms = self._first_due_ms(4 * calls)
        bodies = [os.urandom(BODY_SIZE)] * BATCH
        left = iter(range(calls))

        async def send() -> None:
            for number in left:
                due = first_ms + number * span_ms // calls
                await self._producer.send_many(TOPIC, bodies, deliver_at_ms=due)

        await asyncio.gather(*(send() for _ in range(BATCH_TASKS)))
        _check_early(first_ms)
        stored = calls * BATCH
        return stored / (await self.fired(base + stored) - first_ms / 1_000)

    async def send(self, count: int, span_ms: int) -> int:
        """Send single messages, due evenly in a time that is to come; return its begin."""
        first_ms = self._first_due_ms(count)
        dues = due_times(first_ms, span_ms, count)
        self.sent_per_second = await send_delayed(self._producer, TOPIC, dues)
        _check_early(first_ms)
        return first_ms

    def _first_due_ms(self, count: int) -> int:
        seconds = LEAD_FACTOR * count / self.sent_per_second + LEAD_SECONDS
        return _now_ms() + int(seconds * 1_000)

    async def stored(self) -> int:
        """Return how many messages are in their queues."""
        bounds = await self._admin.queue_offsets(TOPIC)
        return sum(each.maximum for each in bounds.values())

    async def fired(self, wanted: int) -> float:
        """Wait until so many messages are in their queues; return the wall clock then."""
        until = time.monotonic() + FIRED_SECONDS_MAX
        while (stored := await self.stored()) < wanted:
            self.here.check_alive()
            if time.monotonic() > until:
                raise NotReady(f"{stored} of {wanted} messages came in {FIRED_SECONDS_MAX} s")
            await asyncio.sleep(LOOK_SECONDS)
        assert stored == wanted, f"{stored} messages in the queues, {wanted} were sent"
        return time.time()


async def _lateness(delayed: Delayed, seconds: float, rounds: Rounds) -> None:
    """Let a waiting consumer get messages that are due evenly; add how late they came."""
    count = int(seconds * EVEN_RATE)
    late: list[float] = []
    stamped: list[float] = []
    name_server = delayed.here.cluster.name_server
    async with AsyncConsumer(name_server, ConsumerConfig(start_at=StartAt.LAST)) as consumer:
        await consumer.assign(TOPIC, StartAt.LAST)
        await consumer.poll(timeout_ms=200)
        first_ms = await delayed.send(count, int(seconds * 1_000))
        left = first_ms / 1_000 - time.time()
        async with within(left + FIRED_SECONDS_MAX, "all delayed messages"):
            while len(late) < count:
                for record in await consumer.poll(max_records=10_000):
                    due_ms = int.from_bytes(record.body[:8])
                    late.append(time.time() * 1_000 - due_ms)
                    stamped.append(record.store_time_ms - due_ms)
    assert min(stamped) >= 0, f"a message fired {-min(stamped)} ms before its time"
    rounds.add("p50", percentile(late, 0.5))
    rounds.add("p99", percentile(late, 0.99))
    rounds.add("stamp p99", percentile(stamped, 0.99))


def _check_early(first_ms: int) -> None:
    if _now_ms() >= first_ms:
        raise NotReady("messages were due before all of them were stored; the machine is too busy")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
