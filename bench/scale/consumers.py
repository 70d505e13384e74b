"""Reading one queue by the number of its readers, each of which reads all of it."""

import asyncio
import time
from collections.abc import AsyncIterator

from bench.effort import Effort
from bench.scale.load import members_seconds, memory_mib
from bench.setup.cluster import Running, running
from bench.setup.native import BODY_SIZE, pour_bytes
from dledger_proto.limits import FRAME_SIZE_TARGET
from dledger_proto.rpc import raw
from dledger_proto.rpc.frames import parse_fetch
from dledger_proto.v1 import broker_pb2 as pb

POINTS = (1, 16, 64)
BYTES_PER_SECOND = 32 << 20
"""The backlog, for each second of effort: 64 readers take 64 times as much."""


async def measure(consumers: int, effort: Effort) -> AsyncIterator[tuple[str, float, str]]:
    """Yield what so many readers of one queue take: name, value, unit."""
    async with running(effort.folder) as here:
        topic = await here.create_topic("scale")
        total = int(effort.seconds * BYTES_PER_SECOND)
        stored = (await pour_bytes(here, topic, total)).records
        leader = await here.leader()
        before = members_seconds(here)
        start = time.perf_counter()
        await asyncio.gather(*(_drain(here, leader, topic, stored) for _ in range(consumers)))
        seconds = time.perf_counter() - start
        megabytes = consumers * stored * BODY_SIZE / 1e6
        used = members_seconds(here) - before
        yield "fetch", megabytes / seconds, "MB/s, all readers"
        yield "cost", used * 1000 / megabytes, "core-ms per MB"
        yield "memory", memory_mib(here), "MiB"


async def _drain(here: Running, leader: str, topic: bytes, stored: int) -> None:
    """Read the queue to its end. Batches are not checked: the readers are many, and here."""
    request = pb.FetchRequest(
        assignments=[pb.FetchRequest.Assignment(queue=pb.QueueRef(topic_id=topic), offset=0)],
        max_bytes=FRAME_SIZE_TARGET,
        wait_ms=1000,
    ).SerializeToString()
    call = raw.raw_read(here.channel(leader), raw.FETCH)(request, metadata=here.metadata)
    got = 0
    while got < stored:
        frame = await raw.read_frame(call)
        assert frame is not None, f"the stream ended after {got} of {stored} records"
        got += sum(row.record_count for row in parse_fetch(frame).rows)
    call.cancel()
