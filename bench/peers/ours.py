"""dledger, through its public clients. Owns nothing but calls."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc.aio

from bench.peers.figures import OURS
from bench.peers.measuring import Measured, topic_name
from bench.peers.peer import BODY_SIZE, Done, Heard, Load, Purpose
from bench.setup.blocking import sending as blocking_producer
from bench.setup.cluster import NotReady, Running, running, within
from dledger_client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncSendFuture,
    ConsumerConfig,
    StartAt,
)
from dledger_client.errors import BufferFull, ClientError
from dledger_proto import __version__
from dledger_proto.errors import DledgerError

START_SECONDS = 1.0
"""About the time that a process needs until its first message is stored."""
READ_SECONDS_MAX = 120.0


class OurSender:
    """An `AsyncProducer` as `peer.Sender`."""

    def __init__(self, producer: AsyncProducer) -> None:
        self._producer = producer

    def submit(self, topic: str, body: bytes, done: Done) -> bool:
        def heard(future: AsyncSendFuture) -> None:
            try:
                future.result()
            except ClientError:
                done(False)
            else:
                done(True)

        try:
            self._producer.submit(topic, body, on_done=heard)
        except BufferFull:
            return False
        return True

    async def room(self) -> None:
        await self._producer.wait_for_room()

    async def breathe(self) -> None:
        await asyncio.sleep(0)

    async def send(self, topic: str, body: bytes) -> bool:
        try:
            await self._producer.send(topic, body)
        except ClientError:
            return False
        return True


class Ours(Measured):
    """A group of three members and a name server."""

    name = OURS
    fsync = "a majority has synced (fdatasync)"
    note = ""
    errors = (DledgerError, ClientError, grpc.aio.AioRpcError)

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._running: Running | None = None

    def missing(self) -> str:
        return ""

    def lacks(self, load: Load) -> str:  # noqa: ARG002 - it takes every load
        return ""

    def version(self) -> str:
        return __version__

    def install(self) -> None:
        """Nothing: this checkout is what is measured."""

    async def start(self, folder: Path) -> None:
        self._running = await self._stack.enter_async_context(running(folder))

    async def stop(self) -> None:
        self._running = None
        await self._stack.aclose()

    @property
    def _here(self) -> Running:
        assert self._running is not None, "started"
        return self._running

    @property
    def _name_server(self) -> str:
        return self._here.cluster.name_server

    async def create(self, topics: Sequence[str], queues: int) -> None:
        async with AsyncAdmin(self._name_server) as admin:
            for topic in topics:
                await admin.create_topic(topic, queues_per_group=queues)
        await self._here.caught_up()

    @asynccontextmanager
    async def sending(self, purpose: Purpose = "rate") -> AsyncGenerator[OurSender]:  # noqa: ARG002
        async with AsyncProducer(self._name_server) as producer:
            yield OurSender(producer)

    @asynccontextmanager
    async def reading(self, topic: str, heard: Heard) -> AsyncGenerator[None]:
        config = ConsumerConfig(start_at=StartAt.LAST)
        async with AsyncConsumer(self._name_server, config) as consumer:
            await consumer.assign(topic, StartAt.LAST)
            await consumer.poll(timeout_ms=200)

            async def read() -> None:
                while True:
                    for record in await consumer.poll():
                        heard(record.body)

            task = asyncio.create_task(read())
            try:
                yield
            finally:
                task.cancel()
                await asyncio.wait([task])

    async def read_back(self, topic: str, count: int) -> float:
        config = ConsumerConfig(start_at=StartAt.FIRST)
        async with (
            within(READ_SECONDS_MAX, "a backlog"),
            AsyncConsumer(self._name_server, config) as consumer,
        ):
            await consumer.assign(topic, StartAt.FIRST)
            got, size, start = 0, 0, time.perf_counter()
            while got < count:
                for record in await consumer.poll():
                    size += len(record.body)
                    got += 1
            taken = time.perf_counter() - start
        if (got, size) != (count, count * BODY_SIZE):
            raise NotReady(f"{got} messages of {size} bytes were read, {count} were stored")
        return taken

    async def lone_send(self, seconds: float) -> dict[str, list[float]]:
        topic = topic_name("lone")
        await self.create([topic], 1)
        body = bytes(BODY_SIZE)
        taken: list[float] = []
        async with AsyncProducer(self._name_server) as producer:
            end = time.perf_counter() + seconds
            while (start := time.perf_counter()) < end:
                await producer.send(topic, body)
                taken.append(time.perf_counter() - start)
        async with blocking_producer(self._name_server, topic) as acks:
            await asyncio.sleep(START_SECONDS + seconds)
        if acks.failures:
            raise NotReady(f"{len(acks.failures)} sends failed: {acks.failures[0]}")
        # The first ones look for the leader and open the stream.
        return {
            "asyncio": taken[len(taken) // 10 :],
            "blocking": acks.seconds[len(acks.seconds) // 10 :],
        }

    async def leader(self, topic: str) -> str:  # noqa: ARG002 - one group leads all topics
        return await self._here.leader()

    def kill(self, node: str) -> None:
        self._here.cluster.kill(node)

    def restart(self, node: str) -> None:
        self._here.cluster.start(node)

    async def settled(self, topic: str) -> None:  # noqa: ARG002
        await self._here.caught_up()
