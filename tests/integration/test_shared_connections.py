"""Clients of one process against real members: one connection to each member, and own ends."""

import asyncio
import os
from pathlib import Path

from dledger_client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncPushConsumer,
    ConsumedRecord,
    ConsumerConfig,
    ProducerConfig,
    PushConfig,
    StartAt,
)
from tests.integration.cluster import Cluster, running_cluster
from tests.waiting import until

ESTABLISHED = "01"
SENDS = 50


def own_connections(address: str) -> int:
    """Return how many connections to an address this process has opened."""
    host, _, port = address.rpartition(":")
    assert host == "127.0.0.1"
    remote = f"0100007F:{int(port):04X}"
    own = {os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if entry.is_symlink()}
    count = 0
    for table in ("tcp", "tcp6"):  # gRPC reaches IPv4 addresses by sockets of IPv6
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            _, _, far, state, *rest = line.split()
            is_there = far.endswith(remote) and state == ESTABLISHED
            count += is_there and f"socket:[{rest[5]}]" in own
    return count


async def take(consumer: AsyncConsumer, bodies: set[bytes]) -> None:
    while bodies:
        bodies -= {record.body for record in await consumer.poll(100, 1_000)}


async def live(cluster: Cluster) -> None:
    """Use four clients; end one of them, and kill the leader."""
    bootstrap, pushed = cluster.local.name_server, set[bytes]()
    there = cluster.connection
    first = ConsumerConfig(start_at=StartAt.FIRST, connection=there)
    before = {member.name: own_connections(member.address) for member in cluster.members}

    async def listen(record: ConsumedRecord) -> None:
        pushed.add(record.body)

    async def send(word: bytes) -> set[bytes]:
        bodies = {b"%s %d" % (word, number) for number in range(SENDS)}
        await asyncio.gather(*(producer.send("t", body) for body in bodies))
        return bodies

    async with (
        AsyncProducer(bootstrap, ProducerConfig(connection=there)) as producer,
        AsyncConsumer(bootstrap, first) as reader,
        AsyncAdmin(bootstrap, there) as admin,
    ):
        await reader.assign("t")
        reading = PushConfig(first)
        goes = await AsyncPushConsumer(bootstrap, "g", "t", listen, reading).start()
        bodies = await send(b"first")
        await take(reader, set(bodies))
        await until(lambda: pushed >= bodies, "the listener has all")
        assert len(await admin.statuses()) == len(cluster.members)
        for member in cluster.members:
            assert own_connections(member.address) - before[member.name] == 1
        await goes.close()
        cluster.local.kill((await cluster.leader()).name)
        await take(reader, await send(b"second"))
        assert pushed == bodies


def test_clients_of_a_process_share_connections_and_end_alone(tmp_path: Path, secure: bool) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path, secure=secure) as cluster:
            await cluster.leader()
            await cluster.create_topic("t")
            await live(cluster)

    asyncio.run(scenario())
