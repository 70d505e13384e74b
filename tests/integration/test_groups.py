"""Several groups: topics decided by the control group reach the others; calls find their group."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from dledger_broker.config.model import GroupConfig, MemberConfig
from dledger_broker.config.sections import RaftConfig, StateConfig, StorageConfig
from dledger_broker.process.member import Member as Process
from dledger_broker.process.platform import of_this_machine
from dledger_proto.errors import Code
from dledger_proto.limits import MIB
from dledger_proto.network.ports import free_ports
from dledger_proto.rpc.status import from_rpc_error
from dledger_proto.v1 import broker_pb2 as pb
from tests.integration.cluster import Member, batch_of, eventually

GROUPS = ("red", "blue")
NAMES = ("n1", "n2", "n3")


def config(folder: Path, name: str, ports: dict[str, int]) -> MemberConfig:
    addresses = {member: f"127.0.0.1:{port}" for member, port in ports.items()}
    return MemberConfig(
        cluster="c",
        member=name,
        listen=addresses[name],
        folder=folder / name,
        groups=tuple(GroupConfig(name=group, members=addresses) for group in GROUPS),
        storage=StorageConfig(
            segment_size_bytes=64 * MIB, disk_reserve_bytes=16 * MIB, disk_low_water_bytes=16 * MIB
        ),
        raft=RaftConfig(inflight_bytes_max=8 * MIB, uncommitted_bytes_max=16 * MIB),
        state=StateConfig(map_size_bytes=256 * MIB),
    )


@asynccontextmanager
async def two_groups(folder: Path) -> AsyncIterator[dict[str, dict[str, Member]]]:
    """Yield the members by group and name: three processes' worth, each a member of both groups."""
    ports = dict(zip(NAMES, free_ports(len(NAMES), width=2), strict=True))
    running = [Process(config(folder, name, ports), of_this_machine()) for name in NAMES]
    tasks: list[asyncio.Task[int]] = []
    channels = {
        name: grpc.aio.insecure_channel(f"127.0.0.1:{port}") for name, port in ports.items()
    }
    try:
        for process in running:
            await process.start()
            tasks.append(asyncio.create_task(process.run()))
        yield {
            group: {
                name: Member(name, f"127.0.0.1:{ports[name]}", channels[name], group)
                for name in NAMES
            }
            for group in GROUPS
        }
    finally:
        for channel in channels.values():
            await channel.close(None)
        for process in running:
            process.request_stop()
        assert await asyncio.gather(*tasks) == [0] * len(tasks)


def test_a_topic_reaches_every_group(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_groups(tmp_path) as groups:
            red, blue = groups["red"]["n1"], groups["blue"]["n2"]

            async def created() -> pb.CreateTopicReply | None:
                reply = await blue.admin.CreateTopic(
                    pb.CreateTopicRequest(name="orders", write_queues_per_group=2),
                    timeout=5,
                    metadata=blue.metadata,
                )
                return reply if not reply.missing_groups else None

            topic = (await eventually(created, "the topic in both groups")).topic
            layout = {part.group: part.queues for part in topic.layout}
            assert layout == {"red": 2, "blue": 2}
            owners = [part.group for part in topic.layout for _ in range(part.queues)]
            for queue, owner in enumerate(owners):
                home, other = (red, blue) if owner == "red" else (blue, red)
                batch = batch_of(topic.id, [b"x"], queue)
                row = await home.append_one(batch)
                assert (row.code, row.base_offset) == (Code.OK, 0)
                assert (await other.append_one(batch)).code is Code.WRONG_GROUP
            for member in (red, blue):
                reply = await member.admin.DescribeTopic(
                    pb.DescribeTopicRequest(name="orders"), timeout=5, metadata=member.metadata
                )
                assert reply.topic == topic

    asyncio.run(run())


def test_nobody_makes_a_group_refuse_what_is_really_decided(tmp_path: Path) -> None:
    """A call names a decision far ahead: the group asks the control group, and finds none."""

    async def run() -> None:
        async with two_groups(tmp_path) as groups:
            red, blue = groups["red"]["n1"], groups["blue"]["n2"]

            async def created() -> pb.CreateTopicReply | None:
                reply = await red.admin.CreateTopic(
                    pb.CreateTopicRequest(name="orders"), timeout=5, metadata=red.metadata
                )
                return reply if not reply.missing_groups else None

            topic = (await eventually(created, "the topic in both groups")).topic
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await blue.admin.PullTopics(
                    pb.PullTopicsRequest(topic_id=topic.id, control_index=1 << 40),
                    timeout=5,
                    metadata=blue.metadata,
                )
            refusal = from_rpc_error(raised.value)
            assert refusal.code is Code.INVALID_ARGUMENT
            assert "red has not decided so" in refusal.detail
            update = pb.UpdateTopicRequest(name="orders", permission=4)
            changed = await red.admin.UpdateTopic(update, timeout=5, metadata=red.metadata)

            async def taken() -> bool:
                reply = await blue.admin.DescribeTopic(
                    pb.DescribeTopicRequest(name="orders"), timeout=5, metadata=blue.metadata
                )
                return reply.topic == changed.topic

            await eventually(taken, "the other group takes the change over")
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await red.admin.PullTopics(
                    pb.PullTopicsRequest(topic_id=topic.id), timeout=5, metadata=red.metadata
                )
            assert from_rpc_error(raised.value).code is Code.WRONG_GROUP

    asyncio.run(run())


def test_a_closed_queue_is_read_where_it_is_and_opened_there_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_groups(tmp_path) as groups:
            red = groups["red"]["n1"]  # queues 2 and 3: layouts are in the order of the names

            async def changed(**fields: object) -> pb.Topic:
                """Change the topic; once nobody misses the change, return it."""

                async def taken() -> pb.TopicReply | None:
                    request = pb.UpdateTopicRequest(name="orders", **fields)  # type: ignore[arg-type]
                    reply = await red.admin.UpdateTopic(request, timeout=5, metadata=red.metadata)
                    return reply if not reply.missing_groups else None

                return (await eventually(taken, "the change in both groups")).topic

            def layout(blue_queues: int, red_queues: int) -> list[pb.LayoutPart]:
                parts = (("blue", blue_queues), ("red", red_queues))
                return [pb.LayoutPart(group=name, queues=n) for name, n in parts if n]

            async def created() -> pb.CreateTopicReply | None:
                request = pb.CreateTopicRequest(name="orders", write_queues_per_group=2)
                reply = await red.admin.CreateTopic(request, timeout=5, metadata=red.metadata)
                return reply if not reply.missing_groups else None

            topic = (await eventually(created, "the topic in both groups")).topic
            assert (await red.append_one(batch_of(topic.id, [b"x"], 2))).base_offset == 0
            closed = await changed(layout=layout(2, 0))
            assert (closed.write_queues, closed.read_queues) == (2, 4)
            row = await red.append_one(batch_of(topic.id, [b"y"], 2))
            assert row.code is Code.QUEUE_NOT_FOUND
            moved = pb.UpdateTopicRequest(name="orders", layout=layout(3, 0))
            with pytest.raises(grpc.RpcError, match="moves queue 2 from group red to blue"):
                await red.admin.UpdateTopic(moved, timeout=5, metadata=red.metadata)
            hidden = await changed(read_queues=2)
            assert (hidden.write_queues, hidden.read_queues) == (2, 2)
            request = pb.QueueOffsetsRequest(
                queues=[pb.QueueRef(topic="orders", queue=2)], linearizable=True
            )
            rows = await red.broker.QueueOffsets(request, timeout=5, metadata=red.metadata)
            assert [(each.minimum, each.maximum) for each in rows.rows] == [(0, 1)]
            opened = await changed(layout=layout(2, 2))
            assert (opened.write_queues, opened.layout) == (4, topic.layout)
            assert (await red.append_one(batch_of(topic.id, [b"z"], 2))).base_offset == 1

    asyncio.run(run())


def test_a_call_must_say_which_group(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_groups(tmp_path) as groups:
            member = groups["red"]["n1"]
            for metadata, code in (
                ((), Code.INVALID_ARGUMENT),
                ((("dledger-group", "green"),), Code.WRONG_GROUP),
            ):
                with pytest.raises(grpc.RpcError) as caught:
                    await member.admin.Status(pb.StatusRequest(), timeout=5, metadata=metadata)
                assert from_rpc_error(caught.value).code is code
            status = await member.status()
            assert (status.group, status.control_group) == ("red", True)

    asyncio.run(run())
