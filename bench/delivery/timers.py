"""Many timers that wait: what they cost in the leader's memory, and at the start of a whole group.

Nothing fires here. A start takes from the creation of the members' processes, all of which were
killed, to the leader's first linearizable answer about a queue.
"""

import time

import grpc.aio

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared, stated
from bench.setup.cluster import (
    NotReady,
    Running,
    anonymous_bytes,
    require_room,
    resident_bytes,
    running,
)
from bench.setup.native import pour_bytes
from bench.setup.users import due_times, send_delayed
from dledger_client import AsyncAdmin, AsyncProducer
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import broker_pb2_grpc

TOPIC = "timers"
FILLED_TOPIC = "filled"
QUEUES = 4
MIB = 1 << 20
FILLED_BYTES = 256 * MIB
"""Appended first: what a member keeps of recent entries is there before the timers come."""
DELAY_MS = 24 * 3_600 * 1_000
SPAN_MS = 3_600 * 1_000
STARTS = 5
BYTES_PER_TIMER = 2_048
"""Of a member's disk, at most: 1 KiB of body, its batch, rows of the state."""
ANSWER_SECONDS_MAX = 120.0


async def measure(effort: Effort) -> list[Figure]:
    """Look at a group without timers, set them, look again."""
    count = effort.timers_waiting
    require_room(effort.folder, 3 * count * BYTES_PER_TIMER + (8 << 30))
    rounds = Rounds()
    async with running(effort.folder) as here:
        topic = await here.create_topic(TOPIC, queues=QUEUES)
        filled = await here.create_topic(FILLED_TOPIC)
        await pour_bytes(here, filled, FILLED_BYTES)
        for _ in range(STARTS):
            rounds.add("start without", await _start_again(here, topic))
        await pour_bytes(here, filled, FILLED_BYTES)
        before = await _memory(here)
        await _set_timers(here, count)
        await here.caught_up()
        after = await _memory(here)
        for _ in range(STARTS):
            rounds.add("start", await _start_again(here, topic))
        started = await _memory(here)
    waiting = f"{count} timers wait"
    return [
        compared("timers_memory", [after[0] / MIB], "MiB", "before they were set",
                 [before[0] / MIB], note=f"RssAnon of the leader, {waiting}"),
        compared("timers_resident", [after[1] / MIB], "MiB", "before they were set",
                 [before[1] / MIB], note="the same with mapped files (RSS)"),
        stated("timers_memory_each", [(after[0] - before[0]) / count], "bytes", note="RssAnon"),
        stated("timers_resident_each", [(after[1] - before[1]) / count], "bytes", note="RSS"),
        stated("timers_memory_restarted", [started[0] / MIB], "MiB",
               note=f"RssAnon of the leader after {STARTS} starts, {waiting}"),
        compared("timers_start", rounds["start"], "s", "the same group without timers",
                 rounds["start without"], note="all members killed and started, to an answer"),
    ]  # fmt: skip


async def _set_timers(here: Running, count: int) -> None:
    first_ms = time.time_ns() // 1_000_000 + DELAY_MS
    async with AsyncProducer(here.cluster.name_server) as producer:
        await send_delayed(producer, TOPIC, due_times(first_ms, SPAN_MS, count))
    async with AsyncAdmin(here.cluster.name_server) as admin:
        waiting = await admin.timers(TOPIC, limit=1)
    assert waiting, "no timer waits"


async def _memory(here: Running) -> tuple[int, int]:
    """Return RssAnon and RSS of the leader."""
    pid = here.cluster.pid(await here.leader())
    return anonymous_bytes(pid), resident_bytes(pid)


async def _start_again(here: Running, topic: bytes) -> float:
    """Kill all members and start them; return the seconds until the leader answers."""
    await here.caught_up()
    for member in here.cluster.member_names:
        here.cluster.kill(member)
    began = time.monotonic()
    for member in here.cluster.member_names:
        here.cluster.start(member)
    request = pb.QueueOffsetsRequest(queues=[pb.QueueRef(topic_id=topic)], linearizable=True)
    while time.monotonic() < began + ANSWER_SECONDS_MAX:
        broker = broker_pb2_grpc.BrokerStub(here.channel(await here.leader()))
        try:
            await broker.QueueOffsets(request, timeout=1, metadata=here.metadata)
        except grpc.aio.AioRpcError:
            continue
        return time.monotonic() - began
    raise NotReady(f"no answer in {ANSWER_SECONDS_MAX} s after a start; see {here.cluster.folder}")
