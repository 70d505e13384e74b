"""Load of one shape at every point: batches of 64 KiB and more, and what they cost the members."""

import os
import time
from dataclasses import dataclass

from bench.figures import percentile
from bench.setup.cluster import Running, anonymous_bytes, cpu_seconds
from bench.setup.native import Batches, Window, pour, register
from dledger_client import AsyncConsumer, ConsumerConfig, StartAt
from dledger_proto.batch.codec import Record
from dledger_proto.limits import KIB, MIB

BATCH_BYTES = 64 * KIB
WINDOW = Window(64)
TOPIC_QUEUES = 1_000
"""More queues are several topics: a topic has at most 1,024."""


def records_of(size: int) -> list[Record]:
    """Return the records of one batch: together BATCH_BYTES, or one body of `size` if larger."""
    body = os.urandom(size)
    return [Record(body) for _ in range(max(1, BATCH_BYTES // size))]


@dataclass(slots=True)
class Spread:
    """Makes batches for many queues in turn."""

    queues: list[Batches]
    next: int = 0

    @property
    def per_batch(self) -> int:
        """Records in each batch."""
        return self.queues[0].per_batch

    def make(self) -> bytes:
        """Return the next batch, for the next queue."""
        queue = self.queues[self.next]
        self.next = (self.next + 1) % len(self.queues)
        return queue.make()


def topic_name(number: int) -> str:
    """Return the name of one of the topics that hold the queues."""
    return f"scale-{number}"


async def create_topics(here: Running, queues: int) -> list[tuple[bytes, int]]:
    """Create topics with so many queues together; return (topic id, queue) of each."""
    found: list[tuple[bytes, int]] = []
    while len(found) < queues:
        count = min(TOPIC_QUEUES, queues - len(found))
        topic = await here.create_topic(topic_name(len(found) // TOPIC_QUEUES), count)
        found += [(topic, queue) for queue in range(count)]
    return found


async def spread_over(
    here: Running, places: list[tuple[bytes, int]], records: list[Record]
) -> Spread:
    """Register one producer for all the places."""
    topic, queue = places[0]
    first = await register(here, await here.leader(), topic, queue, records)
    others = [
        Batches(topic, queue, first.producer_id, first.epoch, records, first.per_batch)
        for topic, queue in places[1:]
    ]
    return Spread([first, *others])


@dataclass(frozen=True, slots=True)
class Cost:
    """What an append took."""

    megabytes_per_second: float
    core_ms_per_megabyte: float
    """Processor time of all members."""


async def append_cost(here: Running, makes: Spread, body_size: int, seconds: float) -> Cost:
    """Append for so many seconds with a window of batches."""
    before = members_seconds(here)
    end = time.perf_counter() + seconds
    poured = await pour(here, makes, WINDOW, lambda _: time.perf_counter() < end)
    megabytes = poured.records * body_size / 1e6
    used = members_seconds(here) - before
    return Cost(megabytes / poured.seconds, used * 1000 / megabytes)


async def lone_ms(here: Running, makes: Spread, seconds: float) -> float:
    """Append one batch after the other for so many seconds; return the median in ms."""
    end = time.perf_counter() + seconds
    poured = await pour(here, makes, Window(1), lambda _: time.perf_counter() < end)
    return percentile(poured.batch_seconds, 0.5) * 1000


async def drain(here: Running, topic: str, records: int) -> None:
    """Read a topic of so many records from its beginning, batch by batch."""
    config = ConsumerConfig(start_at=StartAt.FIRST)
    async with AsyncConsumer(here.cluster.name_server, config) as consumer:
        await consumer.assign(topic, StartAt.FIRST)
        got = 0
        while got < records:
            got += sum(len(batch) for batch in await consumer.poll_batches())


def members_seconds(here: Running) -> float:
    """Return the processor time that all members have used."""
    return sum(cpu_seconds(here.cluster.pid(name)) for name in here.cluster.member_names)


def memory_mib(here: Running) -> float:
    """Return RssAnon of the largest member."""
    names = here.cluster.member_names
    return max(anonymous_bytes(here.cluster.pid(name)) for name in names) / MIB
