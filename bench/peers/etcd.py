"""etcd, one key for each message, by gRPC from Python.

Owns the few protobuf messages of its API that are needed, written by hand: generated ones would be
a build step for five calls. Every put is synced by a majority; nothing changes that.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, cast

import grpc
import grpc.aio

from bench.peers.installing import ETCD, go_program, lacking
from bench.peers.measuring import Measured, topic_name
from bench.peers.nodes import Nodes, OnNodes
from bench.peers.peer import BODY_SIZE, Done, Heard, Load, Purpose
from bench.setup.cluster import NotReady, within
from dledger_proto.network.ports import free_ports
from dledger_proto.rpc.aio import open_channel

WINDOW = 256
"""So many puts are in flight at most."""
PAGE_KEYS = 1000
PUT_SECONDS_MAX = 10.0
FAILOVER_PUT_SECONDS_MAX = 0.25
"""After so long a lone producer asks the next node."""
READ_SECONDS_MAX = 120.0
CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.use_local_subchannel_pool", 1),
]

Message = dict[int, list[int | bytes]]
"""Values by the number of their field."""


class Unary(Protocol):
    """A call with one answer, as bytes."""

    async def __call__(self, request: bytes, timeout: float) -> bytes:
        """Ask."""
        ...


class Channel(Protocol):
    """A channel without serializers: requests and answers are bytes."""

    def unary_unary(self, method: str) -> Unary:
        """Return a call."""
        ...

    def stream_stream(self, method: str) -> "Callable[[], WatchCall]":
        """Return what opens a stream."""
        ...

    async def close(self, grace: float | None) -> None:
        """Close it."""
        ...


class WatchCall(Protocol):
    """The stream of a watch, as bytes."""

    async def write(self, request: bytes) -> None:
        """Ask."""
        ...

    async def read(self) -> bytes:
        """Return the next answer."""
        ...

    def cancel(self) -> bool:
        """End the stream."""
        ...


def varint(number: int) -> bytes:
    """Return an integer as protobuf writes it."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode(fields: Mapping[int, int | bytes]) -> bytes:
    """Return a message of fields by number."""
    out = b""
    for number, value in fields.items():
        if isinstance(value, bytes):
            out += varint(number << 3 | 2) + varint(len(value)) + value
        else:
            out += varint(number << 3) + varint(value)
    return out


def decode(data: bytes) -> Message:
    """Return the fields of a message that has integers and bytes only."""
    out: Message = {}
    place = 0

    def number() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(data):
        key = number()
        if key & 7 == 2:
            size = number()
            out.setdefault(key >> 3, []).append(data[place : place + size])
            place += size
        elif key & 7 == 0:
            out.setdefault(key >> 3, []).append(number())
        else:
            raise ValueError(f"protobuf wire type {key & 7} at byte {place}, only 0 and 2 are read")
    return out


def inner(message: Message, number: int) -> Message:
    """Return a field that is a message itself."""
    return decode(raw_bytes(message, number))


def raw_bytes(message: Message, number: int) -> bytes:
    """Return a field of bytes."""
    value = message[number][0]
    assert isinstance(value, bytes), f"field {number} is a number"
    return value


class Node:
    """Calls to one node."""

    def __init__(self, port: int) -> None:
        channel = open_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS)
        self.channel = cast("Channel", channel)
        self.put = self.channel.unary_unary("/etcdserverpb.KV/Put")
        self.range = self.channel.unary_unary("/etcdserverpb.KV/Range")
        self.status = self.channel.unary_unary("/etcdserverpb.Maintenance/Status")
        self.watch = self.channel.stream_stream("/etcdserverpb.Watch/Watch")

    async def says(self) -> tuple[bool, int]:
        """Return whether the node leads, and the index that it has applied; (False, -1): silent."""
        try:
            reply = decode(await self.status(b"", timeout=1.0))
        except grpc.aio.AioRpcError:
            return False, -1
        applied = reply.get(7, [0])[0]
        assert isinstance(applied, int), "an index"
        return inner(reply, 1)[2] == reply.get(4, [0]), applied


class EtcdSender:
    """Puts to the leader, in tasks of their own; a lone one goes to the next node when it fails."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._at = 0
        self._number = 0
        self._flying: set[asyncio.Task[None]] = set()

    def submit(self, topic: str, body: bytes, done: Done) -> bool:
        if len(self._flying) >= WINDOW:
            return False
        task = asyncio.create_task(self._put(self._next_key(topic), body, done))
        self._flying.add(task)
        task.add_done_callback(self._flying.discard)
        return True

    def _next_key(self, topic: str) -> bytes:
        self._number += 1
        return f"{topic}/{self._number:012d}".encode()

    async def _put(self, key: bytes, body: bytes, done: Done) -> None:
        try:
            await self._nodes[0].put(encode({1: key, 2: body}), timeout=PUT_SECONDS_MAX)
        except grpc.aio.AioRpcError:
            done(False)
        else:
            done(True)

    async def room(self) -> None:
        await asyncio.wait(self._flying, return_when=asyncio.FIRST_COMPLETED)

    async def breathe(self) -> None:
        await asyncio.sleep(0)

    async def send(self, topic: str, body: bytes) -> bool:
        request = encode({1: self._next_key(topic), 2: body})
        try:
            await self._nodes[self._at].put(request, timeout=FAILOVER_PUT_SECONDS_MAX)
        except grpc.aio.AioRpcError:
            self._at = (self._at + 1) % len(self._nodes)
            await asyncio.sleep(0.005)
            return False
        return True


class Etcd(OnNodes, Measured):
    """Three nodes with the default timeouts."""

    name = "etcd"
    fsync = "a majority has synced (always)"
    note = "One key for each message, at most 256 puts in flight, by grpc.aio. Read in pages."
    errors = (grpc.aio.AioRpcError,)

    def __init__(self, home: Path) -> None:
        super().__init__()
        self._home = home
        self._ports: dict[str, int] = {}

    def missing(self) -> str:
        return "" if ETCD.place(self._home).exists() else lacking("go")

    def lacks(self, load: Load) -> str:
        is_plain = load.queues == load.topics == 1
        return "" if is_plain else "etcd has neither queues nor topics: all keys are one log"

    def version(self) -> str:
        return f"{ETCD.version} with grpcio {grpc.__version__}"

    def install(self) -> None:
        go_program(self._home, ETCD)

    async def start(self, folder: Path) -> None:
        names = ["n1", "n2", "n3"]
        ports = free_ports(6)
        self._ports = dict(zip(names, ports, strict=False))
        peers = {
            name: f"http://127.0.0.1:{port}" for name, port in zip(names, ports[3:], strict=True)
        }
        initial = ",".join(f"{name}={url}" for name, url in peers.items())
        commands: dict[str, list[str]] = {}
        for name, url in peers.items():
            client = f"http://127.0.0.1:{self._ports[name]}"
            commands[name] = [
                str(ETCD.place(self._home)), "--name", name, "--data-dir", str(folder / name),
                "--listen-client-urls", client, "--advertise-client-urls", client,
                "--listen-peer-urls", url, "--initial-advertise-peer-urls", url,
                "--initial-cluster", initial, "--quota-backend-bytes", str(8 << 30),
                "--log-level", "warn",
            ]  # fmt: skip
        self.begin(Nodes(folder, commands))
        await self.settled("")

    @asynccontextmanager
    async def _asked(self) -> AsyncGenerator[dict[str, Node]]:
        """Open channels to all nodes."""
        nodes = {name: Node(port) for name, port in self._ports.items()}
        try:
            yield nodes
        finally:
            for node in nodes.values():
                await node.channel.close(None)

    async def settled(self, topic: str) -> None:  # noqa: ARG002 - all keys are one log
        async with self._asked() as nodes:

            async def is_settled() -> bool:
                said = [await node.says() for node in nodes.values()]
                applied = [index for _, index in said]
                # Under load the nodes are never level; so near is near enough.
                return any(leads for leads, _ in said) and max(applied) - min(applied) < 100

            await self.nodes.until(is_settled, "three nodes of etcd")

    async def leader(self, topic: str) -> str:  # noqa: ARG002
        found: list[str] = []
        async with self._asked() as nodes:

            async def has_leader() -> bool:
                found[:] = [name for name, node in nodes.items() if (await node.says())[0]]
                return len(found) == 1

            await self.nodes.until(has_leader, "a leader of etcd")
        return found[0]

    @asynccontextmanager
    async def _by_leader(self) -> AsyncGenerator[list[Node]]:
        """Open channels, the leader's first."""
        leader = await self.leader("")
        async with self._asked() as nodes:
            yield [nodes.pop(leader), *nodes.values()]

    async def create(self, topics: Sequence[str], queues: int) -> None:
        """Nothing: a topic is a prefix of keys."""

    @asynccontextmanager
    async def sending(self, purpose: Purpose = "rate") -> AsyncGenerator[EtcdSender]:  # noqa: ARG002
        async with self._by_leader() as nodes:
            yield EtcdSender(nodes)

    @asynccontextmanager
    async def reading(self, topic: str, heard: Heard) -> AsyncGenerator[None]:
        async with self._by_leader() as nodes:
            call = nodes[0].watch()
            keys = encode({1: f"{topic}/".encode(), 2: f"{topic}0".encode()})
            await call.write(encode({1: keys}))
            await call.read()  # that the watch exists

            async def read() -> None:
                while True:
                    for event in decode(await call.read()).get(11, []):
                        assert isinstance(event, bytes), "an event"
                        heard(raw_bytes(inner(decode(event), 2), 5))

            task = asyncio.create_task(read())
            try:
                yield
            finally:
                task.cancel()
                await asyncio.wait([task])
                call.cancel()

    async def read_back(self, topic: str, count: int) -> float:
        async with within(READ_SECONDS_MAX, "a backlog"), self._by_leader() as nodes:
            first, end = f"{topic}/".encode(), f"{topic}0".encode()
            got, start = 0, time.perf_counter()
            while got < count:
                request = encode({1: first, 2: end, 3: PAGE_KEYS})
                reply = decode(await nodes[0].range(request, timeout=READ_SECONDS_MAX))
                values = [decode(each) for each in reply.get(2, []) if isinstance(each, bytes)]
                if not values:
                    raise NotReady(f"{got} messages were read, {count} were stored")
                got += len(values)
                first = raw_bytes(values[-1], 1) + b"\0"
            return time.perf_counter() - start

    async def lone_send(self, seconds: float) -> dict[str, list[float]]:
        topic, body = topic_name("lone"), bytes(BODY_SIZE)
        taken: list[float] = []
        async with self._by_leader() as nodes:
            end = time.perf_counter() + seconds
            while (start := time.perf_counter()) < end:
                key = f"{topic}/{len(taken):012d}".encode()
                await nodes[0].put(encode({1: key, 2: body}), timeout=PUT_SECONDS_MAX)
                taken.append(time.perf_counter() - start)
        return {"grpc.aio": taken[len(taken) // 10 :]}
