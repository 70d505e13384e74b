"""Who sends into the topic that consumer groups share: the product's own producer, whole.

Owns: records with keys, at once or delayed by a time, a moment or a level; recalls of some. What a
send or a recall is told is compared with the model of the log.
"""

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, Final

from dledger_client import AsyncAdmin, AsyncProducer
from dledger_client.config import ProducerConfig
from dledger_client.errors import ClientError, NothingFound, Overloaded, Unavailable, UnknownOutcome
from dledger_client.model import SendResult
from tests.sim.clients.group.plan import SENDER_HOST, DeliveryPlan
from tests.sim.clients.process import ClientProcess, bootstrap
from tests.sim.invariants.delivery.records import TOPIC
from tests.sim.invariants.violation import Property, Violation
from tests.sim.world.clock import true_ms

if TYPE_CHECKING:
    from tests.sim.world.world import World

PENDING_MAX: Final = 40
DELAY_MS_MAX: Final = 10_000
LEVELS: Final = 3
BUSY: Final = (Unavailable, Overloaded, UnknownOutcome)


class Sender:
    """One producer, for as long as the world lasts."""

    def __init__(self, world: "World", plan: DeliveryPlan) -> None:
        self._world = world
        self._plan = plan
        assert world.shared is not None
        self._records = world.shared.records
        self._random = Random(f"{world.plan.seed}/{SENDER_HOST}")
        self._process: ClientProcess | None = None
        self.running = True
        self.pending = 0
        self._settled = asyncio.Event()
        self._sent = 0
        self._delayed: list[bytes] = []
        """Ids of delayed messages that may be recalled."""

    def start(self) -> None:
        """Begin to send."""
        self._process = ClientProcess(self._world, SENDER_HOST, 1)
        self._process.spawn(self._run(self._process), "the sender")

    def stop(self) -> None:
        """Send nothing more."""
        self.running = False

    @property
    def is_over(self) -> bool:
        """Tell whether everything has an outcome."""
        return self._process is None or self._process.loop.is_ended

    def kill(self) -> None:
        """End with the world."""
        if self._process is not None:
            self._process.end()

    async def _run(self, process: ClientProcess) -> None:
        random = self._random
        config = ProducerConfig(linger_ms=random.choice((0.0, 20.0)))
        producer = AsyncProducer(bootstrap(self._world, random), config)
        admin = AsyncAdmin(bootstrap(self._world, random))
        process.owns(producer._engine.cluster)
        process.owns(admin._cluster)
        await producer.start()
        await admin.start()
        while self.running:
            await asyncio.sleep(random.expovariate(1 / self._plan.send_interval))
            for _ in range(random.choice((1, 1, 1, 4))):
                if self.pending < PENDING_MAX:
                    self.pending += 1
                    process.spawn(self._send(producer), "a send")
            if self._plan.recalls and self._delayed and random.random() < 0.1:
                await self._recall(admin)
        await producer.close()
        if self.pending:
            self._settled.clear()
            await self._settled.wait()
        await admin.close()
        process.end()

    def _delay(self) -> dict[str, Any]:
        random = self._random
        if random.random() >= self._plan.delayed_share:
            return {}
        drawn = random.random()
        if drawn < 0.2:
            return {"delay_level": random.randint(1, LEVELS)}
        delay_ms = random.choice((random.randint(1, 500), random.randint(1, DELAY_MS_MAX)))
        if drawn < 0.6:
            return {"delay_ms": delay_ms}
        return {"deliver_at_ms": true_ms(self._world.scheduler) + delay_ms}

    async def _send(self, producer: AsyncProducer) -> None:
        self._sent += 1
        body = b"v%d" % self._sent
        random = self._random
        key = f"k{random.randrange(self._plan.keys)}"
        given = self._delay()
        if random.random() < 0.5:
            given["ordering_key"] = key
        try:
            result = await producer.send(TOPIC, body, keys=(key,), **given)
        except ClientError as error:
            self._world.oracle.counts[f"shared sends {error.code.name}"] += 1
        else:
            self._stored(result, key, body, is_delayed=bool(given.keys() - {"ordering_key"}))
        finally:
            self.pending -= 1
            if not self.pending:
                self._settled.set()

    def _stored(self, result: SendResult, key: str, body: bytes, *, is_delayed: bool) -> None:
        """Compare what was acknowledged with what the log holds."""
        self._world.oracle.counts["shared sends ok"] += 1
        copy = self._records.known.get(result.message_id)
        is_whole = copy is not None and (copy.key, copy.body) == (key, body)
        if copy is None or not is_whole or (copy.due_ms > 0) != is_delayed:
            raise Violation(Property.DELIVERED, f"{result} is acknowledged, the log has {copy}")
        if is_delayed:
            self._delayed.append(result.message_id)

    async def _recall(self, admin: AsyncAdmin) -> None:
        message = self._delayed.pop(self._random.randrange(len(self._delayed)))
        try:
            await admin.recall(message)
        except NothingFound:
            if self._records.is_waiting(message):
                raise Violation(
                    Property.TIMERS, f"a timer has {message.hex()}, it was not found"
                ) from None
        except BUSY as error:
            self._world.oracle.counts[f"recalls {error.code.name}"] += 1
        else:
            if message not in self._records.recalled:
                raise Violation(Property.TIMERS, f"{message.hex()} was recalled, says an answer")
