"""A consumer of a consumer group that shares a topic: the product's own, whole, over its lives.

Owns: what a user does. A life is a push consumer with a listener, or a consumer that polls and
commits by hand or not. Its process dies, closes in order, stands still, begins again, also as a
static consumer. Its listener is slow, fails, hangs. Each record it gets goes to `Handling`.
"""

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from dledger_client import AsyncConsumer, AsyncPushConsumer
from dledger_client._core.group.queues import HeldQueue
from dledger_client.config import ConsumerConfig, PushConfig
from dledger_client.errors import (
    ClientError,
    ConsumerFenced,
    OffsetWasReset,
    Overloaded,
    Unavailable,
    UnknownOutcome,
)
from dledger_client.model import DeadLetter, Delivery, Retry
from dledger_client.records import ConsumedRecord
from tests.sim.clients.group.plan import SharePlan
from tests.sim.clients.process import ClientProcess, bootstrap
from tests.sim.invariants.delivery.handling import Call
from tests.sim.invariants.delivery.records import TOPIC
from tests.sim.invariants.violation import Violation
from tests.sim.world.clock import true_ms

if TYPE_CHECKING:
    from tests.sim.world.world import World

UPSETS: Final = {"kill": 4, "close": 3, "pause": 6}
PAUSE_MAX: Final = 8.0
AWAY_MAX: Final = 3.0
HANGING_SHARE: Final = 0.01
TIMEOUTS_MS: Final = (500, 2_000, 30_000)
COMMITS_MS: Final = (100, 300, 1_000)
BUSY: Final = (Unavailable, Overloaded, UnknownOutcome)


class Worker:
    """One consumer over its lives."""

    def __init__(self, world: "World", plan: SharePlan, host: str) -> None:
        self.host = host
        self._world = world
        self._plan = plan
        self._random = Random(f"{world.plan.seed}/{host}")
        self._instance = host if self._random.random() < 0.2 else ""
        assert world.shared is not None
        self._handling = world.shared.handling
        self._process: ClientProcess | None = None
        self._lives = 0
        self._is_closing = False
        self._open: dict[Call, None] = {}
        self.is_calm = False
        """Nothing fails or upsets it any more."""
        self._stays_away = False

    @property
    def runs(self) -> bool:
        """Tell whether its process runs."""
        return self._process is not None and not self._process.loop.is_ended

    # Lives.

    def start(self) -> None:
        """Begin a life."""
        if self.runs or self._stays_away:
            return
        self._lives += 1
        self._is_closing = False
        self._process = ClientProcess(self._world, self.host, self._lives)
        self._process.spawn(self._run(self._process), "the consumer")
        later = self._random.expovariate(1 / self._plan.upset)
        self._world.scheduler.after(later, self._upset, self._lives)

    def _upset(self, life: int) -> None:
        if life != self._lives or self.is_calm or not self.runs:
            return
        assert self._process is not None
        random, scheduler = self._random, self._world.scheduler
        how = random.choices(list(UPSETS), list(UPSETS.values()))[0]
        self._world.oracle.counts[f"group consumers: {how}"] += 1
        self._world.trace(f"{how} {self.host}")
        if how == "kill":
            self.kill()
            self._start_later()
        elif how == "close":
            self._is_closing = True
        else:
            self._process.loop.pause()
            scheduler.after(random.uniform(0.2, PAUSE_MAX), self._resume, life)
            scheduler.after(random.expovariate(1 / self._plan.upset), self._upset, life)

    def _start_later(self) -> None:
        away = 0.01 if self.is_calm else self._random.uniform(0.01, AWAY_MAX)
        self._world.scheduler.after(away, self.start)

    def _resume(self, life: int) -> None:
        if life == self._lives and self.runs and self._process is not None:
            self._process.loop.resume()

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._process.end()
        for call in list(self._open):
            self._end(call, is_handled=None)

    def calm(self) -> None:
        """Only consume from now on."""
        self.is_calm = True
        if self.runs and self._process is not None:
            if self._process.loop.is_paused:
                self._process.loop.resume()
        else:
            self.start()

    def leave(self) -> None:
        """Close in order, and stay away."""
        self._stays_away = self._is_closing = True

    # One life.

    async def _run(self, process: ClientProcess) -> None:
        random = self._random
        polls = random.random() < self._plan.polls_share
        by_hand = polls and random.random() < 0.5
        config = ConsumerConfig(
            group=self._plan.name,
            order=self._plan.order,
            create_group=False,
            commit_interval_ms=0 if by_hand else random.choice(COMMITS_MS),
            revoke_timeout_ms=random.choice((200, 30_000)),
            instance=self._instance,
            wait_ms=random.choice((50, 300, 1_000)),
        )
        run = self._poll if polls else self._push
        try:
            await run(process, config)
        except ConsumerFenced:  # its next life has taken its place
            assert self._instance, f"{self.host} is fenced"
        process.end()
        self._start_later()

    async def _push(self, process: ClientProcess, config: ConsumerConfig) -> None:
        random = self._random

        async def listener(record: ConsumedRecord, delivery: Delivery) -> object:
            try:
                return await self._listen(process, _claim_of(consumer, record), record, delivery)
            except Violation as found:  # the consumer takes it for a record that failed
                self._world.found(found)
                raise

        push = PushConfig(
            config,
            concurrency=random.choice((1, 4)),
            listener_timeout_ms=random.choice(TIMEOUTS_MS),
            queue_records=random.choice((3, 1_000)),
        )
        consumer = AsyncPushConsumer(
            bootstrap(self._world, random), self._plan.name, TOPIC, listener, push
        )
        engine = consumer._engine
        process.owns(engine.fetching.cluster)
        if not await self._joins(consumer):
            return
        while not self._is_closing:
            if engine.error is not None:
                await consumer.close()
                raise engine.error
            await asyncio.sleep(0.05)
        await consumer.close()

    async def _joins(self, consumer: AsyncPushConsumer) -> bool:
        try:
            await consumer.start()
        except BUSY as error:
            self._count(error)
            return False
        return True

    def _count(self, error: ClientError) -> None:
        self._world.oracle.counts[f"group consumer {error.code.name}"] += 1

    # A listener.

    async def _listen(
        self, process: ClientProcess, held: HeldQueue | None, record: ConsumedRecord,
        delivery: Delivery,
    ) -> object:  # fmt: skip
        random, loop = self._random, process.loop
        now = self._world.scheduler.now
        lease_end = now + delivery.deadline - loop.time()
        call = self._begin(record, held, delivery.attempts, lease_end)
        fails = not self.is_calm and random.random() < self._plan.failing_share
        takes = self._takes()
        if not self.is_calm and random.random() < HANGING_SHARE:
            takes = 60.0
        try:
            if takes:
                await asyncio.sleep(takes)
        except asyncio.CancelledError:  # its time is over, or the queue is lost
            if loop.time() >= delivery.deadline:
                self._handling.failed(self._plan.name, call)
            self._end(call, is_handled=None)
            raise
        in_time = loop.time() < delivery.deadline
        return self._outcome(call, fails=fails, in_time=in_time)

    def _takes(self) -> float:
        """Draw how long a record takes."""
        slow = self._plan.slow
        return self._random.expovariate(1 / slow) if slow and not self.is_calm else 0.0

    def _outcome(self, call: Call, *, fails: bool, in_time: bool) -> object:
        if not in_time or fails:
            self._handling.failed(self._plan.name, call)
        self._end(call, is_handled=in_time and not fails)
        if not in_time:
            raise TimeoutError("its time was over")
        if not fails:
            return None
        how = self._random.random()
        if how < 0.1:
            return DeadLetter("drawn")
        if how < 0.4:
            return Retry(self._random.choice((0, 300, 2_000)), "drawn")
        raise ValueError("drawn")

    def _begin(
        self, record: ConsumedRecord, held: HeldQueue | None, attempts: int, lease_end: float
    ) -> Call:
        scheduler = self._world.scheduler
        call = self._handling.begin(
            self.host, self._plan.name, record, held, attempts, lease_end, scheduler.now,
            true_ms(scheduler),
        )  # fmt: skip
        self._world.story.client(
            self.host, "gets", f"{record.topic}/{record.queue}@{record.offset}", "by", call.claim
        )
        self._open[call] = None
        return call

    def _end(self, call: Call, *, is_handled: bool | None) -> None:
        if self._open.pop(call, call) is None:
            self._handling.end(self._plan.name, call, is_handled=is_handled)

    # A consumer that polls.

    async def _poll(self, process: ClientProcess, config: ConsumerConfig) -> None:
        random = self._random
        consumer = AsyncConsumer(bootstrap(self._world, random), config)
        process.owns(consumer._engine.cluster)
        await consumer.start()
        try:
            await consumer.subscribe(TOPIC)
        except BUSY as error:
            self._count(error)
            await consumer.close()
            return
        while not self._is_closing:
            records = await consumer.poll(random.choice((1, 5, 100)), random.choice((0, 100, 500)))
            calls = [self._begin(*self._polled(consumer, record)) for record in records]
            await asyncio.sleep(0.01 + self._takes())
            for call in calls:
                self._end(call, is_handled=True)
            if not config.commit_interval_ms:
                await self._commit(consumer)
        await consumer.close()

    @staticmethod
    def _polled(
        consumer: AsyncConsumer, record: ConsumedRecord
    ) -> tuple[ConsumedRecord, HeldQueue | None, int, float]:
        polling = consumer._engine.polling
        assert polling is not None
        held = polling._held.get((record.topic, record.queue))
        return record, held, record.attempts, float("inf")

    async def _commit(self, consumer: AsyncConsumer) -> None:
        try:
            await consumer.commit()
        except (ConsumerFenced, OffsetWasReset, *BUSY) as error:
            self._count(error)
            return
        self._world.oracle.counts["group commits by hand"] += 1


def _claim_of(consumer: AsyncPushConsumer, record: ConsumedRecord) -> HeldQueue | None:
    """Return the claim by which a listener gets a record; None: the queue is lost meanwhile."""
    for job in consumer._engine._dispatcher._jobs:
        if any(each is record for each in job.records):
            return job.chain.lane.held
    return None
