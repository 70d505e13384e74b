"""Consumer groups that nobody uses are deleted, over two broker groups of real members.

Counted time passes by the leader's command; the configuration allows no expiry below an hour. So
only what the test counts makes a consumer group old. The leader looks often.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dledger.state.counted_time import COUNTED_AT_ONCE_MAX_MS
from dledger.state.producers.expiry import ExpireProducers
from dledger_broker.cluster import group_expiry
from dledger_broker.config.sections import ConsumerGroupsConfig
from dledger_broker.group.group_view import GroupView
from dledger_broker.process.member import Member as Process
from dledger_broker.process.platform import of_this_machine
from dledger_client import AsyncAdmin, AsyncConsumer, ConsumerConfig
from dledger_proto.network.ports import free_ports
from tests.integration.cluster import eventually
from tests.integration.test_groups import NAMES, config

HOUR = 3_600_000
LOOK_MS = 100


@asynccontextmanager
async def expiring(folder: Path) -> AsyncIterator[tuple[str, list[Process]]]:
    """Yield an address, and the members of both broker groups."""
    ports = dict(zip(NAMES, free_ports(len(NAMES), width=2), strict=True))
    expiry = {"consumer_groups": ConsumerGroupsConfig(expiry_ms=HOUR)}
    running = [
        Process(config(folder, name, ports).model_copy(update=expiry), of_this_machine())
        for name in NAMES
    ]
    tasks: list[asyncio.Task[int]] = []
    try:
        for process in running:
            await process.start()
            tasks.append(asyncio.create_task(process.run()))
        yield f"127.0.0.1:{ports[NAMES[0]]}", running
    finally:
        for process in running:
            process.request_stop()
        assert await asyncio.gather(*tasks) == [0] * len(tasks)


def views_of(process: Process) -> list[GroupView]:
    """Return what a process knows of its broker groups."""
    return [runtime.view for runtime in process._groups.values()]


async def count(members: list[Process], broker_group: str) -> None:
    """Let an hour pass in a broker group, and what a use may be noted too late or early."""

    async def leader() -> GroupView | None:
        views = [process._groups[broker_group].view for process in members]
        return next((view for view in views if view.leads), None)

    view = await eventually(leader, f"{broker_group} has a leader")
    for _ in range(HOUR // COUNTED_AT_ONCE_MAX_MS + 2):
        await view.commands.propose(ExpireProducers(COUNTED_AT_ONCE_MAX_MS, 1 << 60))


def test_what_no_broker_group_has_a_use_of_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`mails` is; `billing` has a use in the other broker group, `audit` a consumer that waits."""
    monkeypatch.setattr(group_expiry, "CHECKS_PER_EXPIRY", HOUR / LOOK_MS)

    async def run() -> None:
        async with expiring(tmp_path) as (address, members), AsyncAdmin(address) as admin:
            await admin.create_topic("orders", groups=["blue"])
            for name in ("audit", "billing", "mails"):
                await admin.create_consumer_group(name)

            async def are(*names: str) -> bool:
                return [each.name for each in await admin.consumer_groups()] == list(names)

            audit = (await admin.consumer_group("audit")).id

            async def is_joined() -> bool:
                views = (view for process in members for view in views_of(process))
                return any(view.machine.queries.consumers(audit).consumers for view in views)

            async def has_left() -> bool:
                return not await is_joined()

            waiting = ConsumerConfig(group="audit")
            async with AsyncConsumer(address, waiting) as consumer:
                await consumer.subscribe(["orders"])
                await eventually(is_joined, "the consumer has joined")
                await count(members, "blue")
                await admin.reset_offsets("billing", "orders", to="earliest")
                await count(members, "red")
                await eventually(lambda: are("audit", "billing"), "mails is deleted")
                await count(members, "blue")
                await eventually(lambda: are("audit"), "billing is deleted, too")
            await eventually(has_left, "its session has ended, which is a use")
            await count(members, "blue")
            await count(members, "red")
            await eventually(are, "audit is deleted when its consumer has left")

    asyncio.run(run())
