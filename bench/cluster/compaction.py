"""A compacted topic: what is left of many updates of few keys, and what compaction costs.

Beside the appends to a compacted topic stand the same appends to a topic that keeps all, in turn.
"""

import asyncio
import random
import time
from typing import Final

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared, stated
from bench.setup.cluster import NotReady, Running, require_room, running
from bench.setup.native import Batches, Window, pour, register
from dledger_client import AsyncAdmin, AsyncConsumer, ConsumerConfig, StartAt
from dledger_proto.batch.codec import Record
from dledger_proto.cleanup import COMPACT, DELETE

KEYS: Final = 10_000
PER_BATCH: Final = 100
BODY: Final = 100
RECORD_SIZE: Final = 200
"""Bytes of a record in the log, about."""
STEP_PART: Final = 20
"""The updates are sent in so many parts, to either topic in turn."""
SECONDS_MAX: Final = 1_200.0
"""How long the compaction of all of it may take."""
POLL_MS: Final = 1_000


async def measure(effort: Effort) -> list[Figure]:
    """Update keys at random in two topics in turn; then wait until one of them is compacted."""
    updates = effort.updates
    require_room(effort.folder, 8 * updates * RECORD_SIZE)
    chance = random.Random(1)
    records = [
        Record(chance.randbytes(BODY), keys=(f"key-{chance.randrange(KEYS):05d}",))
        for _ in range(PER_BATCH * 1_000)
    ]
    rounds = Rounds()
    async with running(effort.folder) as here, AsyncAdmin(here.cluster.name_server) as admin:
        senders: dict[str, Batches] = {}
        for cleanup in (DELETE, COMPACT):
            topic = await admin.create_topic(cleanup, queues_per_group=1, cleanup=cleanup)
            leader = await here.leader()
            senders[cleanup] = await register(here, leader, topic.id, 0, records, PER_BATCH)
        part = updates // STEP_PART
        for _ in range(STEP_PART):
            for cleanup, batches in senders.items():
                poured = await pour(here, batches, Window(64), lambda stored: stored < part)
                rounds.add(cleanup, poured.rate)
        began = time.perf_counter()
        keys = {key for record in records[:updates] for key in record.keys}
        left = await _compacted(here, admin, len(keys))
        taken = time.perf_counter() - began
    return [
        compared("compaction_append", rounds[COMPACT], "records/s", "a topic that keeps all",
                 rounds[DELETE], note=f"batches of {PER_BATCH}, bodies of {BODY} bytes"),
        stated("compaction_left", [left], "records",
               note=f"of {updates:,} updates of {KEYS:,} keys, each key's last one among them; the "
               "newest block of 100 batches stays as it is"),
        stated("compaction_rest", [taken], "s", note="from the last update to the end of a pass"),
    ]  # fmt: skip


async def _compacted(here: Running, admin: AsyncAdmin, keys: int) -> float:
    """Return how many records are left, once the last pass has come to its end; check them."""
    end = (await admin.queue_offsets(COMPACT))[0].maximum
    deadline = time.perf_counter() + SECONDS_MAX
    # The newest block, and all keys below it; half as much again may be new without a pass.
    bound = 3 * (KEYS + 2 * PER_BATCH * PER_BATCH)
    while time.perf_counter() < deadline:
        here.check_alive()
        began = time.perf_counter()
        newest: dict[str, int] = {}
        count = last = 0
        async with AsyncConsumer(here.cluster.name_server, ConsumerConfig()) as consumer:
            await consumer.assign(COMPACT, StartAt.FIRST)
            while last < end - 1:
                for record in await consumer.poll(max_records=10_000, timeout_ms=POLL_MS):
                    (key,) = record.keys
                    newest[key] = last = record.offset
                    count += 1
        if len(newest) != keys:
            raise NotReady(f"{len(newest)} keys are left of {keys}")
        if count <= bound:
            return float(count)
        await asyncio.sleep(max(1.0, 3 * (time.perf_counter() - began)))  # the pass needs the time
    raise NotReady(f"{count} records are left after {SECONDS_MAX:.0f} s, at most {bound} wanted")
