"""A compacted topic in the simulated world: the product's own clients keep the state of some keys.

Owns: the topic "kept" of one group, in which each key's value grows or is deleted, a reader that
begins anew now and then, and the end: on each member the last value of each key is there, at the
offset that its sender was told, no deleted value is back, and no reader passed over what is there
(`kept`). The queue contents of other topics are compared elsewhere.
"""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Final

from dledger.state.values import QueueSpan
from dledger.types import Position, Span
from dledger_client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ConsumerConfig,
    ProducerConfig,
    StartAt,
)
from dledger_client._core.routes import TopicRoute
from dledger_client.errors import ClientError, Overloaded, TopicNotFound, Unavailable
from dledger_proto.batch.codec import BatchView, Record
from dledger_proto.cleanup import COMPACT
from tests.sim.clients.process import ClientProcess, bootstrap
from tests.sim.clients.real.kept import Kept, Reading, wrong_with
from tests.sim.invariants.violation import Property, Violation

if TYPE_CHECKING:
    from tests.sim.member.process import Process
    from tests.sim.world.world import World

TOPIC: Final = "kept"
HOST: Final = "keeper"
KEYS: Final = ("a", "b", "c", "d", "e")
TOGETHER_MAX: Final = 4
DELETED_SHARE: Final = 0.15
BODY_MAX: Final = 300
BUSY: Final = (Unavailable, Overloaded, TopicNotFound)
"""What a read may end with while members fail, or do not know the topic yet."""
QUEUE: Final = 0
TIMEOUT_MS: Final = 10_000


class Keeper:
    """Who sends to the topic, and who reads it. Nobody else does."""

    def __init__(self, interval: float, world: "World", random: Random) -> None:
        self._interval = interval
        self._world = world
        self._random = random
        self._group = random.choice(list(world.groups))
        self._process: ClientProcess | None = None
        self.running = True
        self._topic_id = b""
        self._count = 0
        self._acknowledged: dict[int, Kept] = {}
        """By offset."""
        self._perhaps: set[Kept] = set()
        """Of these nobody knows whether they are stored."""
        self._newest: dict[str, int] = {}
        """The last acknowledged offset of each key."""
        self._readings: list[Reading] = []
        self._sending: list[Kept] = []

    def start(self) -> None:
        """Begin."""
        self._process = ClientProcess(self._world, HOST, 1)
        self._process.spawn(self._run(self._process), "the keeper")

    def stop(self) -> None:
        """Send nothing more."""
        self.running = False

    def close(self) -> None:
        """End with the world."""
        if self._process is not None:
            self._process.end()

    async def _run(self, process: ClientProcess) -> None:
        addresses = bootstrap(self._world, self._random)
        async with AsyncAdmin(addresses) as admin:
            process.owns(admin._cluster)
            route = await self._created(admin)
        if route is None:
            return
        self._world.contents.modelled.add(route.id)
        self._topic_id = route.id
        process.spawn(self._read(process), "the keeper's reader")
        async with AsyncProducer(
            addresses, ProducerConfig(name="keeper", timeout_ms=TIMEOUT_MS)
        ) as producer:
            process.owns(producer._engine.cluster)
            while self.running:
                await asyncio.sleep(self._random.expovariate(1 / self._interval))
                await self._send(producer)
        process.end()

    async def _created(self, admin: AsyncAdmin) -> TopicRoute | None:
        while self.running:
            try:
                return await admin.create_topic(
                    TOPIC, queues_per_group=1, groups=[self._group], cleanup=COMPACT
                )
            except ClientError as error:
                self._count_error(error)
                await asyncio.sleep(0.5)
        return None

    async def _send(self, producer: AsyncProducer) -> None:
        """Send some updates in one batch; note where they lie, or that nobody knows."""
        random = self._random
        updates: list[Kept] = []
        for _ in range(random.randint(1, TOGETHER_MAX)):
            self._count += 1
            value = b"%d " % self._count
            value = b"" if random.random() < DELETED_SHARE else value.ljust(BODY_MAX, b".")
            updates.append((random.choice(KEYS), value))
        records = [Record(value, keys=(key,)) for key, value in updates]
        self._sending = updates
        try:
            results = await producer.send_many(TOPIC, records, queue=QUEUE)
        except ClientError as error:
            self._count_error(error)
            if not error.definite:
                self._perhaps.update(updates)
            return
        finally:
            self._sending = []
        self._world.oracle.counts["updates kept"] += len(updates)
        for result, update in zip(results, updates, strict=True):
            if result.offset < 0:
                self._perhaps.add(update)
                continue
            if result.offset in self._acknowledged:
                self._fail(Property.OUTCOME, f"two updates are at offset {result.offset}")
            self._acknowledged[result.offset] = update
            self._newest[update[0]] = max(result.offset, self._newest.get(update[0], -1))

    async def _read(self, process: ClientProcess) -> None:
        """Read the topic from its beginning, again and again."""
        while self.running:
            config = ConsumerConfig(prefer=self._random.choice(("leader", "follower")))
            try:
                async with AsyncConsumer(bootstrap(self._world, self._random), config) as consumer:
                    process.owns(consumer._engine.cluster)
                    await consumer.assign(TOPIC, StartAt.FIRST)
                    await self._read_on(consumer)
            except BUSY as error:
                self._count_error(error)
                await asyncio.sleep(0.5)

    async def _read_on(self, consumer: AsyncConsumer) -> None:
        last = -1
        reading = Reading(set())
        self._readings.append(reading)
        for _ in range(self._random.randint(1, 10)):
            for record in await consumer.poll(timeout_ms=500):
                if record.offset <= last:
                    self._fail(Property.COMMITTED_READS, f"{record.offset} comes behind {last}")
                self._check_passed(last, record.offset)
                last = record.offset
                reading.seen.add(last)
                self._check_one("the reader", record.offset, (record.keys[0], record.body))
                self._world.oracle.counts["kept values read"] += 1

    def _check_passed(self, last: int, offset: int) -> None:
        """What a reader passes over is deleted, or there is a newer value of its key."""
        for key, newest in self._newest.items():
            value = self._acknowledged[newest][1]
            unsure = {each for each, _ in (*self._sending, *self._perhaps)}
            if last < newest < offset and value and key not in unsure:
                self._fail(
                    Property.COMMITTED_READS,
                    f"the reader comes from {last} to {offset}, passing over {key} at {newest}",
                )

    def _count_error(self, error: ClientError) -> None:
        self._world.oracle.counts[f"keeper {error.code.name}"] += 1

    def _fail(self, broken: Property, detail: str) -> None:
        raise Violation(broken, f"topic {TOPIC}: {detail}")

    def _check_one(self, who: str, offset: int, found: Kept) -> None:
        known = self._acknowledged.get(offset)
        if known is not None and known != found:
            self._fail(Property.COMMITTED_READS, f"{who}: {found} at {offset}, sent was {known}")

    # The end.

    def check_end(self) -> None:
        """Compare what each member holds with what was acknowledged."""
        if not self._topic_id:
            return
        self._perhaps.update(self._sending)
        for member in self._world.groups[self._group].members.values():
            assert member.process is not None
            self._check_member(member.name, member.process)

    def _check_member(self, name: str, process: "Process") -> None:
        there: dict[int, Kept] = {}
        end = 0
        for span in _spans(process, (self._topic_id, QUEUE)):
            if span.base_offset > end:
                self._fail(Property.CONTIGUOUS_OFFSETS, f"{name}: {span} follows offset {end}")
            end = span.base_offset + span.record_count
            for offset, found in _records(process, span):
                self._check_one(name, offset, found)
                if offset not in self._acknowledged and found not in self._perhaps:
                    self._fail(Property.PHANTOM, f"{name}: {found} at {offset}: nobody sent it")
                there[offset] = found
        self._world.oracle.counts["updates gone"] += end - len(there)
        wrong = wrong_with(self._acknowledged, self._perhaps, there, end)
        if wrong is not None:
            self._fail(wrong.broken, f"{name}: {wrong.detail}")
        for reading in self._readings:
            if missed := reading.missed(there):
                self._fail(
                    Property.COMMITTED_READS,
                    f"{name} holds {missed}, and a reader of {len(reading.seen)} passed over them",
                )


def _spans(process: "Process", queue: tuple[bytes, int]) -> Iterator[QueueSpan]:
    queries = process.machine.queries
    at, end = queries.queue_bounds(*queue)
    while at < end:
        for span in queries.spans(*queue, at, 1 << 20):
            at = span.base_offset + span.record_count
            yield span


def _records(process: "Process", span: QueueSpan) -> Iterator[tuple[int, Kept]]:
    if span.is_gone:
        return
    view = BatchView(process.log.read_span(Span(Position(span.place), span.size)))
    for place in range(span.record_count):
        record = view.record(span.first_record + place)
        yield span.base_offset + place, (record.keys[0], record.body)
