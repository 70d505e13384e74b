"""What a network full of strangers does to a member: others are served as before."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import grpc
import grpc.aio
import pytest

from dledger.raft.links.frame_stream import SIZE
from dledger_proto.errors import Code
from dledger_proto.rpc import raw
from dledger_proto.v1 import broker_pb2 as pb
from tests.integration.cluster import AppendClient, Member, batch_of, running_cluster
from tests.link_caller import Caller

CONNECTIONS = 1_000
MEMORY_GROWTH_MAX = 160 << 20


def rss_anon(pid: int) -> int:
    """Return the process's anonymous memory in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


async def serves(member: Member, topic: pb.Topic) -> None:
    async with asyncio.timeout(10):
        row = await member.append_one(batch_of(topic.id, [b"still here"]))
        assert row.code is Code.OK


def test_garbage_and_idle_connections(tmp_path: Path) -> None:
    """Garbage on the port, and a thousand connections that say nothing."""

    async def run() -> None:
        async with running_cluster(tmp_path, members=1) as cluster:
            leader = await cluster.leader()
            topic = await cluster.create_topic("t")
            host, port = leader.address.split(":")
            before = cluster.local.log_text("n1").count("\n")
            for _ in range(20):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(os.urandom(4_096))
                writer.close()
            idle = [await asyncio.open_connection(host, int(port)) for _ in range(CONNECTIONS)]
            await serves(leader, topic)
            assert rss_anon(cluster.local.pid("n1")) < 256 << 20
            assert cluster.local.log_text("n1").count("\n") - before <= 25
            for _, writer in idle:
                writer.close()

    asyncio.run(run())


def test_garbage_in_streams_and_compressed_calls(tmp_path: Path) -> None:
    """What gRPC itself lets through: two lines for hundreds of streams, and no bomb is unpacked."""

    async def garbage(member: Member, method: str, metadata: raw.Metadata) -> None:
        call = raw.raw_stream(member.channel, method)(metadata=(*member.metadata, *metadata))
        with suppress(grpc.aio.AioRpcError):
            await call.write(os.urandom(200))
            while await raw.read_frame(call) is not None:
                pass

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            topic = await cluster.create_topic("t")
            peer = (await cluster.followers())[0].name
            forged = (
                ("dledger-cluster", cluster.local.cluster), ("dledger-member", peer),
                ("dledger-group", cluster.local.group),
                ("dledger-to", leader.name), ("dledger-incarnation", "00"),
            )  # fmt: skip
            before = cluster.local.log_text(leader.name)
            for _ in range(100):
                await garbage(leader, raw.APPEND, ())
                caller = await Caller.dial(cluster.local.link_ports[leader.name])
                assert await caller.greet(forged) == ""
                caller.send(SIZE.pack(200) + os.urandom(200))
                assert await caller.is_closed()
                caller.close()
            await serves(leader, topic)
            news = cluster.local.log_text(leader.name).removeprefix(before)
            assert news.count("append stream ended") <= 2
            assert news.count("link garbled") == 1
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await leader.broker.LookupMessage(
                    pb.LookupMessageRequest(message_id=bytes(8 << 20)),
                    metadata=leader.metadata, compression=grpc.Compression.Gzip,
                )  # fmt: skip
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
            assert "Compression" not in cluster.local.log_text(leader.name)
            await serves(leader, topic)

    asyncio.run(run())


def test_readers_that_stop_reading(tmp_path: Path) -> None:
    """Their frames are bounded together; appends, other readers and administration go on."""

    async def run() -> None:
        async with running_cluster(tmp_path, members=1) as cluster:
            leader = await cluster.leader()
            topic = await cluster.create_topic("t")
            client = AppendClient(leader)
            body = os.urandom(256 << 10)
            for _ in range(128):
                await client.send(batch_of(topic.id, [body]))
            await client.wait(128)
            before = rss_anon(cluster.local.pid("n1"))
            request = pb.FetchRequest(max_bytes=8 << 20, wait_ms=1_000)
            request.assignments.add(queue=pb.QueueRef(topic="t", queue=0), offset=0)
            stalled: list[raw.RawReadCall] = []
            channels: list[grpc.aio.Channel] = []
            for _ in range(60):
                channel = grpc.aio.insecure_channel(
                    leader.address,
                    options=[*raw.MESSAGE_SIZE_OPTIONS, ("grpc.use_local_subchannel_pool", 1)],
                )
                channels.append(channel)
                call = raw.raw_read(channel, raw.FETCH)(
                    request.SerializeToString(), metadata=leader.metadata
                )
                await call.read()  # one frame, then nothing more is taken
                stalled.append(call)
            await serves(leader, topic)
            assert len(await leader.read_all("t", 0, 129)) == 129
            assert rss_anon(cluster.local.pid("n1")) - before < MEMORY_GROWTH_MAX
            for channel in channels:
                await channel.close(None)

    asyncio.run(run())
