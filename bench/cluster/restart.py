"""Starting again: after kill -9 under load, and with a large log.

A start takes from the process's creation to its log line `serving`. Beside the restarts of one
member under load: starts of a member on an empty folder, in the same run, under the same load.
Beside the start with a large log: the start with a small one.
"""

import asyncio
import random
import re
import shutil
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

from bench.effort import Effort
from bench.figures import Figure, Rounds, compared, stated
from bench.setup.cluster import NotReady, Running, require_room, running
from bench.setup.native import Window, plain_records, pour, pour_bytes, register
from dledger_broker.local.cluster import LocalCluster
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import broker_pb2_grpc

SERVING = re.compile(r"(\S+)Z \[info\s*\] serving ")
START_SECONDS_MAX = 60.0
KILLS_PER_EMPTY_START = 10
LOAD_RATE = 100.0
"""Batches of 64 a second: load enough to be in the middle of a write at most times."""
SIZE_RUNS_MIN = 5


async def measure(effort: Effort) -> list[Figure]:
    return [*await _kills(effort), *await _sizes(effort)]


async def _kills(effort: Effort) -> list[Figure]:
    rounds = Rounds()
    chance = random.Random(11)
    async with running(effort.folder) as here:
        topic = await here.create_topic("restart", queues=4)
        victim = await here.follower()
        async with _load(here, topic):
            for number in range(effort.kills):
                if number % KILLS_PER_EMPTY_START == 0:
                    rounds.add("empty", await asyncio.to_thread(_start_empty, here.cluster))
                await asyncio.sleep(chance.uniform(0.1, 1.0))
                here.cluster.kill(victim)
                await asyncio.sleep(chance.uniform(0.0, 0.2))
                taken = await asyncio.to_thread(start_seconds, here.cluster, victim)
                rounds.add("restart", taken)
                rounds.add("caught up", await here.caught_up(victim))
        await here.caught_up()
        await _check_identical(here)
    note = f"{effort.kills} kills at random points under load; afterwards all members identical"
    return [
        compared("restart", rounds["restart"], "s", "start on an empty folder", rounds["empty"],
                 "<=", 2.0, note),
        Figure("restart_worst", max(rounds["restart"]), "s", "the worst start on an empty folder",
               max(rounds["empty"]), wanted=2.0, sense="<=", note="replay included"),
        stated("restart_caught_up", rounds["caught up"], "s",
               note="from serving to having applied what was committed then"),
    ]  # fmt: skip


@asynccontextmanager
async def _load(here: Running, topic: bytes) -> AsyncGenerator[None]:
    """Append for the length of a block. A refusal ends the measurement."""
    batches = await register(here, await here.leader(), topic, 0, plain_records(64))
    window = Window(64, batches_per_second=LOAD_RATE)
    is_over = False
    task = asyncio.create_task(pour(here, batches, window, lambda _: not is_over))
    try:
        yield
    finally:
        is_over = True
        await task


def start_seconds(cluster: LocalCluster, member: str) -> float:
    """Start a member; return the seconds until it said that it serves."""
    log = cluster.folder / f"{member}.log"
    offset = log.stat().st_size if log.exists() else 0
    started = time.time()
    cluster.start(member)
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        with log.open("rb") as file:
            file.seek(offset)
            found = SERVING.search(file.read().decode(errors="replace"))
        if found:
            said = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
            return said.timestamp() - started
        if not cluster.is_running(member):
            raise NotReady(f"{member} ended instead of serving; see {log}")
        time.sleep(0.005)
    raise NotReady(f"{member} did not serve within {START_SECONDS_MAX} s; see {log}")


def _start_empty(cluster: LocalCluster) -> float:
    """Start a member of another cluster on an empty folder, and end it."""
    other = replace(cluster, folder=cluster.folder / "empty", ports={}, processes={}, lock_fd=-1)
    other.prepare()
    try:
        return start_seconds(other, other.member_names[0])
    finally:
        other.kill(other.member_names[0])
        shutil.rmtree(other.folder)


async def _check_identical(here: Running) -> None:
    """Compare term and checksum of every entry, and the digest of the state, over all members."""
    seen: dict[str, tuple[list[int], list[int], bytes]] = {}
    for member in here.cluster.member_names:
        terms: list[int] = []
        crcs: list[int] = []
        digest = b""
        admin = broker_pb2_grpc.AdminStub(here.channel(member))
        request = pb.LogEntriesRequest(from_index=1)
        async for reply in admin.LogEntries(request, metadata=here.metadata):
            terms += reply.terms
            crcs += reply.crcs
            digest = reply.digest
        seen[member] = (terms, crcs, digest)
    first, *others = seen.values()
    if any(other != first for other in others):
        raise NotReady(f"members differ: {', '.join(seen)}; see {here.cluster.folder}")


async def _sizes(effort: Effort) -> list[Figure]:
    require_room(effort.folder, effort.large_log_bytes + effort.small_log_bytes + (4 << 30))
    rounds = Rounds()
    async with (
        running(effort.folder, members=1) as small,
        running(effort.folder, members=1) as large,
    ):
        for here, size in ((small, effort.small_log_bytes), (large, effort.large_log_bytes)):
            topic = await here.create_topic("size", queues=4)
            await pour_bytes(here, topic, size)
        for _ in range(max(effort.runs, SIZE_RUNS_MIN)):
            for name, here in (("small", small), ("large", large)):
                member = here.cluster.member_names[0]
                here.cluster.kill(member)
                rounds.add(name, start_seconds(here.cluster, member))
                await here.leader()
                await here.caught_up()
    note = f"{effort.large_log_bytes / 2**30:g} GiB against {effort.small_log_bytes / 2**30:g} GiB"
    return [
        compared("restart_large_log", rounds["large"], "s", "start with a small log",
                 rounds["small"], "<=", 1.25, note)
    ]  # fmt: skip
