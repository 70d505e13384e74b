"""Load of one shape at every point: batches of 64 KiB and more, and what they cost the members."""

import os
import time
from dataclasses import dataclass

from bench.figures import percentile
from bench.setup.cluster import Running
from bench.setup.native import Batches, Window, pour, register
from dledger_proto.batch.codec import Record
from dledger_proto.limits import KIB

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
    before = here.processor_seconds()
    end = time.perf_counter() + seconds
    poured = await pour(here, makes, WINDOW, lambda _: time.perf_counter() < end)
    megabytes = poured.records * body_size / 1e6
    used = here.processor_seconds() - before
    return Cost(megabytes / poured.seconds, used * 1000 / megabytes)


async def lone_ms(here: Running, makes: Spread, seconds: float) -> float:
    """Append one batch after the other for so many seconds; return the median in ms."""
    end = time.perf_counter() + seconds
    poured = await pour(here, makes, Window(1), lambda _: time.perf_counter() < end)
    return percentile(poured.batch_seconds, 0.5) * 1000
