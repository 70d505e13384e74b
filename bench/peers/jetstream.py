"""NATS JetStream: streams of three replicas in files, with fsync before each acknowledgement.

Owns the calls of nats-py. Publishes are counted by their answers at one inbox, which is faster than
the client's own `publish_async`.
"""

import asyncio
import itertools
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.peers.installing import (
    NATS,
    client_version,
    go_program,
    lacking,
    python_clients,
    use_python_clients,
)
from bench.peers.measuring import Measured, topic_name
from bench.peers.nodes import Nodes, OnNodes
from bench.peers.peer import BODY_SIZE, Done, Heard, Load, Purpose
from bench.setup.cluster import NotReady, within
from dledger_proto.network.ports import free_ports

WINDOW = 1000
"""So many publishes are unacknowledged at most."""
FETCH_MESSAGES = 1000
LONE_SECONDS_MAX = 0.25
"""After so long a lone producer sends again."""
CREATE_SECONDS_MAX = 60.0
READ_SECONDS_MAX = 120.0
NAMES = ("n1", "n2", "n3")


async def _quiet(_: Exception) -> None:
    """Say nothing of errors of the connection: a killed node is expected here."""


class NatsSender:
    """Publishes with a window. A topic of several queues is one stream for each, in turn."""

    def __init__(self, connection: Any, queues: dict[str, int]) -> None:
        self._connection = connection
        self._stream = connection.jetstream()
        self._queues = queues
        self._inbox = connection.new_inbox()
        self._number = itertools.count()
        self._waiting: deque[tuple[str, bytes, str]] = deque()
        self._done: dict[str, Done] = {}
        self._room = asyncio.Event()

    async def open(self) -> None:
        """Listen for answers."""
        await self._connection.subscribe(f"{self._inbox}.*", cb=self._answered)

    async def _answered(self, message: Any) -> None:
        done = self._done.pop(message.subject.rpartition(".")[2])
        done(b'"error"' not in message.data)
        self._room.set()

    def submit(self, topic: str, body: bytes, done: Done) -> bool:
        if len(self._done) >= WINDOW:
            return False
        number = next(self._number)
        subject = f"{topic}.{number % self._queues[topic]}"
        self._done[str(number)] = done
        self._waiting.append((subject, body, f"{self._inbox}.{number}"))
        return True

    async def room(self) -> None:
        await self.breathe()
        if len(self._done) >= WINDOW:
            self._room.clear()
            async with within(READ_SECONDS_MAX, "an acknowledgement"):
                await self._room.wait()

    async def breathe(self) -> None:
        while self._waiting:
            subject, body, reply = self._waiting.popleft()
            await self._connection.publish(subject, body, reply=reply)
        await asyncio.sleep(0)

    async def send(self, topic: str, body: bytes) -> bool:
        from nats.errors import Error

        try:
            await self._stream.publish(f"{topic}.0", body, timeout=LONE_SECONDS_MAX)
        except (Error, OSError):
            await asyncio.sleep(0.02)
            return False
        return True


class JetStream(OnNodes, Measured):
    """Three nodes; an acknowledgement waits for the fsync of each replica that counts."""

    name = "NATS JetStream"
    fsync = "a majority has synced (sync_interval: always)"
    note = (
        "At most 1,000 publishes without an answer, counted at one inbox. A queue is a stream; "
        "100 topics are 100 subjects of one stream."
    )
    errors: tuple[type[Exception], ...] = ()

    def __init__(self, home: Path) -> None:
        super().__init__()
        self._home = home
        self._ports: dict[str, int] = {}
        self._queues: dict[str, int] = {}
        self._streams: dict[str, str] = {}

    def missing(self) -> str:
        return "" if NATS.place(self._home).exists() else lacking("go")

    def lacks(self, load: Load) -> str:  # noqa: ARG002 - it takes every load
        return ""

    def version(self) -> str:
        return f"{NATS.version} with {client_version('nats-py')}"

    def install(self) -> None:
        go_program(self._home, NATS)
        python_clients(self._home)
        from nats.errors import Error

        self.errors = (Error,)

    async def start(self, folder: Path) -> None:
        use_python_clients(self._home)
        ports = free_ports(6)
        self._ports = dict(zip(NAMES, ports, strict=False))
        self._queues.clear()
        routes = [f"nats://127.0.0.1:{port}" for port in ports[3:]]
        commands: dict[str, list[str]] = {}
        for name, route in zip(NAMES, routes, strict=True):
            config = {
                "server_name": name,
                "listen": f"127.0.0.1:{self._ports[name]}",
                "jetstream": {
                    "store_dir": str(folder / name),
                    "max_file_store": 100 << 30,
                    "sync_interval": "always",
                },
                "cluster": {"name": "bench", "listen": route.rpartition("/")[2], "routes": routes},
            }
            # The configuration is a superset of JSON.
            (folder / f"{name}.conf").write_text(json.dumps(config))
            program = str(NATS.place(self._home))
            commands[name] = [program, "--config", str(folder / f"{name}.conf")]
        self.begin(Nodes(folder, commands))
        await self.create([topic_name("first")], 1)

    @asynccontextmanager
    async def _connected(self, first: str = "") -> AsyncGenerator[Any]:
        """Connect, to one node when it is named and answers."""
        import nats

        names = sorted(self._ports, key=lambda name: name != first)
        urls = [f"nats://127.0.0.1:{self._ports[name]}" for name in names]
        connection = None

        async def connects() -> bool:
            nonlocal connection
            try:
                connection = await nats.connect(
                    urls, dont_randomize=True, max_reconnect_attempts=-1, connect_timeout=1,
                    reconnect_time_wait=0.05, error_cb=_quiet,
                )  # fmt: skip
            except (nats.errors.Error, OSError):
                return False
            return True

        await self.nodes.until(connects, "a connection to NATS")
        assert connection is not None, "connected"
        try:
            yield connection
        finally:
            await connection.close()

    async def create(self, topics: Sequence[str], queues: int) -> None:
        """Make a stream for each queue, or one of all topics when these have one queue each."""
        subjects = [[f"{topic}.{queue}" for topic in topics] for queue in range(queues)]
        async with self._connected() as connection:
            for number, some in enumerate(subjects):
                name = f"{topics[0]}-{number}"
                await self._add_stream(connection, name, some)
        for topic in topics:
            self._queues[topic] = queues
            self._streams[topic] = f"{topics[0]}-0"
        await self.settled(topics[0])

    async def _add_stream(self, connection: Any, name: str, subjects: list[str]) -> None:
        import nats
        from nats.js.api import StorageType, StreamConfig

        config = StreamConfig(
            name=name, subjects=subjects, storage=StorageType.FILE, num_replicas=len(NAMES)
        )
        stream = connection.jetstream(timeout=2)

        async def added() -> bool:
            try:
                await stream.add_stream(config)
            except (nats.js.errors.APIError, nats.errors.Error):
                return False  # before the nodes have a leader nobody answers
            return True

        await self.nodes.until(added, "a stream of NATS", CREATE_SECONDS_MAX)

    async def _cluster(self, connection: Any, topic: str) -> Any:
        """Return who leads a topic's first stream and who follows; None: nobody says."""
        import nats

        try:
            return (await connection.jetstream(timeout=1).stream_info(self._streams[topic])).cluster
        except (nats.js.errors.APIError, nats.errors.Error):
            return None

    async def settled(self, topic: str) -> None:
        async with self._connected() as connection:

            async def is_settled() -> bool:
                found = await self._cluster(connection, topic)
                followers = (found and found.leader and found.replicas) or []
                return len(followers) == len(NAMES) - 1 and all(each.current for each in followers)

            await self.nodes.until(is_settled, "a stream with three current replicas")

    async def leader(self, topic: str) -> str:
        found: list[str] = []
        async with self._connected() as connection:

            async def has_leader() -> bool:
                cluster = await self._cluster(connection, topic)
                found[:] = [cluster.leader] if cluster and cluster.leader else []
                return bool(found)

            await self.nodes.until(has_leader, "a leader of a stream")
        return found[0]

    @asynccontextmanager
    async def _by_leader(self) -> AsyncGenerator[Any]:
        """Connect to the leader of the newest topic."""
        newest = next(reversed(self._streams))
        async with self._connected(await self.leader(newest)) as connection:
            yield connection

    @asynccontextmanager
    async def sending(self, purpose: Purpose = "rate") -> AsyncGenerator[NatsSender]:  # noqa: ARG002
        async with self._by_leader() as connection:
            sender = NatsSender(connection, self._queues)
            await sender.open()
            yield sender

    @asynccontextmanager
    async def reading(self, topic: str, heard: Heard) -> AsyncGenerator[None]:
        async def take(message: Any) -> None:
            heard(message.data)

        async with self._by_leader() as connection:
            stream = connection.jetstream()
            await stream.subscribe(f"{topic}.0", cb=take, ordered_consumer=True)
            yield

    async def read_back(self, topic: str, count: int) -> float:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL)
        async with within(READ_SECONDS_MAX, "a backlog"), self._by_leader() as connection:
            reader = await connection.jetstream().pull_subscribe(
                f"{topic}.0", stream=self._streams[topic], config=config
            )
            got, size, start = 0, 0, time.perf_counter()
            while got < count:
                for message in await reader.fetch(min(FETCH_MESSAGES, count - got), timeout=10):
                    size += len(message.data)
                    got += 1
            taken = time.perf_counter() - start
        if size != count * BODY_SIZE:
            raise NotReady(f"{size} bytes were read, {count * BODY_SIZE} were stored")
        return taken

    async def lone_send(self, seconds: float) -> dict[str, list[float]]:
        topic, body = topic_name("lone"), bytes(BODY_SIZE)
        await self.create([topic], 1)
        taken: list[float] = []
        async with self._by_leader() as connection:
            stream = connection.jetstream()
            end = time.perf_counter() + seconds
            while (start := time.perf_counter()) < end:
                await stream.publish(f"{topic}.0", body)
                taken.append(time.perf_counter() - start)
        return {"nats-py": taken[len(taken) // 10 :]}
