"""Users of a real cluster with TLS: who has none, a wrong one, one without the right, one with it.

Method: administrators come by a member's certificate, as on a member's own machine. Clients have a
client's certificate and log in, as producers, consumers and readers of users do.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dledger_client import AsyncAdmin, AsyncConsumer, AsyncProducer
from dledger_client.config import (
    ConnectionConfig,
    ConsumerConfig,
    ProducerConfig,
    StartAt,
)
from dledger_client.errors import ClientError, NoPermission, TopicNotFound, Unauthenticated
from dledger_proto.login.derivation import SALT_SIZE, keys_of
from dledger_proto.login.scram import ROUNDS_MIN
from dledger_proto.network.tls import TlsFolder
from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import open_channel
from dledger_proto.v1 import users_pb2 as pb
from tests.integration.cluster import Cluster, eventually, running_cluster

PUBLISH, SUBSCRIBE, CREATE, ALL = 1, 2, 4, 127
SALT = bytes(range(SALT_SIZE))


def in_cluster(folder: Path, body: Callable[[Cluster], Awaitable[None]]) -> None:
    """Run a body beside a cluster that asks for users, and has an administrator, root."""

    async def main() -> None:
        async with running_cluster(folder, secure=True, users=True, start=False) as cluster:
            cluster.local.start_all()
            await put(cluster, "root", is_admin=True)
            await body(cluster)

    asyncio.run(main())


def secret_file(cluster: Cluster, name: str, secret: str) -> str:
    path = cluster.local.folder / f"secret-{name}"
    path.write_text(secret + "\n")
    return str(path)


async def put(
    cluster: Cluster, name: str, *policies: pb.Policy, secret: str = "", is_admin: bool = False,
    create: bool = True,
) -> None:  # fmt: skip
    """Create or change a user, by the certificate of a member."""
    secret = secret or f"secret of {name}"
    stored_key, server_key = keys_of(secret, SALT, ROUNDS_MIN)
    user = pb.User(
        name=name, is_admin=is_admin, policies=policies,
        credentials=pb.UserCredentials(
            salt=SALT, rounds=ROUNDS_MIN, stored_key=stored_key, server_key=server_key
        ),
    )  # fmt: skip
    request = pb.PutUserRequest(user=user, create=create).SerializeToString()
    member = cluster.members[0]
    keys = TlsFolder(str(cluster.local.folder / "tls" / member.name)).current()
    channel = open_channel(member.address, raw.CHANNEL_OPTIONS, keys)

    async def done() -> bool:
        reply = pb.UserReply.FromString(
            await raw.raw_unary(channel, "/dledger.v1.Users/Put")(
                request, timeout=5, metadata=(("dledger-group", cluster.local.group),)
            )
        )
        return reply.user.name == name

    await eventually(done, f"user {name}")
    await channel.close(None)
    secret_file(cluster, name, secret)


def connection(cluster: Cluster, name: str, secret: str = "") -> ConnectionConfig:
    path = secret_file(cluster, f"{name}-given", secret) if secret else ""
    return ConnectionConfig(
        tls_folder=cluster.local.tls_folder, user=name,
        secret_file=path or str(cluster.local.folder / f"secret-{name}"), call_timeout_ms=5_000,
    )  # fmt: skip


def topic_policy(pattern: str, actions: int, *, denies: bool = False) -> pb.Policy:
    match = pb.POLICY_MATCH_EXACT
    if pattern.endswith("*"):
        pattern = pattern[:-1]
        match = pb.POLICY_MATCH_PREFIX if pattern else pb.POLICY_MATCH_ALL
    return pb.Policy(
        kind=pb.POLICY_KIND_TOPIC, match=match, pattern=pattern, actions=actions, denies=denies
    )


async def create_topics(cluster: Cluster, *names: str) -> None:
    async with AsyncAdmin(cluster.local.name_server, connection(cluster, "root")) as admin:
        for name in names:
            await admin.create_topic(name, queues_per_group=1)


async def refusal(cluster: Cluster, there: ConnectionConfig, topic: str) -> ClientError:
    """Return how a send ends."""
    config = ProducerConfig(connection=there, timeout_ms=5_000, create_topics=False)
    with pytest.raises(ClientError) as refused:
        async with AsyncProducer(",".join(m.address for m in cluster.members), config) as producer:
            await producer.send(topic, b"x")
    return refused.value


def test_only_users_with_the_right_send_and_read(tmp_path: Path) -> None:
    in_cluster(tmp_path, only_users_with_the_right)


async def only_users_with_the_right(cluster: Cluster) -> None:
    await create_topics(cluster, "orders", "bank")
    await put(cluster, "shop", topic_policy("orders", PUBLISH))
    await put(cluster, "auditor", topic_policy("*", SUBSCRIBE))
    name_server = cluster.local.name_server
    shop = ProducerConfig(connection=connection(cluster, "shop"))
    async with AsyncProducer(name_server, shop) as producer:
        for number in range(20):
            await producer.send("orders", b"%d" % number)
    bodies: list[bytes] = []
    auditor = ConsumerConfig(connection=connection(cluster, "auditor"))
    async with AsyncConsumer(name_server, auditor) as consumer, asyncio.timeout(20):
        await consumer.assign("orders", StartAt.FIRST)
        while len(bodies) < 20:
            bodies += [record.body for record in await consumer.poll()]
    assert bodies == [b"%d" % number for number in range(20)]

    for topic in ("bank", "nothing"):
        refused = await refusal(cluster, connection(cluster, "shop"), topic)
        assert isinstance(refused, TopicNotFound), (topic, refused)
    reader = ConsumerConfig(connection=connection(cluster, "shop"))
    async with AsyncConsumer(name_server, reader) as consumer:
        with pytest.raises(NoPermission):
            await consumer.assign("orders", StartAt.FIRST)

    nobody = ConnectionConfig(tls_folder=cluster.local.tls_folder, call_timeout_ms=5_000)
    guessed = connection(cluster, "shop", "guessed")
    unknown = connection(cluster, "unknown", "guessed")
    for there in (nobody, guessed, unknown):
        async with AsyncAdmin(name_server, there) as admin:
            with pytest.raises(Unauthenticated):
                await admin.list_topics()
    async with AsyncAdmin(name_server, connection(cluster, "shop")) as admin:
        assert [topic.name for topic in await admin.list_topics()] == ["orders"]
        with pytest.raises(NoPermission):
            await admin.create_topic("mine")
    told = "".join(cluster.local.log_text(member.name) for member in cluster.members)
    assert "audit: call" in told
    assert "audit: CreateTopic" in told
    assert "secret of" not in told


def test_a_change_of_rights_reaches_streams(tmp_path: Path) -> None:
    in_cluster(tmp_path, a_change_of_rights)


async def a_change_of_rights(cluster: Cluster) -> None:
    await create_topics(cluster, "orders")
    await put(cluster, "shop", topic_policy("orders", PUBLISH | SUBSCRIBE))
    config = ProducerConfig(connection=connection(cluster, "shop"), timeout_ms=5_000)
    async with AsyncProducer(cluster.local.name_server, config) as producer:
        await producer.send("orders", b"1")
        await put(cluster, "shop", topic_policy("orders", SUBSCRIBE), create=False)

        async def is_refused() -> bool:
            try:
                await producer.send("orders", b"2")
            except NoPermission:
                return True
            return False

        await eventually(is_refused, "the stream feels the change")
        await put(cluster, "shop", topic_policy("orders", PUBLISH), create=False)

        async def is_allowed() -> bool:
            try:
                await producer.send("orders", b"3")
            except NoPermission:
                return False
            return True

        await eventually(is_allowed, "and the next one")


def test_a_new_secret_needs_no_new_client(tmp_path: Path) -> None:
    """The file is read at each login, and the login of the older secret ends."""
    in_cluster(tmp_path, a_new_secret)


async def a_new_secret(cluster: Cluster) -> None:
    await create_topics(cluster, "orders")
    policy = topic_policy("orders", PUBLISH)
    await put(cluster, "shop", policy)
    config = ProducerConfig(connection=connection(cluster, "shop"), timeout_ms=20_000)
    async with AsyncProducer(cluster.local.name_server, config) as producer:
        await producer.send("orders", b"1")
        await put(cluster, "shop", policy, secret="another secret", create=False)
        await producer.send("orders", b"2")
        for member in cluster.members:  # one of them leads
            cluster.local.kill(member.name)
            await producer.send("orders", b"3")
            cluster.local.start(member.name)


def test_nobody_takes_the_producer_of_another_user_over(tmp_path: Path) -> None:
    in_cluster(tmp_path, a_producer_of_another_user)


async def a_producer_of_another_user(cluster: Cluster) -> None:
    await create_topics(cluster, "orders")
    for name in ("ann", "bob"):
        await put(cluster, name, topic_policy("orders", PUBLISH))
    name_server = cluster.local.name_server

    def till(user: str) -> AsyncProducer:
        there = connection(cluster, user)
        return AsyncProducer(name_server, ProducerConfig(connection=there, name="till"))

    async with till("ann") as of_ann:
        await of_ann.send("orders", b"1")
        with pytest.raises(NoPermission, match="belongs to another user"):
            async with till("bob") as of_bob:
                await of_bob.send("orders", b"2")
        await of_ann.send("orders", b"3")
    for member in cluster.members:  # one of them leads
        cluster.local.kill(member.name)
        with pytest.raises(NoPermission, match="belongs to another user"):
            async with till("bob") as of_bob:
                await of_bob.send("orders", b"4")
        cluster.local.start(member.name)
    told = "".join(cluster.local.log_text(member.name) for member in cluster.members)
    assert "wished=RegisterProducer" in told
