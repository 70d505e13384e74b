"""Reading a stored backlog by one consumer, every batch checked against its CRC.

Beside it: a bare gRPC stream of chunks of the same size. The backlog is larger than the members'
memory of recent entries, so the members read files: from the kernel's page cache, not the disk.
"""

import time

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared, stated
from bench.setup import floors
from bench.setup.cluster import Running, running
from bench.setup.native import BODY_SIZE, pour_bytes
from dledger_client import AsyncConsumer, ConsumerConfig, StartAt
from dledger_proto.batch.codec import check_envelope
from dledger_proto.limits import FRAME_SIZE_TARGET
from dledger_proto.rpc import raw
from dledger_proto.rpc.frames import parse_fetch
from dledger_proto.v1 import broker_pb2 as pb

TOPIC = "fetch"
POLL_RECORDS = 10_000


async def measure(effort: Effort) -> list[Figure]:
    """Measure in turn: our wire, the bare stream, our consumer's batches, its records."""
    rounds = Rounds()
    total = int(effort.seconds * (200 << 20))
    async with running(effort.folder) as here, floors.echo_server() as echo:
        topic = await here.create_topic(TOPIC)
        stored = (await pour_bytes(here, topic, total)).records
        for _ in range(effort.runs):
            seconds, chunk = await drain_wire(here, topic, stored)
            rounds.add("wire", stored * BODY_SIZE / 1e6 / seconds)
            rounds.add("chunk", chunk)
            rate = await floors.chunk_rate(echo, int(chunk), total)
            rounds.add("floor", rate / 1e6)
            batches = await drain_batches(here, TOPIC, stored)
            rounds.add("batches", stored * BODY_SIZE / 1e6 / batches)
            rounds.add("records", stored / await drain_records(here, TOPIC, stored))
    floor = "bare gRPC chunk stream"
    return [
        compared("fetch_batches", rounds["batches"], "MB/s", floor, rounds["floor"], ">=", 0.5,
                 note="AsyncConsumer.poll_batches"),
        compared("fetch_wire", rounds["wire"], "MB/s", floor, rounds["floor"], ">=", 0.5,
                 note="frames read and every batch checked, without the client"),
        stated("fetch_wire_first", rounds["wire"][:1], "MB/s",
               note="the first pass reads from the disk, the later ones from the page cache"),
        stated("fetch_records", rounds["records"], "records/s", note="AsyncConsumer.poll"),
        stated("fetch_frame", rounds["chunk"], "bytes"),
    ]  # fmt: skip


async def drain_wire(
    here: Running, topic: bytes, stored: int, *, checks: bool = True
) -> tuple[float, float]:
    """Read everything; return the seconds and the mean size of a frame.

    `checks`: compare each batch with its CRC, as a consumer does.
    """
    request = pb.FetchRequest(
        assignments=[pb.FetchRequest.Assignment(queue=pb.QueueRef(topic_id=topic), offset=0)],
        max_bytes=FRAME_SIZE_TARGET,
        wait_ms=1000,
    ).SerializeToString()
    channel = here.channel(await here.leader())
    call = raw.raw_read(channel, raw.FETCH)(request, metadata=here.metadata)
    got = frames = size = 0
    start = time.perf_counter()
    while got < stored:
        frame = await raw.read_frame(call)
        assert frame is not None, f"the stream ended after {got} of {stored} records"
        frames += 1
        size += len(frame)
        parsed = parse_fetch(frame)
        for row, batch in zip(parsed.rows, parsed.batches, strict=True):
            if checks:
                check_envelope(batch)
            got += row.record_count
    seconds = time.perf_counter() - start
    call.cancel()
    return seconds, size / frames


async def drain_batches(here: Running, topic: str, stored: int) -> float:
    """Read a topic of so many records from its beginning, batch by batch; return the seconds."""
    config = ConsumerConfig(start_at=StartAt.FIRST)
    async with AsyncConsumer(here.cluster.name_server, config) as consumer:
        await consumer.assign(topic, StartAt.FIRST)
        got = 0
        start = time.perf_counter()
        while got < stored:
            got += sum(len(batch) for batch in await consumer.poll_batches())
        return time.perf_counter() - start


async def drain_records(here: Running, topic: str, stored: int) -> float:
    """Read a topic of so many records from its beginning, record by record; return the seconds."""
    config = ConsumerConfig(start_at=StartAt.FIRST)
    async with AsyncConsumer(here.cluster.name_server, config) as consumer:
        await consumer.assign(topic, StartAt.FIRST)
        got = size = 0
        start = time.perf_counter()
        while got < stored:
            for record in await consumer.poll(POLL_RECORDS):
                got += 1
                size += len(record.body)
        assert size == stored * BODY_SIZE, f"{size} bytes in {stored} records"
        return time.perf_counter() - start
