"""Real members on loopback ports in a temporary folder, and the wire's smallest clients.

Owns: waiting for conditions with a deadline, and raw calls by `dledger_proto` alone, so that what
is tested is the member and not our client. The processes are `LocalCluster`'s.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeVar

import grpc
import grpc.aio

from dledger_broker.local.cluster import LocalCluster, Setting
from dledger_client import ConnectionConfig
from dledger_proto.batch.codec import BatchView, ProducerStamp, Record, encode_batch
from dledger_proto.errors import DledgerError
from dledger_proto.network.tls import TlsFolder
from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import open_channel
from dledger_proto.rpc.frames import (
    AnswerRow,
    FetchFrame,
    encode_append,
    parse_answers,
    parse_fetches,
)
from dledger_proto.rpc.status import from_rpc_error
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import broker_pb2_grpc

DEADLINE_SECONDS = 20.0
T = TypeVar("T")


async def eventually(
    condition: Callable[[], Awaitable[T | None]], what: str, seconds: float = DEADLINE_SECONDS
) -> T:
    """Return the first true result of `condition`; AssertionError naming `what` at the deadline.

    Calls that fail because a member is away count as not yet.
    """
    until = time.monotonic() + seconds
    last = ""
    while time.monotonic() < until:
        try:
            found = await condition()
            if found:
                return found
        except (grpc.RpcError, DledgerError) as error:
            last = f": {error}"
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}{last}")


@dataclass
class Member:
    """One member's address, with the stubs of its services."""

    name: str
    address: str
    channel: grpc.aio.Channel
    group: str

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call says."""
        return (("dledger-group", self.group),)

    @property
    def broker(self) -> "broker_pb2_grpc.BrokerAsyncStub":
        """The message service."""
        stub: broker_pb2_grpc.BrokerAsyncStub = broker_pb2_grpc.BrokerStub(self.channel)
        return stub

    @property
    def admin(self) -> "broker_pb2_grpc.AdminAsyncStub":
        """The administration service."""
        stub: broker_pb2_grpc.AdminAsyncStub = broker_pb2_grpc.AdminStub(self.channel)
        return stub

    async def status(self) -> pb.StatusReply:
        """Return what the member says of itself."""
        return await self.admin.Status(pb.StatusRequest(), timeout=2, metadata=self.metadata)

    async def append_one(self, batch: bytes, timeout_ms: int = 5_000) -> AnswerRow:
        """Append one batch by the unary call."""
        frame = encode_append([batch], 1, timeout_ms)
        answer = await raw.raw_unary(self.channel, raw.APPEND_ONE)(
            frame, timeout=timeout_ms / 1000 + 2, metadata=self.metadata
        )
        return parse_answers(answer)[0]

    async def fetch(self, request: pb.FetchRequest) -> AsyncIterator[FetchFrame]:
        """Yield the frames of a fetch stream."""
        call = raw.raw_read(self.channel, raw.FETCH)(
            request.SerializeToString(), metadata=self.metadata
        )
        try:
            async for message in call:
                for frame in parse_fetches(message):
                    yield frame
        finally:
            call.cancel()

    async def read_all(self, topic: str, queue: int, wanted: int) -> list[bytes]:
        """Return the first `wanted` bodies of a queue."""
        request = pb.FetchRequest(wait_ms=5_000)
        request.assignments.add(queue=pb.QueueRef(topic=topic, queue=queue), offset=0)
        bodies: list[bytes] = []
        async with asyncio.timeout(DEADLINE_SECONDS):
            async for frame in self.fetch(request):
                assert frame.code == 0, frame.detail
                for row, batch in zip(frame.rows, frame.batches, strict=True):
                    assert row.base_offset == len(bodies)
                    view = BatchView(batch)
                    bodies += [bytes(view.body(i)) for i in range(row.record_count)]
                if len(bodies) >= wanted:
                    return bodies
        raise AssertionError("the stream ended")

    async def log_entries(self) -> tuple[list[tuple[int, int]], int, bytes]:
        """Return (term, crc) of every entry from the first, the applied index and its digest."""
        rows: list[tuple[int, int]] = []
        applied, digest = 0, b""
        call = self.admin.LogEntries(pb.LogEntriesRequest(from_index=1), metadata=self.metadata)
        async for reply in call:
            rows += zip(reply.terms, reply.crcs, strict=True)
            applied, digest = reply.applied_index, reply.digest
        return rows, applied, digest


class AppendClient:
    """One append stream; `send` gives numbers, `answers` holds the rows as they come."""

    def __init__(self, member: Member, *extra: tuple[str, str]) -> None:
        self.answers: list[AnswerRow] = []
        self.frames = 0
        self.failure: DledgerError | None = None
        self._call = raw.raw_stream(member.channel, raw.APPEND)(metadata=(*member.metadata, *extra))
        self._number = 1
        self._news = asyncio.Event()
        self._reader = asyncio.get_running_loop().create_task(self._read())

    async def send(self, *batches: bytes, timeout_ms: int = 10_000, one_way: bool = False) -> int:
        """Write one frame; returns the number of its last batch."""
        frame = encode_append(batches, self._number, timeout_ms, one_way)
        self._number += len(batches)
        await self._call.write(frame)
        return self._number - 1

    async def wait(self, count: int) -> list[AnswerRow]:
        """Return the answers once there are `count`."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(self.answers) < count and self.failure is None:
                self._news.clear()
                await self._news.wait()
        if self.failure is not None:
            raise self.failure
        return self.answers

    async def close(self) -> None:
        """Half-close, and wait for the member to end the stream."""
        await self._call.done_writing()
        await self._reader

    def cancel(self) -> None:
        """End at once."""
        self._call.cancel()
        self._reader.cancel()

    async def _read(self) -> None:
        try:
            async for frame in self._call:
                self.frames += 1
                self.answers += parse_answers(frame)
                self._news.set()
        except grpc.aio.AioRpcError as error:
            self.failure = from_rpc_error(error)
        self._news.set()


@dataclass
class Cluster:
    """A running cluster."""

    local: LocalCluster
    by_name: dict[str, Member] = field(default_factory=dict)

    @property
    def members(self) -> list[Member]:
        """All members, in the order of their names."""
        return [self.by_name[name] for name in self.local.member_names]

    @property
    def connection(self) -> ConnectionConfig:
        """How the public clients reach the cluster."""
        return ConnectionConfig(tls_folder=self.local.tls_folder)

    def running(self) -> list[Member]:
        """The members whose process runs."""
        return [member for member in self.members if self.local.is_running(member.name)]

    async def leader(self, *, other_than: str = "") -> Member:
        """Wait for a leader that knows itself as one."""

        async def led() -> Member | None:
            for member in self.running():
                if member.name == other_than:
                    continue
                try:
                    if (await member.status()).role == "leader":
                        return member
                except grpc.RpcError:
                    continue
            return None

        return await eventually(led, "a leader")

    async def followers(self) -> list[Member]:
        """Return the running members that do not lead."""
        leader = await self.leader()
        return [member for member in self.running() if member.name != leader.name]

    async def settled(self) -> int:
        """Wait until all running members have applied the same index; returns it."""

        async def same() -> int | None:
            statuses = [await member.status() for member in self.running()]
            indexes = {status.applied_index for status in statuses}
            last = {status.last_index for status in statuses}
            return indexes.pop() if len(indexes) == 1 and indexes == last else None

        return await eventually(same, "equal applied indexes")

    async def assert_identical(self) -> None:
        """Every member holds the same entries, and the same digest at the same applied index."""
        await self.settled()
        found = [await member.log_entries() for member in self.running()]
        for member, entries in zip(self.running(), found, strict=True):
            assert entries == found[0], f"{member.name} differs from {self.running()[0].name}"

    async def create_topic(self, name: str, queues: int = 4) -> pb.Topic:
        """Create a topic at any member."""

        async def created() -> pb.Topic | None:
            reply = await self.running()[0].admin.CreateTopic(
                pb.CreateTopicRequest(name=name, write_queues_per_group=queues), timeout=10
            )
            return reply.topic

        return await eventually(created, f"topic {name}")


def batch_of(
    topic_id: bytes, bodies: Sequence[bytes], queue: int = 0, stamp: ProducerStamp | None = None
) -> bytes:
    """Return a plain batch."""
    return encode_batch(
        [Record(body) for body in bodies],
        topic_id=topic_id,
        queue=queue,
        stamp=stamp,
        base_number=0,
        base_time_ms=1,
    )


def producer_id(seed: int) -> bytes:
    """Return a producer id."""
    return Random(seed).randbytes(16)


@asynccontextmanager
async def running_cluster(
    folder: Path,
    members: int = 3,
    start: bool = True,
    cluster_name: str = "local",
    secure: bool = False,
    **settings: Setting,
) -> AsyncIterator[Cluster]:
    """Run a cluster for the length of a block. Settings: `storage__flush="async"`."""
    local = LocalCluster(
        folder,
        cluster_name,
        members=members,
        settings={key.replace("__", "."): value for key, value in settings.items()},
        secure=secure,
        die_with_owner=True,
    )
    local.prepare()
    keys = TlsFolder(local.tls_folder).current() if secure else None
    cluster = Cluster(local)
    options = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200)]
    for name in local.member_names:
        address = local.address(name)
        channel = open_channel(address, [*raw.MESSAGE_SIZE_OPTIONS, *options], keys)
        cluster.by_name[name] = Member(name, address, channel, local.group)
    try:
        if start:
            local.start_all()
        yield cluster
    finally:
        for member in cluster.members:
            await member.channel.close(None)
        local.stop_all()
