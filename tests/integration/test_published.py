"""Members that clients reach elsewhere than their peers do, as behind published ports.

The published addresses are names that nobody can resolve: members can do nothing with them, and
nobody can but the clients of these tests, whose channels lead from there to the members. A client
that asks for anything else, a peer's address say, finds nobody.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from dledger_client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ConnectionConfig,
    ConsumerConfig,
    ProducerConfig,
    StartAt,
)
from tests.integration.cluster import Cluster, eventually, running_cluster
from tests.ports import free_port

MEMBERS = ("n1", "n2", "n3")
CONNECT = grpc.aio.insecure_channel


def published(member: str) -> str:
    """Where clients are told that a member is."""
    return f"{member}.published.invalid:10911"


class Outside:
    """The network as the clients of a test see it."""

    def __init__(self, cluster: Cluster) -> None:
        local = cluster.local
        self.ways = {published(name): local.address(name) for name in MEMBERS}
        self.ways[local.name_server] = local.name_server
        self._nobody = f"127.0.0.1:{free_port()}"

    def connect(self, address: str, **options: Any) -> grpc.aio.Channel:
        """Stand in for grpc.aio.insecure_channel."""
        return CONNECT(self.ways.get(address, self._nobody), **options)


@asynccontextmanager
async def published_elsewhere(folder: Path) -> AsyncIterator[Cluster]:
    """Run three members that are published where only `Outside` reaches them."""
    clients = [f"{name} = {json.dumps(published(name))}" for name in MEMBERS]
    async with running_cluster(folder, start=False) as cluster:
        for name in MEMBERS:
            config = folder / name / "config.toml"
            written = config.read_text()
            config.write_text("\n".join(['security = "off"', written, "[clients]", *clients, ""]))
        cluster.local.start_all()
        yield cluster


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


async def send(producer: AsyncProducer, first: int, count: int) -> None:
    """Send numbered messages with one ordering key; each gets the offset of its number."""
    for number in range(first, first + count):
        result = await producer.send("orders", b"%d" % number, ordering_key="one")
        assert result.offset == number


async def read(consumer: AsyncConsumer, count: int) -> list[int]:
    """Return the numbers read, in order of their offsets."""
    await consumer.assign("orders")
    numbers: list[int] = []
    async with asyncio.timeout(20):
        while len(numbers) < count:
            numbers += [int(record.body) for record in await consumer.poll(timeout_ms=500)]
    return numbers


PATIENT = ProducerConfig(timeout_ms=20_000)
FROM_FIRST = ConsumerConfig(start_at=StartAt.FIRST)


def test_a_client_outside_goes_on_when_the_leader_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with published_elsewhere(tmp_path) as cluster:
            leader = await cluster.leader()
            monkeypatch.setattr(grpc.aio, "insecure_channel", Outside(cluster).connect)
            name_server = cluster.local.name_server
            async with (
                AsyncProducer(name_server, PATIENT) as producer,
                AsyncConsumer(name_server, FROM_FIRST) as consumer,
                AsyncAdmin([published(name) for name in MEMBERS]) as admin,
            ):
                await send(producer, 0, 20)
                status = await admin.status(published(leader.name))
                assert status.leader_address == published(leader.name)
                assert {each.address for each in status.members} == set(map(published, MEMBERS))
                cluster.local.kill(leader.name)
                await send(producer, 20, 20)
                assert await read(consumer, 40) == list(range(40))
                (group,) = await admin.groups()
                assert group.leader_address in set(map(published, MEMBERS)) - {
                    published(leader.name)
                }

    run(scenario)


def test_a_client_that_reaches_only_a_follower_is_forwarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What members do among themselves uses their own addresses: here they have no others."""

    async def scenario() -> None:
        async with published_elsewhere(tmp_path) as cluster:
            leader = await cluster.leader()
            follower = next(name for name in MEMBERS if name != leader.name)
            outside = Outside(cluster)
            outside.ways = {published(follower): outside.ways[published(follower)]}
            monkeypatch.setattr(grpc.aio, "insecure_channel", outside.connect)
            async with AsyncProducer(published(follower), PATIENT) as producer:
                await send(producer, 0, 20)

    run(scenario)


def test_a_client_inside_uses_the_peers_addresses(tmp_path: Path) -> None:
    """Nothing leads to the published addresses here, though members answer with them."""

    async def scenario() -> None:
        async with published_elsewhere(tmp_path) as cluster:
            leader = await cluster.leader()
            inside = ConnectionConfig(inside=True)
            name_server = cluster.local.name_server
            async with (
                AsyncProducer(
                    name_server, ProducerConfig(timeout_ms=20_000, connection=inside)
                ) as producer,
                AsyncConsumer(
                    name_server, ConsumerConfig(start_at=StartAt.FIRST, connection=inside)
                ) as consumer,
                AsyncAdmin(name_server, inside) as admin,
            ):
                await send(producer, 0, 20)
                cluster.local.kill(leader.name)
                await send(producer, 20, 20)
                assert await read(consumer, 40) == list(range(40))

                async def other_leader() -> bool:
                    (group,) = await admin.groups()
                    return group.leader_address in {
                        cluster.local.address(name) for name in MEMBERS if name != leader.name
                    }

                await eventually(other_leader, "the routes name a new leader by its own address")

    run(scenario)
