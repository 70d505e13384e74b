"""Real processes show themselves: every series, health, and nothing stale after a change."""

import asyncio
import socket
from pathlib import Path

import grpc
import grpc.aio
import pytest

from dledger_broker.local.cluster import NAME_SERVER
from dledger_broker.metrics import catalogue
from dledger_client import AsyncAdmin, AsyncProducer
from dledger_monitoring.health import SERVICE
from dledger_monitoring.series import Kind, Series
from dledger_namesrv import metrics as of_name_server
from dledger_proto.exit_codes import Exit
from dledger_proto.rpc import raw
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1.health_pb2 import HealthAnswer, HealthQuestion
from tests.http_page import ask
from tests.integration.cluster import (
    Cluster,
    Member,
    batch_of,
    eventually,
    running_cluster,
)
from tests.integration.watched import Scraped, Watched, watched_cluster

GROUP = "group-1"


def exposed(series: Series) -> str:
    """Return a name that one sample of the series has."""
    return f"{series.name}_count" if series.kind is Kind.HISTOGRAM else series.name


async def commit(member: Member, name: str, topic: str, offset: int) -> None:
    offsets = [pb.GroupOffset(queue=pb.QueueRef(topic=topic, queue=0), offset=offset)]
    request = pb.CommitOffsetsRequest(consumer_group=name, offsets=offsets)
    await member.broker.CommitOffsets(request, timeout=5, metadata=member.metadata)


async def used(cluster: Cluster, leader: Member) -> pb.Topic:
    """Use everything that has a series: a topic, readers, a consumer group, a refusal."""
    topic = await cluster.create_topic("orders")
    assert (await leader.append_one(batch_of(topic.id, [b"x" * 100] * 10))).code == 0
    assert (await leader.append_one(batch_of(b"?" * 16, [b"x"]))).code != 0
    assert len(await leader.read_all("orders", 0, 10)) == 10
    await commit(leader, "readers", "orders", 4)
    async with AsyncAdmin(leader.address) as admin:
        await admin.create_consumer_group("billing")
    return topic


def test_every_series_is_there_with_what_happened(tmp_path: Path) -> None:
    async def run() -> None:
        async with watched_cluster(tmp_path) as watched:
            leader = await watched.cluster.leader()
            await used(watched.cluster, leader)
            scraped = await watched.scrape(leader.name)
            missing = {exposed(each) for each in catalogue.ALL} - scraped.names
            assert not missing, f"no sample of {missing}"
            declared = {each.name.removesuffix("_total") for each in catalogue.ALL}
            others = {name for name in scraped.families if not name.startswith("process_")}
            assert others == declared
            check_values(scraped, leader.name)
            follower = (await watched.cluster.followers())[0]
            behind = await watched.scrape(follower.name)
            assert behind.value("dledger_role", role="leader") == 0
            assert behind.value("dledger_has_leader") == 1
            for series in (catalogue.LAG, catalogue.PEER_MATCH, catalogue.DEAD_LETTERS):
                assert series.name not in behind.names, "of a leader alone"

    asyncio.run(run())


def check_values(scraped: Scraped, leader: str) -> None:
    who = {"cluster": "local", "node_type": "broker", "node_id": leader}
    of_topic = {**who, "broker_group": GROUP, "topic": "orders", "is_system": "false"}
    lag = {**who, "consumer_group": "readers", "topic": "orders", "is_retry": "false"}
    assert scraped.value("rocketmq_messages_in_total", **of_topic, message_type="normal") == 10
    assert scraped.value("rocketmq_messages_out_total", **of_topic) == 10
    assert scraped.value("dledger_messages_in_total", **who) == 10
    assert scraped.value("rocketmq_consumer_lag_messages", **lag) == 6
    assert scraped.value("rocketmq_consumer_ready_messages", **lag) == 6
    assert scraped.value("rocketmq_topic_number") == 1
    assert scraped.value("rocketmq_consumer_group_number") == 1
    assert scraped.value("rocketmq_broker_permission") == 6
    assert scraped.value("dledger_role", role="leader") == 1
    assert scraped.value("dledger_ready") == 1
    assert scraped.value("dledger_leader_changes_total") == 1
    assert scraped.value("dledger_link_up", peer="n1" if leader != "n1" else "n2") == 1
    assert scraped.value("dledger_append_seconds_count") == 1
    refused = [each for each in scraped.samples if each.name == "dledger_refused_total"]
    assert [(each.labels["code"], each.value) for each in refused] == [("TOPIC_NOT_FOUND", 1)]


def test_nothing_is_stale_after_a_new_leader_and_a_deleted_topic(tmp_path: Path) -> None:
    async def run() -> None:
        async with watched_cluster(tmp_path) as watched:
            old = await watched.cluster.leader()
            await used(watched.cluster, old)
            target = (await watched.cluster.followers())[0]
            await old.admin.TransferLeadership(
                pb.TransferLeadershipRequest(target=target.name), timeout=10, metadata=old.metadata
            )
            new = await watched.cluster.leader(other_than=old.name)

            async def moved() -> bool:
                before, now = await watched.scrape(old.name), await watched.scrape(new.name)
                lag = "rocketmq_consumer_lag_messages"
                return lag not in before.names and now.value(lag, consumer_group="readers") == 6

            await eventually(moved, "the lag is told by the new leader alone")
            async with AsyncAdmin(new.address) as admin:
                await admin.delete_topic("orders")

            async def gone() -> bool:
                told = [await watched.scrape(name) for name in (old.name, new.name)]
                topics = {each.labels.get("topic") for scraped in told for each in scraped.samples}
                return "orders" not in topics

            await eventually(gone, "no series names the topic")

    asyncio.run(run())


def test_health_over_http_and_grpc(tmp_path: Path) -> None:
    """A member without a majority is alive and not ready; with it, both."""

    async def run() -> None:
        async with watched_cluster(tmp_path) as watched:
            cluster = watched.cluster
            leader = await cluster.leader()
            followers = await cluster.followers()
            await ready(watched, leader)
            for follower in followers:
                cluster.local.kill(follower.name)

            async def alone() -> bool:
                status, why = await ask(watched.ports[leader.name], "/readyz")
                return (status == 503 and "no leader" in why) or "candidate" in why

            await eventually(alone, "it is not ready")
            assert await ask(watched.ports[leader.name], "/healthz") == (200, "ok\n")
            assert await health(leader.channel) == HealthAnswer.NOT_SERVING
            cluster.local.start(followers[0].name)
            await ready(watched, leader)
            assert await health(leader.channel) == HealthAnswer.SERVING
            assert await health(leader.channel, "dledger.v1.Broker") == HealthAnswer.SERVING

    asyncio.run(run())


async def ready(watched: Watched, member: Member) -> None:
    async def looks() -> bool:
        return await ask(watched.ports[member.name], "/readyz") == (200, "ready\n")

    await eventually(looks, f"{member.name} is ready")


async def health(channel: grpc.aio.Channel, service: str = "") -> HealthAnswer.Status.ValueType:
    request = HealthQuestion(service=service).SerializeToString()
    answer = await raw.raw_unary(channel, f"/{SERVICE}/Check")(request, timeout=5)
    return HealthAnswer.FromString(answer).status


def test_a_name_server_shows_what_it_knows(tmp_path: Path) -> None:
    async def run() -> None:
        async with watched_cluster(tmp_path, 1) as watched:
            leader = await watched.cluster.leader()
            await watched.cluster.create_topic("orders")

            async def told() -> Scraped | None:
                scraped = await watched.scrape(NAME_SERVER)
                return scraped if scraped.value("dledger_nameserver_topics") == 1 else None

            scraped = await eventually(told, "the name server knows the topic")
            assert {each.name for each in of_name_server.ALL} <= scraped.names
            assert scraped.value("dledger_nameserver_groups") == 1
            assert scraped.value("dledger_nameserver_groups_without_leader") == 0
            assert scraped.value("dledger_nameserver_members", alive="true") == 1
            assert await ask(watched.ports[NAME_SERVER], "/readyz") == (200, "ready\n")
            async with grpc.aio.insecure_channel(watched.cluster.local.name_server) as channel:
                assert await health(channel) == HealthAnswer.SERVING
            watched.cluster.local.kill(leader.name)

            async def alone() -> bool:
                seen = await watched.scrape(NAME_SERVER)
                return seen.value("dledger_nameserver_members", alive="true") == 0

            await eventually(alone, "the name server notices")

    asyncio.run(run())


def test_series_are_bounded_and_the_rest_is_counted(tmp_path: Path) -> None:
    async def run() -> None:
        async with watched_cluster(tmp_path, 1, metrics__series_max=2) as watched:
            leader = await watched.cluster.leader()
            for number in range(5):
                topic = await watched.cluster.create_topic(f"topic-{number}")
                assert (await leader.append_one(batch_of(topic.id, [b"x"]))).code == 0
                await commit(leader, "readers", topic.name, 0)
            scraped = await watched.scrape(leader.name)
            names = [
                each.labels["topic"]
                for each in scraped.samples
                if each.name == "rocketmq_messages_in_total"
            ]
            assert names == ["topic-0", "topic-1"]
            assert scraped.value("dledger_messages_in_total") == 5
            assert scraped.value("dledger_metrics_left_out", what="topics") == 3
            assert scraped.value("dledger_metrics_left_out", what="lags") == 3

    asyncio.run(run())


def test_without_a_setting_nothing_listens(tmp_path: Path) -> None:
    """And a member whose port is taken says so and ends."""

    async def run() -> None:
        async with watched_cluster(tmp_path, 1) as watched:
            leader = await watched.cluster.leader()
            local, port = watched.cluster.local, watched.ports[leader.name]
            local.stop(leader.name)
            local.own_settings = {}
            local.prepare()
            local.start(leader.name)
            await watched.cluster.leader()
            with pytest.raises(ConnectionRefusedError):
                await ask(port, "/healthz")

    asyncio.run(run())


def test_a_member_whose_metrics_port_is_taken_says_so_and_ends(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_cluster(tmp_path, 1, start=False) as cluster:
            (name,) = cluster.local.member_names
            with socket.create_server(("127.0.0.1", 0)) as other:
                address = f"127.0.0.1:{other.getsockname()[1]}"
                cluster.local.own_settings = {name: {"metrics.listen": address}}
                cluster.local.prepare()
                cluster.local.start(name)

                async def ended() -> bool:
                    return (name, Exit.PORT_TAKEN) in cluster.local.ended()

                await eventually(ended, "the member ends")
            assert f"cannot listen on {address}" in cluster.local.log_text(name)

    asyncio.run(run())


def test_a_scrape_goes_on_under_load(tmp_path: Path) -> None:
    """Counters of scrapes during a stream of sends only grow, and end with what was sent."""

    async def run() -> None:
        async with watched_cluster(tmp_path, 1) as watched:
            leader = await watched.cluster.leader()
            await watched.cluster.create_topic("orders")
            seen: list[float] = []
            async with AsyncProducer(leader.address) as producer:
                for _ in range(20):
                    await asyncio.gather(*(producer.send("orders", b"x") for _ in range(10)))
                    scraped = await watched.scrape(leader.name)
                    seen.append(scraped.value("dledger_messages_in_total") or 0)
            assert seen == sorted(seen)
            assert seen[-1] == 200

    asyncio.run(run())
