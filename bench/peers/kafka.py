"""Apache Kafka, as it is and with a flush for each append; every node is broker and controller.

Owns the calls of confluent-kafka. Its client has threads of its own and blocks, so what waits for
long runs in a thread.
"""

import asyncio
import os
import re
import subprocess
import threading
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from bench.peers.installing import (
    KAFKA_VERSION,
    client_version,
    jars,
    kafka_jars,
    lacking,
    python_clients,
    run,
)
from bench.peers.measuring import Measured, topic_name
from bench.peers.nodes import Nodes, OnNodes
from bench.peers.peer import BODY_SIZE, Done, Heard, Load, Purpose
from bench.setup.cluster import NotReady
from dledger_proto.network.ports import free_ports

JAVA_MIN = 17
JVM = [
    "-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]  # fmt: skip
"""What Kafka's own start script gives a broker."""
LOGGING = """<Configuration>
<Appenders><Console name="C"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="C"/></Root></Loggers>
</Configuration>
"""
FAIL_FAST: dict[str, Any] = {
    "linger.ms": 0,
    "request.timeout.ms": 1000,
    "socket.timeout.ms": 1500,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "socket.nagle.disable": True,
}
"""A producer that sends at once and soon asks the next leader. It makes a lone send slower."""
SETTINGS: dict[Purpose, dict[str, Any]] = {
    "rate": {},
    "single": {"linger.ms": 0},
    "failover": FAIL_FAST,
}
BUFFER_KIB = 64 << 10
"""As much as our producer keeps; its own default is a gigabyte, which outlives a measurement."""
FETCH_MESSAGES = 1000
ASK_SECONDS = 5.0
READ_SECONDS_MAX = 120.0
SEND_SECONDS_MAX = 60.0


def java_major(said: str) -> int:
    """Return the major version out of what `java -version` prints; 0: it is not in there."""
    found = re.search(r'version "(\d+)', said)
    return int(found[1]) if found else 0


class KafkaSender:
    """A producer as `peer.Sender`. Delivery reports come in `breathe` and `room`."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def submit(self, topic: str, body: bytes, done: Done) -> bool:
        try:
            self._producer.produce(topic, body, on_delivery=lambda error, _: done(error is None))
        except BufferError:
            return False
        return True

    async def room(self) -> None:
        self._producer.poll(0.01)

    async def breathe(self) -> None:
        self._producer.poll(0)
        await asyncio.sleep(0)

    async def send(self, topic: str, body: bytes) -> bool:
        return await asyncio.to_thread(self.send_now, topic, body)

    def send_now(self, topic: str, body: bytes) -> bool:
        """Send one message and block until its report."""
        reports: list[Any] = []
        self._producer.produce(topic, body, on_delivery=lambda error, _: reports.append(error))
        end = time.monotonic() + SEND_SECONDS_MAX
        while not reports and time.monotonic() < end:
            self._producer.poll(1.0)
        return reports == [None]


class Kafka(OnNodes, Measured):
    """Three nodes; a message is acknowledged when all replicas in sync have it (acks=all)."""

    def __init__(self, home: Path, *, flushes: bool = False) -> None:
        super().__init__()
        self._home = home
        self._flushes = flushes
        self._ports: dict[str, int] = {}
        self.name = "Kafka, flush each" if flushes else "Kafka"
        self.fsync = (
            "all in sync have synced (log.flush.interval.messages=1)"
            if flushes
            else "nobody (page cache)"
        )
        self.note = (
            "acks=all, min.insync.replicas=2, the client's default batching. The lone send and "
            "end to end use linger.ms=0, failover short timeouts, too. A node counts as dead after "
            "broker.session.timeout.ms, 9 s by default."
        )
        self.errors: tuple[type[Exception], ...] = ()

    def missing(self) -> str:
        lost = lacking("java", *(() if jars(self._home).exists() else ("mvn",)))
        if lost:
            return lost
        said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
        major = java_major(said.stderr + said.stdout)
        is_old = major < JAVA_MIN
        return f"java on the PATH is {major}, at least {JAVA_MIN} is needed" if is_old else ""

    def lacks(self, load: Load) -> str:  # noqa: ARG002 - it takes every load
        return ""

    def version(self) -> str:
        return f"{KAFKA_VERSION} with {client_version('confluent-kafka')}"

    def install(self) -> None:
        kafka_jars(self._home)
        python_clients(self._home)
        from confluent_kafka import KafkaException

        self.errors = (KafkaException,)

    async def start(self, folder: Path) -> None:
        names = ["n1", "n2", "n3"]
        ports = free_ports(6)
        self._ports = dict(zip(names, ports, strict=False))
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports[3:], 1))
        logging = folder / "log4j2.xml"
        logging.write_text(LOGGING)
        java = ["java", f"-Dlog4j2.configurationFile={logging}", "-cp", f"{jars(self._home)}/*"]
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        commands: dict[str, list[str]] = {}
        for number, name in enumerate(names, 1):
            properties = folder / f"{name}.properties"
            properties.write_text(self._properties(folder, number, ports[2 + number], voters))
            commands[name] = [java[0], *JVM, *java[1:], "kafka.Kafka", str(properties)]
            tool = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
            await asyncio.to_thread(run, [*java, *tool], folder)
        self.begin(Nodes(folder, commands))
        await self.nodes.until(self._has_all, "three nodes of Kafka")

    def _properties(self, folder: Path, number: int, controller_port: int, voters: str) -> str:
        client = f"PLAINTEXT://127.0.0.1:{self._ports[f'n{number}']}"
        lines = [
            "process.roles=broker,controller",
            f"node.id={number}",
            f"controller.quorum.voters={voters}",
            "controller.listener.names=CONTROLLER",
            f"listeners={client},CONTROLLER://127.0.0.1:{controller_port}",
            f"advertised.listeners={client}",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"log.dirs={folder / f'n{number}'}",
            "default.replication.factor=3",
            "min.insync.replicas=2",
        ]
        if self._flushes:
            lines.append("log.flush.interval.messages=1")
        return "\n".join(lines) + "\n"

    @property
    def _client(self) -> dict[str, Any]:
        """Settings of every client."""
        servers = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        return {"bootstrap.servers": servers, "log_level": 0}

    def _asked(self, topic: str | None = None) -> Any:
        """Return what the cluster says of itself; None: it does not answer."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        # The client must outlive its request.
        client = AdminClient(self._client)
        try:
            return client.list_topics(topic, timeout=ASK_SECONDS)
        except KafkaException:
            return None

    async def _has_all(self) -> bool:
        found = await asyncio.to_thread(self._asked)
        return found is not None and len(found.brokers) == len(self._ports)

    async def create(self, topics: Sequence[str], queues: int) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        def make() -> None:
            client = AdminClient(self._client)
            wanted = [NewTopic(topic, queues, len(self._ports)) for topic in topics]
            for made in client.create_topics(wanted).values():
                made.result(30)

        await asyncio.to_thread(make)
        await self._settled(topics, queues)

    async def settled(self, topic: str) -> None:
        await self._settled([topic], 1)

    async def _settled(self, topics: Sequence[str], queues: int) -> None:
        """Wait until all nodes are in sync for all partitions."""

        async def are_settled() -> bool:
            found = await asyncio.to_thread(self._asked)
            if found is None or not all(topic in found.topics for topic in topics):
                return False
            return all(
                len(found.topics[topic].partitions) == queues
                and all(
                    len(each.isrs) == len(self._ports)
                    for each in found.topics[topic].partitions.values()
                )
                for topic in topics
            )

        await self.nodes.until(are_settled, "a topic with all replicas in sync")

    async def leader(self, topic: str) -> str:
        found: list[int] = []

        async def has_leader() -> bool:
            said = await asyncio.to_thread(self._asked, topic)
            partition = said and said.topics[topic].partitions.get(0)
            found[:] = [partition.leader] if partition and partition.leader > 0 else []
            return bool(found)

        await self.nodes.until(has_leader, "a leader of a partition")
        return f"n{found[0]}"

    @asynccontextmanager
    async def sending(self, purpose: Purpose = "rate") -> AsyncGenerator[KafkaSender]:
        from confluent_kafka import Producer

        settings = {**self._client, "acks": "all", "queue.buffering.max.kbytes": BUFFER_KIB}
        producer = Producer({**settings, **SETTINGS[purpose]})
        try:
            yield KafkaSender(producer)
        finally:
            await asyncio.to_thread(producer.flush, ASK_SECONDS)

    def _reader(self, topic: str) -> Any:
        """Return a consumer at the begin of a topic of one queue."""
        from confluent_kafka import Consumer, TopicPartition

        group = {"group.id": f"reader-{topic}", "enable.auto.commit": False}
        consumer = Consumer({**self._client, **group})
        consumer.assign([TopicPartition(topic, 0, 0)])
        return consumer

    @asynccontextmanager
    async def reading(self, topic: str, heard: Heard) -> AsyncGenerator[None]:
        consumer, is_over = self._reader(topic), threading.Event()

        def read() -> None:
            while not is_over.is_set():
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    heard(message.value())

        async with _beside(read, is_over):
            yield
        consumer.close()

    async def read_back(self, topic: str, count: int) -> float:
        return await asyncio.to_thread(self._read_back, topic, count)

    def _read_back(self, topic: str, count: int) -> float:
        consumer = self._reader(topic)
        got, size, start = 0, 0, time.perf_counter()
        while got < count and time.perf_counter() < start + READ_SECONDS_MAX:
            for message in consumer.consume(FETCH_MESSAGES, timeout=1.0):
                if message.error() is None:
                    size += len(message.value())
                    got += 1
        taken = time.perf_counter() - start
        consumer.close()
        if (got, size) != (count, count * BODY_SIZE):
            raise NotReady(f"{got} messages of {size} bytes were read, {count} were stored")
        return taken

    async def lone_send(self, seconds: float) -> dict[str, list[float]]:
        topic = topic_name("lone")
        await self.create([topic], 1)
        body = os.urandom(BODY_SIZE)
        async with self.sending("single") as sender:

            def send() -> list[float]:
                taken: list[float] = []
                end = time.perf_counter() + seconds
                while (start := time.perf_counter()) < end:
                    if not sender.send_now(topic, body):
                        raise NotReady("a lone send failed")
                    taken.append(time.perf_counter() - start)
                return taken

            taken = await asyncio.to_thread(send)
        return {"confluent-kafka": taken[len(taken) // 10 :]}


@asynccontextmanager
async def _beside(work: Callable[[], None], is_over: threading.Event) -> AsyncGenerator[None]:
    """Run a thread until this is left."""
    task = asyncio.create_task(asyncio.to_thread(work))
    try:
        yield
    finally:
        is_over.set()
        with suppress(asyncio.CancelledError):
            await task
