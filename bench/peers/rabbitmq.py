"""RabbitMQ, quorum queues of three members, from Debian's packages in a folder of their own.

Owns the calls of pika, and the mount namespace in which each node runs: its root is the folder with
the packages, and its data are on the disk that is measured. The mounts end with the node.
"""

import asyncio
import itertools
import os
import shlex
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.peers.installing import client_version, debian, debian_root, lacking, python_clients, run
from bench.peers.measuring import Measured, topic_name
from bench.peers.nodes import Nodes, OnNodes
from bench.peers.peer import BODY_SIZE, Done, Heard, Load, Purpose
from bench.setup.cluster import NotReady, within
from dledger_proto.network.ports import free_ports

PACKAGE = "rabbitmq-server"
NAMES = ("n1", "n2", "n3")
INSIDE = "/mnt"
"""Where a node sees its folder."""
WINDOW = 1000
"""So many messages are unconfirmed at most."""
PREFETCH = 2000
ACKED_AT_ONCE = 500
LONE_SECONDS_MAX = 0.25
"""After so long a lone producer sends again."""
OPEN_SECONDS_MAX = 2.0
READ_SECONDS_MAX = 120.0
LOOPBACK = "-kernel inet_dist_use_interface {127,0,0,1}"
PORT_MAPPER = "epmd"
"""The name of the process that maps Erlang's names to ports: a node that is never killed."""


def debian_version(status: str, package: str) -> str:
    """Return the version of a package out of dpkg's file; empty: it is not installed."""
    for paragraph in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
        if fields.get("Package") == package:
            return fields.get("Version", "")
    return ""


class Channel:
    """A channel with confirms on the event loop."""

    def __init__(self) -> None:
        self._connection: Any = None
        self.channel: Any = None
        self._tag = 0
        self._done: dict[int, Done] = {}
        self.heard = asyncio.Event()
        """Set at each confirm."""

    @property
    def unconfirmed(self) -> int:
        """How many messages have no confirm yet."""
        return len(self._done)

    async def open(self, port: int) -> None:
        """Connect. NotReady when the node does not answer in time."""
        import pika
        from pika.adapters.asyncio_connection import AsyncioConnection

        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def failed(_: Any, error: Any) -> None:
            self.channel = None
            if not ready.done():
                ready.set_exception(NotReady(f"RabbitMQ: {error}"))
            for done in self._taken(self._tag):
                done(False)

        def confirmed(_: Any) -> None:
            if not ready.done():
                ready.set_result(None)

        def opened(channel: Any) -> None:
            self.channel = channel
            channel.confirm_delivery(self._confirmed, confirmed)

        async with within(OPEN_SECONDS_MAX, "a connection to RabbitMQ"):
            self._connection = AsyncioConnection(
                pika.ConnectionParameters("127.0.0.1", port),
                on_open_callback=lambda connection: connection.channel(on_open_callback=opened),
                on_open_error_callback=failed,
                on_close_callback=failed,
                custom_ioloop=loop,
            )
            await ready

    def _confirmed(self, frame: Any) -> None:
        tag = frame.method.delivery_tag
        is_stored = frame.method.NAME == "Basic.Ack"
        if frame.method.multiple:
            for done in self._taken(tag):
                done(is_stored)
        elif tag in self._done:
            self._done.pop(tag)(is_stored)
        self.heard.set()

    def _taken(self, last: int) -> list[Done]:
        """Take what waits for a confirm up to a tag."""
        tags = list(itertools.takewhile(lambda tag: tag <= last, self._done))
        return [self._done.pop(tag) for tag in tags]

    def publish(self, queue: str, body: bytes, done: Done) -> None:
        """Publish a persistent message."""
        import pika

        self._tag += 1
        self._done[self._tag] = done
        self.channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self._connection is not None and self._connection.is_open:
            self._connection.close()


class RabbitSender:
    """Publishes with a window of confirms; a lone one goes to the next node when one is lost."""

    def __init__(self, ports: Sequence[int], queues: dict[str, int]) -> None:
        self._ports = itertools.cycle(ports)
        self._queues = queues
        self._number = itertools.count()
        self._open = Channel()

    async def open(self) -> None:
        """Connect to the first node."""
        await self._open.open(next(self._ports))

    def close(self) -> None:
        """Close the connection."""
        self._open.close()

    def submit(self, topic: str, body: bytes, done: Done) -> bool:
        if self._open.channel is None:
            raise NotReady("RabbitMQ closed the connection")
        if self._open.unconfirmed >= WINDOW:
            return False
        queue = f"{topic}.{next(self._number) % self._queues[topic]}"
        self._open.publish(queue, body, done)
        return True

    async def room(self) -> None:
        self._open.heard.clear()
        async with within(READ_SECONDS_MAX, "a confirm"):
            await self._open.heard.wait()

    async def breathe(self) -> None:
        await asyncio.sleep(0)

    async def send(self, topic: str, body: bytes) -> bool:
        if self._open.channel is None:
            self._open = Channel()
            try:
                await self.open()
            except NotReady:
                await asyncio.sleep(0.02)
                return False
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def done(is_stored: bool) -> None:
            if not answer.done():
                answer.set_result(is_stored)

        self._open.publish(f"{topic}.0", body, done)
        try:
            return await asyncio.wait_for(answer, LONE_SECONDS_MAX)
        except TimeoutError:
            return False


class RabbitMq(OnNodes, Measured):
    """Three nodes that find each other, with the default settings of quorum queues."""

    name = "RabbitMQ quorum queue"
    fsync = "a majority has synced"
    note = (
        "At most 1,000 messages without a confirm. A queue is a quorum queue of three members. "
        "Its reader acknowledges every 500 messages, which removes them."
    )
    errors: tuple[type[Exception], ...] = ()

    def __init__(self, home: Path) -> None:
        super().__init__()
        self._home = home
        self._folder = Path()
        self._ports: dict[str, int] = {}
        self._mapper_port = 0
        self._queues: dict[str, int] = {}

    def missing(self) -> str:
        if os.geteuid():
            return "its packages are installed and run in a root of their own, which needs root"
        is_there = debian_root(self._home).exists()
        return lacking("unshare", "chroot", "mount", *(() if is_there else ("mmdebstrap",)))

    def lacks(self, load: Load) -> str:  # noqa: ARG002 - it takes every load
        return ""

    def version(self) -> str:
        status = (debian_root(self._home) / "var" / "lib" / "dpkg" / "status").read_text()
        return f"{debian_version(status, PACKAGE)} with {client_version('pika')}"

    def install(self) -> None:
        debian(self._home, PACKAGE)
        python_clients(self._home)
        from pika.exceptions import AMQPError

        self.errors = (AMQPError,)

    def _inside(self, *command: str, **variables: str) -> list[str]:
        """Return what runs a command in the root of the packages, with the node's folder."""
        root = debian_root(self._home)
        always = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "HOME": INSIDE,
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_CTL_ERL_ARGS": LOOPBACK,
        }
        words = [f"{name}={value}" for name, value in (always | variables).items()]
        mounts = [
            ["mount", "-t", "proc", "proc", f"{root}/proc"],
            ["mount", "--bind", str(self._folder), f"{root}{INSIDE}"],
            ["exec", "env", "-i", *words, "chroot", str(root), *command],
        ]
        return ["unshare", "--mount", "sh", "-c", " && ".join(map(shlex.join, mounts))]

    def _control(self, node: str, *words: str) -> str:
        """Ask a node with its own tool; return what it says. NotReady when it does not."""
        tool = ["/usr/lib/rabbitmq/bin/rabbitmqctl", "-n", f"{node}@localhost", "-q"]
        return run(self._inside(*tool, *words), self._folder)

    async def start(self, folder: Path) -> None:
        self._folder = folder
        self._queues.clear()
        ports = free_ports(2 * len(NAMES) + 1)
        self._ports = dict(zip(NAMES, ports, strict=False))
        self._mapper_port = ports[-1]
        cookie = folder / ".erlang.cookie"
        cookie.write_text("BENCHPEERS")
        cookie.chmod(0o400)
        (folder / "enabled_plugins").write_text("[].\n")
        commands = {PORT_MAPPER: self._inside("epmd")}
        for name, port in zip(NAMES, ports[len(NAMES) :], strict=False):
            commands[name] = self._node(name, port)
        self.begin(Nodes(folder, commands))
        for name in NAMES:
            await self._says(name, "await_startup", "--timeout", "120")
        await self._says(NAMES[0], "await_online_nodes", str(len(NAMES)), "--timeout", "60")

    def _node(self, name: str, port: int) -> list[str]:
        """Write what a node is told; return its command."""
        config = [
            f"listeners.tcp.1 = 127.0.0.1:{self._ports[name]}",
            "cluster_formation.peer_discovery_backend = classic_config",
            *(
                f"cluster_formation.classic_config.nodes.{number} = {each}@localhost"
                for number, each in enumerate(NAMES, 1)
            ),
            "log.file.level = warning",
        ]
        (self._folder / f"{name}.conf").write_text("\n".join(config) + "\n")
        return self._inside(
            "/usr/lib/rabbitmq/bin/rabbitmq-server",
            RUNNING_UNDER_SYSTEMD="1",  # the server in the foreground and nothing around it
            RABBITMQ_NODENAME=f"{name}@localhost",
            RABBITMQ_DIST_PORT=str(port),
            RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=LOOPBACK,
            RABBITMQ_CONFIG_FILE=f"{INSIDE}/{name}.conf",
            RABBITMQ_MNESIA_BASE=f"{INSIDE}/{name}",
            RABBITMQ_LOG_BASE=f"{INSIDE}/{name}",
            RABBITMQ_ENABLED_PLUGINS_FILE=f"{INSIDE}/enabled_plugins",
        )

    async def _says(self, node: str, *words: str) -> str:
        """Ask until the node answers."""
        said: list[str] = []

        async def answers() -> bool:
            try:
                said[:] = [await asyncio.to_thread(self._control, node, *words)]
            except NotReady:
                return False
            return True

        await self.nodes.until(answers, f"{words[0]} of {node}")
        return said[0]

    async def _members(self, topic: str) -> tuple[str, int]:
        """Return who leads a topic's first queue, empty: nobody; and how many members are up."""
        for node in NAMES:
            if self.nodes.is_running(node):
                what = ("list_queues", "--timeout", "5", "name", "leader", "online")
                try:
                    said = await asyncio.to_thread(self._control, node, *what)
                except NotReady:
                    continue
                for line in said.splitlines():
                    name, leader, *online = line.split("\t")
                    if name == f"{topic}.0":
                        return leader.partition("@")[0], sum(each.count("@") for each in online)
        return "", 0

    async def leader(self, topic: str) -> str:
        found: list[str] = []

        async def has_leader() -> bool:
            found[:] = [(await self._members(topic))[0]]
            return found[0] in NAMES

        await self.nodes.until(has_leader, "a leader of a queue")
        return found[0]

    async def settled(self, topic: str) -> None:
        async def is_settled() -> bool:
            return (await self._members(topic))[1] == len(NAMES)

        await self.nodes.until(is_settled, "a queue with three members online")

    async def create(self, topics: Sequence[str], queues: int) -> None:
        names = [f"{topic}.{number}" for topic in topics for number in range(queues)]

        async def declared() -> bool:
            try:
                await asyncio.to_thread(self._declare, names)
            except self.errors:
                return False  # a node that is up may not be ready for queues yet
            return True

        await self.nodes.until(declared, "a quorum queue")
        self._queues.update(dict.fromkeys(topics, queues))
        await self.settled(topics[0])

    def _blocking(self) -> Any:
        """Connect with the blocking client to the node where the leaders are."""
        import pika

        parameters = pika.ConnectionParameters("127.0.0.1", self._ports[NAMES[0]])
        return pika.BlockingConnection(parameters)

    def _declare(self, names: Sequence[str]) -> None:
        arguments = {"x-queue-type": "quorum", "x-quorum-initial-group-size": len(NAMES)}
        connection = self._blocking()
        channel = connection.channel()
        for name in names:
            channel.queue_declare(name, durable=True, arguments=arguments)
        connection.close()

    @asynccontextmanager
    async def sending(self, purpose: Purpose = "rate") -> AsyncGenerator[RabbitSender]:  # noqa: ARG002
        sender = RabbitSender(list(self._ports.values()), self._queues)
        await sender.open()
        try:
            yield sender
        finally:
            sender.close()

    @asynccontextmanager
    async def reading(self, topic: str, heard: Heard) -> AsyncGenerator[None]:
        def take(_channel: Any, _method: Any, _properties: Any, body: bytes) -> None:
            heard(body)

        reader = Channel()
        await reader.open(self._ports[NAMES[0]])
        reader.channel.basic_consume(f"{topic}.0", take, auto_ack=True)
        try:
            yield
        finally:
            reader.close()

    async def read_back(self, topic: str, count: int) -> float:
        got, size = 0, 0
        is_over = asyncio.Event()

        def take(channel: Any, method: Any, _: Any, body: bytes) -> None:
            nonlocal got, size
            got += 1
            size += len(body)
            if not got % ACKED_AT_ONCE or got == count:
                channel.basic_ack(method.delivery_tag, multiple=True)
            if got == count:
                is_over.set()

        reader = Channel()
        await reader.open(self._ports[NAMES[0]])
        try:
            async with within(READ_SECONDS_MAX, "a backlog"):
                reader.channel.basic_qos(prefetch_count=PREFETCH)
                start = time.perf_counter()
                reader.channel.basic_consume(f"{topic}.0", take)
                await is_over.wait()
                taken = time.perf_counter() - start
        finally:
            reader.close()
        if size != count * BODY_SIZE:
            raise NotReady(f"{size} bytes were read, {count * BODY_SIZE} were stored")
        return taken

    async def lone_send(self, seconds: float) -> dict[str, list[float]]:
        topic = topic_name("lone")
        await self.create([topic], 1)
        taken = await asyncio.to_thread(self._lone, f"{topic}.0", seconds)
        return {"pika, blocking": taken[len(taken) // 10 :]}

    def _lone(self, queue: str, seconds: float) -> list[float]:
        import pika

        body, persistent = bytes(BODY_SIZE), pika.BasicProperties(delivery_mode=2)
        taken: list[float] = []
        connection = self._blocking()
        channel = connection.channel()
        channel.confirm_delivery()
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            channel.basic_publish("", queue, body, persistent)
            taken.append(time.perf_counter() - start)
        connection.close()
        return taken
