"""The product's own consumer, whole, in the simulated world.

Owns: a consumer group of one, whose process may end and begin again. It polls all queues of the
topic from members of its choice, goes to other offsets and times, pauses, commits. Each record is
compared with the truth, in the order of its queue without gap or repeat; only a trim may take away
what would come next.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from dledger_client import AsyncConsumer
from dledger_client.config import ConsumerConfig, StartAt
from dledger_client.errors import (
    ClientError,
    OffsetBehind,
    Overloaded,
    TopicNotFound,
    Unavailable,
    UnknownOutcome,
)
from dledger_client.records import RecordBatch
from dledger_proto.limits import KIB
from tests.sim.clients.lookups import LookupTime, Span
from tests.sim.clients.process import ClientProcess, bootstrap
from tests.sim.invariants.delivery.queue_contents import QueueKey, batch_key
from tests.sim.invariants.violation import Property, Violation

if TYPE_CHECKING:
    from tests.sim.world.world import World

TOPIC: Final = "t"
LIFE_SECONDS: Final = 25.0
"""A life ends after so long, on average."""
TIMES_MS: Final = (0.0, 100.0, 1_000.0)
ACTIONS: Final = {
    "poll": 80, "commit": 6, "committed": 4, "offsets": 3, "seek": 2, "seek to time": 2, "pause": 3,
}  # fmt: skip
"""How often each comes."""
BUSY: Final = (Unavailable, Overloaded, UnknownOutcome)
"""What a call that only reads may end with while members fail."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadingPlan:
    """What a consumer does. Times in virtual seconds."""

    name: str
    interval: float
    frame_bytes: int
    queues: tuple[QueueKey, ...]
    resets: bool


class RealConsumer:
    """A consumer over its lives."""

    def __init__(self, plan: ReadingPlan, world: "World", random: Random) -> None:
        self.plan = plan
        self._world = world
        self._oracle = world.oracle
        self._random = random
        self.running = True
        self.furthest = dict.fromkeys(plan.queues, 0)
        """How far it has read."""
        self._next = dict.fromkeys(plan.queues, 0)
        """The offset that must come next."""
        self._paused: set[QueueKey] = set()
        self._is_hurrying = False
        self._lives = 0
        self._process: ClientProcess | None = None
        self._commit: tuple[QueueKey, int, bool] | None = None
        """What is being committed: queue, offset, whether it may go back."""

    # Lives.

    def start(self) -> None:
        """Begin a life."""
        if not self.running:
            return
        self._lives += 1
        self._process = ClientProcess(self._world, self.plan.name, self._lives)
        self._process.spawn(self._run(), "the consumer")
        later = self._random.expovariate(1 / LIFE_SECONDS)
        self._world.scheduler.after(later, self._crash, self._lives)

    def _crash(self, life: int) -> None:
        if life == self._lives and self.running and not self._is_hurrying:
            self._world.trace(f"kill {self.plan.name}")
            self.close()
            self._oracle.counts["consumers ended"] += 1
            self._world.scheduler.after(self._random.uniform(0.01, 1.0), self.start)

    def hurry(self) -> None:
        """Only read from now on, without pauses."""
        self._is_hurrying = True

    def stop(self) -> None:
        """Read no more."""
        self.running = False

    def close(self) -> None:
        """End the present life at once."""
        if self._commit is not None:
            queue, offset, reset = self._commit
            self._oracle.commit_unknown(self.plan.name, queue, offset, reset=reset)
            self._commit = None
        if self._process is not None:
            self._process.end()

    def _fail(self, broken: Property, detail: str) -> None:
        raise Violation(broken, f"{self.plan.name}: {detail}")

    # One life.

    async def _run(self) -> None:
        members = [name for names in self._world.plan.groups.values() for name in names]
        consumer = AsyncConsumer(
            bootstrap(self._world, self._random),
            ConsumerConfig(
                group=self.plan.name,
                start_at=StartAt.FIRST,
                prefer=self._random.choice(("leader", "follower", self._random.choice(members))),
                frame_bytes=max(KIB, self.plan.frame_bytes),
                wait_ms=self._random.choice((50, 300, 1_000)),
            ),
        )
        assert self._process is not None
        self._process.owns(consumer._engine.cluster)
        await consumer.start()
        self._paused.clear()
        is_assigned = False
        while self.running:
            if not is_assigned:
                is_assigned = await self._assigned(consumer)
            elif self._is_hurrying:
                await self._resume(consumer)
                await self._poll(consumer, 500, 100.0)
                continue
            else:
                await self._turn(consumer)
            await asyncio.sleep(self._random.expovariate(1 / self.plan.interval))
        await consumer.close()
        self._process.end()

    async def _turn(self, consumer: AsyncConsumer) -> None:
        random = self._random
        queue = random.choice(self.plan.queues)
        match random.choices(list(ACTIONS), list(ACTIONS.values()))[0]:
            case "poll":
                timeout = random.choice(TIMES_MS)
                await self._poll(consumer, random.choice((1, 10, 500)), timeout)
                await self._resume(consumer, 0.3)
            case "commit":
                await self._commit_one(consumer, queue)
            case "committed":
                await self._read_committed(consumer)
            case "offsets":
                await self._read_offsets(consumer)
            case "seek":
                lowest = self._world.group_of(queue).applied_span().lowest[queue]
                offset = random.randint(lowest, max(lowest, self.furthest[queue]))
                await consumer.seek(TOPIC, queue[1], offset)
                self._world.story.client(self.plan.name, "goes to", offset, "of", queue)
                self._next[queue] = offset
            case "seek to time":
                await self._seek_to_time(consumer, queue)
            case _:
                await consumer.pause(TOPIC, queue[1])
                self._paused.add(queue)

    async def _busy(self, work: Awaitable[T]) -> T | None:
        """Return what a call returns; None when members fail."""
        try:
            return await work
        except BUSY as error:
            self._oracle.counts[f"consumer {error.code.name}"] += 1
            return None

    async def _resume(self, consumer: AsyncConsumer, share: float = 1.0) -> None:
        if self._paused and self._random.random() < share:
            self._paused.clear()
            await consumer.resume(TOPIC)

    # Where it begins.

    async def _assigned(self, consumer: AsyncConsumer) -> bool:
        """Assign all queues; False when that has failed."""
        spans = self._spans()
        all_have_topic = all(group.has_topic() for group in self._world.groups.values())
        try:
            how = self._random.choice(("committed", "first", "own"))
            if how == "own" and not all_have_topic:
                return False  # nobody would be asked before the first poll, which would fail
            if how == "own":
                starts = {(TOPIC, queue[1]): offset for queue, offset in self._next.items()}
                await consumer.assign(starts)
            else:
                await consumer.assign(TOPIC, StartAt.FIRST if how == "first" else None)
        except (*BUSY, TopicNotFound) as error:
            if isinstance(error, TopicNotFound) and all_have_topic:
                raise
            return False
        spans = self._ended(spans)
        for queue in self.plan.queues:
            position = consumer.position(TOPIC, queue[1])
            span = spans[queue]
            is_first = span.lowest[queue] <= position <= span.highest[queue]
            if how == "first" and not is_first:
                self._fail(Property.COMMITTED_READS, f"{queue} begins at {position}, not {span}")
            if how == "committed":
                self._check_committed(queue, position, may_be_none=is_first)
            self._next[queue] = position
        return True

    def _check_committed(self, queue: QueueKey, offset: int, *, may_be_none: bool) -> None:
        group = self.plan.name
        if may_be_none and self._oracle.may_have_no_offset(group, queue):
            return
        self._oracle.read_group_offset(group, group, queue, offset)

    def _spans(self) -> dict[QueueKey, Span]:
        return {queue: self._world.group_of(queue).applied_span() for queue in self.plan.queues}

    def _ended(self, begun: dict[QueueKey, Span]) -> dict[QueueKey, Span]:
        now = self._spans()
        return {
            queue: replace(span, ceiling=now[queue].ceiling, highest=now[queue].highest)
            for queue, span in begun.items()
        }

    # Reading.

    async def _poll(self, consumer: AsyncConsumer, most: int, timeout_ms: float) -> None:
        batches = await consumer.poll_batches(most, timeout_ms)
        if sum(len(batch) for batch in batches) > most:
            self._fail(Property.BOUNDED, f"more than {most} records: {batches}")
        self.take(batches)

    def take(self, batches: Sequence[RecordBatch]) -> None:
        """Compare what a poll has returned with the truth."""
        topic_id = self.plan.queues[0][0]
        for batch in batches:
            queue = topic_id, batch.queue
            if queue in self._paused:
                self._fail(Property.COMMITTED_READS, f"{batch} of a queue that is paused")
            self._check_place(queue, batch)
            self._check_records(queue, batch)
            self._next[queue] = batch.next_offset
            self.furthest[queue] = max(batch.next_offset, self.furthest[queue])
            self._oracle.counts["records consumed"] += len(batch)

    def _check_place(self, queue: QueueKey, batch: RecordBatch) -> None:
        due = self._next[queue]
        trimmed_to = self._world.group_of(queue).applied_span().highest[queue]
        if batch.base_offset != due and not due < batch.base_offset <= trimmed_to:
            self._fail(
                Property.COMMITTED_READS,
                f"{batch.base_offset} of {queue} came after {due}, trimmed is to {trimmed_to}",
            )

    def _check_records(self, queue: QueueKey, batch: RecordBatch) -> None:
        header = batch.view.header
        base_offset = batch.base_offset - batch.first_record
        if (batch.topic, header.topic_id, header.queue) != (TOPIC, *queue):
            self._fail(Property.CHECKED_BYTES, f"{header} came for {queue}")
        self._oracle.read_batch(
            self.plan.name, queue, base_offset, header.record_count, batch_key(header)
        )
        row = self._oracle.contents.queues[queue][base_offset]
        if batch.store_time_ms != row.store_time_ms:
            self._fail(Property.CHECKED_BYTES, f"{batch} is of {batch.store_time_ms}, not {row}")
        for record in batch:
            number = row.base_number + record.offset - base_offset
            if record.message_id != row.producer_id + number.to_bytes(8, "big"):
                self._fail(Property.CHECKED_BYTES, f"{record} is {record.message_id!r}, not {row}")
            for key in record.keys:
                if key not in self._oracle.contents.keyed:
                    self._fail(Property.CHECKED_BYTES, f"{record} has the key {key!r}")
            if row.producer_id in self._oracle.real_producers:
                self._oracle.read_body(self.plan.name, queue, record.offset, record.body)

    async def _seek_to_time(self, consumer: AsyncConsumer, queue: QueueKey) -> None:
        rows = self._oracle.contents.queues.get(queue)
        if not rows:
            return
        row = rows[self._random.choice(list(rows))]
        time_ms = row.store_time_ms + self._random.randint(-1, 1)
        spans = self._spans()
        before = consumer.position(TOPIC, queue[1])
        try:
            await consumer.seek_to_time(TOPIC, time_ms, queue[1])
        except BUSY:
            return
        position = consumer.position(TOPIC, queue[1])
        wanted = LookupTime(queue, time_ms)
        self._oracle.judge.check(
            f"{self.plan.name} from {before}", wanted, position, self._ended(spans)[queue]
        )
        self._oracle.counts["seeks to a time"] += 1
        self._next[queue] = position

    # Offsets.

    async def _commit_one(self, consumer: AsyncConsumer, queue: QueueKey) -> None:
        reset = self.plan.resets and self._random.random() < 0.2
        offset = self._next[queue]
        if reset or self._random.random() < 0.1:  # without reset: must be refused
            offset = self._random.randint(0, offset)
        group = self.plan.name
        self._commit = queue, offset, reset
        try:
            await consumer.commit({(TOPIC, queue[1]): offset}, reset=reset)
        except OffsetBehind:
            self._oracle.commit_behind(group, queue, offset, -1)
        except ClientError as error:
            if not error.definite:
                self._oracle.commit_unknown(group, queue, offset, reset=reset)
            elif not isinstance(error, BUSY):
                raise
        else:
            self._oracle.commit_ok(group, queue, offset, reset=reset)
        self._commit = None

    async def _read_committed(self, consumer: AsyncConsumer) -> None:
        found = await self._busy(consumer.committed(TOPIC))
        if found is not None:
            for queue in self.plan.queues:
                offset = found.get(queue[1], -1)
                self._oracle.read_group_offset(self.plan.name, self.plan.name, queue, offset)

    async def _read_offsets(self, consumer: AsyncConsumer) -> None:
        floors = dict(self._oracle.acknowledged_ends)
        found = await self._busy(consumer.offsets(TOPIC))
        if found is not None:
            for queue in self.plan.queues:
                end = found[queue[1]].maximum
                self._oracle.read_end(self.plan.name, queue, floors.get(queue, 0), end)
