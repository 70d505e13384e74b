"""A cluster with TLS: it does what one without does, and takes nobody who does not belong."""

import asyncio
import datetime as dt
import shutil
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import grpc
import grpc.aio
import pytest

from dledger_broker.local.cluster import CLIENT, LOCAL_HOSTS, NAME_SERVER, LocalCluster
from dledger_broker.security.authority import Authority, Wanted, held
from dledger_client import AsyncAdmin, AsyncConsumer, AsyncProducer
from dledger_client.config import ConsumerConfig, ProducerConfig, StartAt
from dledger_proto.errors import Code
from dledger_proto.exit_codes import Exit
from dledger_proto.network.open_files import ask_for_open_files
from dledger_proto.network.ports import free_ports
from dledger_proto.network.tls import TlsFolder, client_name, member_name, name_server_name
from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import open_channel
from dledger_proto.rpc.status import from_rpc_error
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import broker_pb2_grpc, routes_pb2
from dledger_proto.v1.peers_pb2 import ReadLogRequest
from tests.http_page import ask
from tests.integration.cluster import Cluster, eventually, running_cluster

TOPIC = "secured"
SILENT_MAX = 1_000
"""Connections that begin TLS and never end it."""


def in_cluster(folder: Path, body: Callable[[Cluster], Awaitable[None]]) -> None:
    """Run a body beside a cluster with TLS that has a leader."""

    async def main() -> None:
        async with running_cluster(folder, secure=True) as cluster:
            await cluster.leader()
            await body(cluster)

    asyncio.run(main())


def certificate(cluster: Cluster, folder: Path, name: str, days_ago: int) -> Path:
    """Make another certificate of the cluster's authority, for one day that began so long ago."""
    authority = Authority.load(cluster.local.folder / "tls")
    begins = dt.datetime.now(dt.UTC) - dt.timedelta(days=days_ago)
    return authority.issue(folder / f"{days_ago}", Wanted("made", [name]), 1, begins)


async def outcome(channel: grpc.aio.Channel, cluster: Cluster) -> str:
    """Return how a status call over a channel ends."""
    admin: broker_pb2_grpc.AdminAsyncStub = broker_pb2_grpc.AdminStub(channel)
    try:
        request = pb.StatusRequest()
        metadata = (("dledger-group", cluster.local.group),)
        reply = await admin.Status(request, timeout=10, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    finally:
        await channel.close(None)
    return reply.role


def test_clients_and_members_speak_tls(tmp_path: Path) -> None:
    """Messages are stored and read, a follower takes over, and all members have the same."""
    in_cluster(tmp_path, clients_and_members_speak_tls)


async def clients_and_members_speak_tls(cluster: Cluster) -> None:
    there = cluster.connection
    name_server = cluster.local.name_server
    async with (
        AsyncProducer(name_server, ProducerConfig(connection=there)) as producer,
        AsyncConsumer(name_server, ConsumerConfig(connection=there)) as consumer,
        AsyncAdmin(name_server, there) as admin,
    ):
        await admin.create_topic(TOPIC, queues_per_group=1)
        for number in range(20):
            await producer.send(TOPIC, b"%d" % number)
        leader = await cluster.leader()
        assert (await leader.status()).security == "on"
        cluster.local.kill(leader.name)
        for number in range(20, 40):
            await producer.send(TOPIC, b"%d" % number)
        cluster.local.start(leader.name)
        await consumer.assign(TOPIC, StartAt.FIRST)
        bodies: list[bytes] = []
        async with asyncio.timeout(20):
            while len(bodies) < 40:
                bodies += [record.body for record in await consumer.poll()]
    assert bodies == [b"%d" % number for number in range(40)]
    await cluster.assert_identical()


def test_strangers_are_refused(tmp_path: Path) -> None:
    """No certificate, another authority's, an expired one, plain text: none gets an answer."""
    in_cluster(tmp_path, strangers_are_refused)


async def strangers_are_refused(cluster: Cluster) -> None:
    address, made_in = cluster.members[0].address, cluster.local.folder / "made"
    ours = TlsFolder(cluster.local.tls_folder).current()
    assert await outcome(open_channel(address, (), ours), cluster) in {"leader", "follower"}
    assert await outcome(open_channel(address), cluster) == "UNAVAILABLE"
    nobody = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(ours.authority))
    assert await outcome(nobody, cluster) == "UNAVAILABLE"
    others = Authority.make(cluster.local.cluster)
    name = client_name(cluster.local.cluster, "mallory")
    others.store(made_in / "others")
    made = others.issue(made_in / "others", Wanted("mallory", [name]))
    shutil.copy(Path(cluster.local.tls_folder) / "ca.crt", made / "ca.crt")  # he trusts the members
    mallory = TlsFolder(str(made)).current()
    assert await outcome(open_channel(address, (), mallory), cluster) == "UNAVAILABLE"
    for days_ago, expected in (
        (0, {"leader", "follower"}),
        (2, {"UNAVAILABLE"}),
        (-2, {"UNAVAILABLE"}),
    ):
        keys = TlsFolder(str(certificate(cluster, made_in, name, days_ago))).current()
        assert await outcome(open_channel(address, (), keys), cluster) in expected, days_ago


def test_a_client_refuses_a_member_of_another_name(tmp_path: Path) -> None:
    """The certificate names the hosts: an address that it does not name is refused."""
    in_cluster(tmp_path, a_client_refuses_a_member_of_another_name)


async def a_client_refuses_a_member_of_another_name(cluster: Cluster) -> None:
    port = cluster.members[0].address.rpartition(":")[2]
    keys = TlsFolder(cluster.local.tls_folder).current()
    assert await outcome(open_channel(f"127.0.0.2:{port}", (), keys), cluster) == "UNAVAILABLE"


def test_a_client_is_no_member(tmp_path: Path) -> None:
    """With a client's certificate nobody gets the log of a peer, forwards, or registers."""
    in_cluster(tmp_path, a_client_is_no_member)


async def a_client_is_no_member(cluster: Cluster) -> None:
    member = cluster.members[0]
    said = (
        ("dledger-cluster", cluster.local.cluster),
        ("dledger-group", cluster.local.group),
        ("dledger-member", cluster.members[1].name),
        ("dledger-to", member.name),
        ("dledger-incarnation", "00"),
    )
    read = raw.raw_read(member.channel, raw.READ_LOG)(
        ReadLogRequest().SerializeToString(), metadata=said
    )
    assert await refusal(read.read()) is Code.WRONG_CLUSTER
    forwarded = (*member.metadata, ("dledger-forwarded", "1"))
    append = raw.raw_unary(member.channel, raw.APPEND_ONE)
    assert await refusal(append(b"", metadata=forwarded)) is Code.NO_PERMISSION
    pull = raw.raw_unary(member.channel, "/dledger.v1.Admin/PullTopics")
    assert await refusal(pull(b"", metadata=member.metadata)) is Code.NO_PERMISSION
    keys = TlsFolder(cluster.local.tls_folder).current()
    async with open_channel(cluster.local.name_server, (), keys) as channel:
        stream = raw.raw_stream(channel, "/dledger.v1.Registry/Register")()
        registration = routes_pb2.Registration(
            cluster=cluster.local.cluster,
            group=cluster.local.group,
            member=member.name,
            address="127.0.0.1:1",
            configured_members=[each.name for each in cluster.members],
        )
        await stream.write(registration.SerializeToString())
        assert await refusal(stream.read()) is Code.WRONG_CLUSTER


async def refusal(call: "asyncio.Future[object] | object") -> Code:
    """Return the code with which a call is refused."""
    try:
        await call  # type: ignore[misc]
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error).code
    raise AssertionError("it was not refused")


def test_new_certificates_are_taken_while_all_runs(tmp_path: Path) -> None:
    """Those of all processes change under load: no send fails, and the new ones are shown."""
    in_cluster(tmp_path, new_certificates_are_taken_while_all_runs)


async def new_certificates_are_taken_while_all_runs(cluster: Cluster) -> None:
    local = cluster.local
    ports = [*local.ports.values(), *local.link_ports.values()]
    before = await asyncio.to_thread(all_shown, ports, cluster)
    stop = asyncio.Event()

    async def send() -> int:
        config = ProducerConfig(connection=cluster.connection)
        count = 0
        async with AsyncProducer(cluster.local.name_server, config) as producer:
            while not stop.is_set():
                await producer.send(TOPIC, b"x")
                count += 1
        return count

    read: list[int] = []

    async def poll() -> None:
        config = ConsumerConfig(connection=cluster.connection)
        async with AsyncConsumer(cluster.local.name_server, config) as consumer:
            await consumer.assign(TOPIC, StartAt.FIRST)
            while not stop.is_set():
                read.append(len(await consumer.poll(timeout_ms=100)))

    sending = asyncio.create_task(send())
    await eventually_sent(cluster)
    polling = asyncio.create_task(poll())
    renew(local)

    async def changed() -> bool:
        now = await asyncio.to_thread(all_shown, ports, cluster)
        return all(now[port] != before[port] for port in ports)

    await eventually(changed, "every port shows a new certificate")
    leader = await cluster.leader()
    for name in (NAME_SERVER, leader.name):  # others connect anew, with the new files
        local.kill(name)
        local.start(name)
    await cluster.leader()
    before_end = sum(read)

    async def read_on() -> bool:
        return sum(read) > before_end

    await eventually(read_on, "messages are read")
    stop.set()
    assert await sending > 0
    await polling


def renew(local: LocalCluster) -> None:
    """Make each certificate of a cluster anew."""
    folder = local.folder / "tls"
    authority = Authority.load(folder)
    said = {name: member_name(local.cluster, local.group, name) for name in local.member_names}
    said[NAME_SERVER] = name_server_name(local.cluster)
    for name, whose in said.items():
        authority.issue(folder, Wanted(name, [whose], LOCAL_HOSTS))
    client = client_name(local.cluster, CLIENT)
    authority.issue(folder, Wanted(f"client-{CLIENT}", [client]))


def all_shown(ports: Sequence[int], cluster: Cluster) -> dict[int, bytes]:
    """Return the certificate that is shown on each port."""
    return {port: shown("127.0.0.1", port, cluster) for port in ports}


async def eventually_sent(cluster: Cluster) -> None:
    """Wait until the topic is there."""
    async with AsyncAdmin(cluster.local.name_server, cluster.connection) as admin:

        async def is_there() -> bool:
            return any(topic.name == TOPIC for topic in await admin.list_topics())

        await eventually(is_there, "the topic")


def shown(host: str, port: int, cluster: Cluster) -> bytes:
    """Return the certificate that a port shows."""
    context = TlsFolder(cluster.local.tls_folder).current().dialling
    with (
        socket.create_connection((host, port), 5) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


def test_handshakes_that_never_end_hurt_nobody(tmp_path: Path) -> None:
    """Others are served while many connections have begun TLS and say nothing more."""
    in_cluster(tmp_path, handshakes_that_never_end_hurt_nobody)


async def handshakes_that_never_end_hurt_nobody(cluster: Cluster) -> None:
    address = cluster.members[0].address
    host, _, port = address.rpartition(":")
    ask_for_open_files()
    silent = [socket.create_connection((host, int(port))) for _ in range(SILENT_MAX)]
    try:
        for each in silent:
            each.send(bytes([22, 3, 1, 2, 0]))  # the head of a first record, and no more
        keys = TlsFolder(cluster.local.tls_folder).current()
        assert await outcome(open_channel(address, (), keys), cluster) in {"leader", "follower"}
    finally:
        for each in silent:
            each.close()


def test_a_member_without_its_files_does_not_start(tmp_path: Path) -> None:
    """The error names the file; nothing listens."""
    asyncio.run(a_member_without_its_files(tmp_path))


async def a_member_without_its_files(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, secure=True, start=False) as cluster:
        name, other = (member.name for member in cluster.members[:2])
        shutil.copytree(tmp_path / "tls" / other, tmp_path / "tls" / name, dirs_exist_ok=True)
        for expected in (f"must be of dledger://local/member/{cluster.local.group}", "tls.key"):
            cluster.local.start(name)
            process = cluster.local.processes[name]
            code = await asyncio.to_thread(process.wait, 20)
            assert code == Exit.BAD_INPUT
            assert expected in cluster.local.log_text(name)
            (tmp_path / "tls" / name / "tls.key").unlink(missing_ok=True)
        assert "Traceback" not in cluster.local.log_text(name)


def test_certificates_that_end_are_told(tmp_path: Path) -> None:
    """Members and name servers say so at their start, in the log and as a metric."""
    asyncio.run(certificates_that_end_are_told(tmp_path))


async def certificates_that_end_are_told(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, secure=True, start=False) as cluster:
        names = [cluster.members[0].name, NAME_SERVER]
        ports = dict(zip(names, free_ports(2), strict=True))
        for name in names:
            option = "metrics-listen" if name == NAME_SERVER else "metrics.listen"
            cluster.local.own_settings = {name: {option: f"127.0.0.1:{ports[name]}"}}
            cluster.local.prepare()
            said = held(tmp_path / "tls" / name)
            wanted = Wanted(name, said.names, said.hosts)
            Authority.load(tmp_path / "tls").issue(tmp_path / "tls", wanted, 5)
            cluster.local.start(name)

            async def told(name: str = name) -> bool:
                return "a certificate ends soon" in cluster.local.log_text(name)

            await eventually(told, f"the log of {name}")

            async def shown(name: str = name) -> bool:
                _, text = await ask(ports[name], "/metrics")
                return 'file="tls.crt"' in text and "dledger_tls_certificate_expiry" in text

            await eventually(shown, f"the metric of {name}")


def test_without_its_files_a_member_serves_this_machine_alone(tmp_path: Path) -> None:
    """Or whoever reaches it, when somebody wrote so: its log and its status say that."""
    asyncio.run(a_member_without_tls(tmp_path))


async def a_member_without_tls(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, members=1) as cluster:
        leader = await cluster.leader()
        assert (await leader.status()).security == "off"
        assert "security is off" not in cluster.local.log_text("n1")
        cluster.local.stop("n1")
        config = tmp_path / "n1" / "config.toml"
        written = config.read_text()
        config.write_text(written.replace('listen = "127.0.0.1', 'listen = "0.0.0.0', 1))
        cluster.local.start("n1")
        process = cluster.local.processes["n1"]
        assert await asyncio.to_thread(process.wait, 30.0) == Exit.BAD_INPUT
        said = " ".join(cluster.local.log_text("n1").split())
        assert 'may reach it; set tls.folder, or write security = "off"' in said
        config.write_text('security = "off"\n' + written)
        cluster.local.start("n1")
        await cluster.leader()
        assert "security is off" in cluster.local.log_text("n1")


def test_the_error_of_a_wrong_file_names_it(tmp_path: Path) -> None:
    """What cannot be used is refused before anything connects."""
    with pytest.raises(ValueError, match=r"ca\.crt"):
        TlsFolder(str(tmp_path))
