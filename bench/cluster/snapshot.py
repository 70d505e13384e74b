"""Snapshots under load: what those feel who send meanwhile, and how long one takes.

The member that makes it does not lead, as by default. Beside the sends meanwhile stand the same
sends before.
"""

import asyncio
import time
from typing import Final

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared, percentile, stated
from bench.setup.cluster import Running, require_room, running
from bench.setup.native import Window, plain_records, pour_bytes, pour_for
from dledger_proto.v1 import snapshots_pb2 as pb
from dledger_proto.v1 import snapshots_pb2_grpc

PER_BATCH: Final = 64
PACE: Final = 0.3
"""The share of the producer's peak rate at which it sends."""
LOOK_SECONDS: Final = 0.05


async def measure(effort: Effort) -> list[Figure]:
    """Fill the log; then send alone and beside a snapshot, in turn."""
    size = effort.small_log_bytes
    require_room(effort.folder, 8 * size)
    rounds = Rounds()
    async with running(effort.folder, storage__segment_size_bytes=size // 8) as here:
        topic = await here.create_topic("snapshot")
        peak = await pour_for(here, topic, plain_records(PER_BATCH), Window(64), effort.seconds)
        await pour_bytes(here, topic, size)
        await here.caught_up()
        window = Window(64, batches_per_second=PACE * peak.rate / PER_BATCH)
        member = await here.follower()

        async def send(name: str) -> None:
            poured = await pour_for(here, topic, plain_records(PER_BATCH), window, effort.seconds)
            rounds.add(name, percentile(poured.batch_seconds, 0.99) * 1_000)

        for _ in range(effort.runs):
            await send("alone")
            making = asyncio.create_task(_snapshot(here, member))
            await send("beside")
            rounds.add("taken", await making)
    return [
        compared("snapshot_p99", rounds["beside"], "ms", "before", rounds["alone"], "<=", 1.5,
                 note=f"of batches of {PER_BATCH}, paced at {PACE:g} of the peak, while a follower "
                 "makes a snapshot"),
        stated("snapshot_seconds", rounds["taken"], "s",
               note=f"a log of {size >> 20} MiB, from the call until it is whole"),
    ]  # fmt: skip


async def _snapshot(here: Running, member: str) -> float:
    """Make a snapshot and delete it; return how long the making took."""
    stub = snapshots_pb2_grpc.SnapshotsStub(here.channel(member))
    began = time.perf_counter()
    create = pb.CreateSnapshotRequest(member=member, name="bench")
    await stub.Create(create, timeout=10, metadata=here.metadata)
    while True:
        asked = pb.ListSnapshotsRequest(member=member)
        reply = await stub.List(asked, timeout=10, metadata=here.metadata)
        assert not reply.problem, reply.problem
        if reply.snapshots:
            break
        await asyncio.sleep(LOOK_SECONDS)
    taken = time.perf_counter() - began
    delete = pb.DeleteSnapshotRequest(member=member, name="bench")
    await stub.Delete(delete, timeout=10, metadata=here.metadata)
    return taken
