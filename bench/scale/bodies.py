"""Appends, a lone send and reading, by the size of a body."""

from collections.abc import AsyncIterator

from bench.effort import Effort
from bench.log.fetch import drain_batches
from bench.scale.load import append_cost, lone_ms, records_of, spread_over
from bench.setup.cluster import running
from dledger_proto.batch.codec import Record
from dledger_proto.limits import BODY_SIZE_MAX

POINTS = (100, 1024, 64 << 10, BODY_SIZE_MAX)
TOPIC = "scale"
QUEUES = 4


async def measure(size: int, effort: Effort) -> AsyncIterator[tuple[str, float, str]]:
    """Yield what bodies of so many bytes take: name, value, unit."""
    async with running(effort.folder) as here:
        topic = await here.create_topic(TOPIC, queues=QUEUES)
        places = [(topic, queue) for queue in range(QUEUES)]
        makes = await spread_over(here, places, records_of(size))
        cost = await append_cost(here, makes, size, effort.seconds)
        yield "append", cost.megabytes_per_second, "MB/s"
        yield "append_cost", cost.core_ms_per_megabyte, "core-ms per MB"
        records = sum(each.sequence for each in makes.queues)
        seconds = await drain_batches(here, TOPIC, records)
        yield "fetch", records * size / 1e6 / seconds, "MB/s"
        single = await spread_over(here, places, [Record(bytes(size))])
        yield "lone_send", await lone_ms(here, single, effort.seconds), "ms"
        yield "memory", max(here.memory_mib()), "MiB"
