"""Appends and idling by the number of groups, all in the same three processes."""

import asyncio
import dataclasses
import json
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.cluster.idle import idle_share
from bench.effort import Effort
from bench.scale.load import (
    WINDOW,
    Spread,
    records_of,
    spread_over,
)
from bench.setup.cluster import READY_SECONDS_MAX, Running, started, within
from bench.setup.native import BODY_SIZE, Poured, pour
from dledger_broker.local.cluster import LocalCluster
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import broker_pb2_grpc

POINTS = (1, 3, 9)
LOOK_SECONDS = 0.1


async def measure(groups: int, effort: Effort) -> AsyncIterator[tuple[str, float, str]]:
    """Yield what three members of so many groups each take: name, value, unit."""
    async with _running(effort.folder, groups) as all_groups:
        here = all_groups[0]
        makes = await _makers(all_groups)
        before = here.processor_seconds()
        end = time.perf_counter() + effort.seconds
        poured: list[Poured] = await asyncio.gather(
            *(
                pour(each, maker, WINDOW, lambda _: time.perf_counter() < end)
                for each, maker in zip(all_groups, makes, strict=True)
            )
        )
        megabytes = sum(each.records for each in poured) * BODY_SIZE / 1e6
        used = here.processor_seconds() - before
        yield "append", megabytes / max(each.seconds for each in poured), "MB/s, all groups"
        yield "append_cost", used * 1000 / megabytes, "core-ms per MB"
        for each in all_groups:
            await each.caught_up()
        yield "idle", await idle_share(here, effort.idle_seconds), "% of one core"
        yield "memory", max(here.memory_mib()), "MiB"


@asynccontextmanager
async def _running(folder: Path, groups: int) -> AsyncGenerator[list[Running]]:
    """Start three processes that are members of so many groups; yield one `Running` of each."""
    cluster = LocalCluster(
        Path(tempfile.mkdtemp(prefix="cluster-", dir=folder)), cluster="bench", die_with_owner=True
    )
    cluster.prepare()
    names = [f"group-{number}" for number in range(1, groups + 1)]
    for member in cluster.member_names:
        write_groups(cluster, member, names)
    async with started(cluster) as first:
        found = [first]
        found += [Running(dataclasses.replace(cluster, group=name)) for name in names[1:]]
        try:
            for each in found:
                await each.leader()
            yield found
        finally:
            for each in found[1:]:
                await each.close()


def write_groups(cluster: LocalCluster, member: str, names: list[str]) -> None:
    """Write a member's configuration with several groups in place of one."""
    path = cluster.folder / member / "config.toml"
    head = path.read_text().split("[members]")[0]
    members = cluster.member_names
    lines = [line for line in head.splitlines() if not line.startswith("group = ")]
    for name in names:
        lines += ["", "[[groups]]", f"name = {json.dumps(name)}"]
        for table, address in (("members", cluster.address), ("links", cluster.link_address)):
            rows = ", ".join(f"{peer} = {json.dumps(address(peer))}" for peer in members)
            lines.append(f"{table} = {{ {rows} }}")
    path.write_text("\n".join(lines) + "\n")


async def _makers(groups: list[Running]) -> list[Spread]:
    """Create a topic with one queue in each group, and what makes its batches."""
    admin = broker_pb2_grpc.AdminStub(groups[0].channel(await groups[0].leader()))
    request = pb.CreateTopicRequest(name="scale", write_queues_per_group=1)
    async with within(READY_SECONDS_MAX, "a topic in every group"):
        reply = await admin.CreateTopic(request, timeout=10, metadata=groups[0].metadata)
        while reply.missing_groups:
            await asyncio.sleep(LOOK_SECONDS)
            reply = await admin.CreateTopic(request, timeout=10, metadata=groups[0].metadata)
    records = records_of(BODY_SIZE)
    queue_of = {part.group: queue for queue, part in enumerate(reply.topic.layout)}
    return [
        await spread_over(each, [(reply.topic.id, queue_of[each.cluster.group])], records)
        for each in groups
    ]
