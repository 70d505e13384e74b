"""End to end at a low rate: from `send` to the record in a consumer that polls all the time."""

import asyncio
import time

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared, percentile, stated
from bench.setup import floors
from bench.setup.cluster import Running, running
from bench.setup.native import BODY_SIZE
from dledger_client import AsyncConsumer, AsyncProducer, ConsumedRecord, ConsumerConfig, StartAt

TOPIC = "latency"
INTERVAL_SECONDS = 0.01


async def measure(effort: Effort) -> list[Figure]:
    """Measure in turn: a hundred messages a second, and the floor of a lone send."""
    rounds = Rounds()
    async with running(effort.folder) as here, floors.echo_server() as echo:
        await here.create_topic(TOPIC)
        for _ in range(effort.runs):
            taken = await end_to_end(here, max(effort.seconds, 2.0))
            rounds.add("p50", percentile(taken, 0.5) * 1000)
            rounds.add("p99", percentile(taken, 0.99) * 1000)
            echo_seconds = await floors.echo_round_trip(echo, count=300)
            sync_seconds = floors.one_fdatasync(effort.folder, count=100)
            rounds.add("floor", (2 * echo_seconds + sync_seconds) * 1000)
    return [
        compared("end_to_end_p50", rounds["p50"], "ms", "client echo + peer echo + fdatasync",
                 rounds["floor"], note=f"{1 / INTERVAL_SECONDS:.0f} messages/s, send to poll"),
        stated("end_to_end_p99", rounds["p99"], "ms"),
    ]  # fmt: skip


async def end_to_end(here: Running, seconds: float, topic: str = TOPIC) -> list[float]:
    """Send with the time of sending in the body; return the ages at arrival, in seconds."""
    name_server = here.cluster.name_server
    config = ConsumerConfig(start_at=StartAt.LAST)
    ages: list[float] = []
    async with AsyncProducer(name_server) as producer, AsyncConsumer(name_server, config) as reader:
        await producer.send(topic, bytes(8))
        await reader.assign(topic, StartAt.LAST)
        count = int(seconds / INTERVAL_SECONDS)

        async def read() -> None:
            while len(ages) < count:
                records = await reader.poll()
                ages.extend(age(each) for each in records)

        await reader.poll(timeout_ms=200)
        task = asyncio.create_task(read())
        await send_paced(producer, topic, count)
        async with asyncio.timeout(10):
            await task
    return ages


async def send_paced(producer: AsyncProducer, topic: str, count: int) -> None:
    """Send so many messages, with the time of sending in the body, INTERVAL_SECONDS apart."""
    for number in range(count):
        body = time.perf_counter_ns().to_bytes(8) + bytes(BODY_SIZE - 8)
        producer.submit(topic, body)
        await asyncio.sleep(INTERVAL_SECONDS * (0.5 + number % 2))


def age(record: ConsumedRecord) -> float:
    """Return how many seconds ago a message of `send_paced` was sent."""
    return (time.perf_counter_ns() - int.from_bytes(record.body[:8])) / 1e9
