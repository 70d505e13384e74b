"""The product's own producer, whole, in the simulated world.

Owns: lives of one name. A life is a process with an `AsyncProducer`; it sends messages one by one
and together, bound to a queue, by an ordering key or to any queue, and some one-way. A crash ends
the process, or leaves it running for seconds while the next life has begun (a zombie), or lets it
close in order. What each send is told is compared with the log, message by message. A one-way
message may lie in the log once. A life is fenced only by another one that ran at the same time;
then it stores nothing more.
"""

import asyncio
import bisect
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from dledger_client import AsyncProducer
from dledger_client._core.delivery import Delivery, placed
from dledger_client._core.ids import named_producer_id
from dledger_client._shell.futures import AsyncSendFuture, when_done
from dledger_client.config import ProducerConfig
from dledger_client.errors import ClientError, ProducerFenced
from dledger_client.model import SendResult
from dledger_proto.batch.codec import Compression, Record, parse_header, parse_message_id
from dledger_proto.keyhash import queue_of_key
from dledger_proto.rpc.frames import parse_append
from tests.sim.clients.oracle import Send
from tests.sim.clients.process import ClientProcess, bootstrap
from tests.sim.clients.producer import ProducerPlan, marked_record
from tests.sim.invariants.delivery.queue_contents import QueueKey, batch_key
from tests.sim.invariants.violation import Property, Violation
from tests.sim.member.config import CLUSTER
from tests.sim.world.plan import hosts_of

if TYPE_CHECKING:
    from tests.sim.world.world import World

TOPIC: Final = "t"
PENDING_MAX: Final = 120
"""Messages of a life without an outcome; beyond it the life pauses (I17)."""
TIMEOUT_MS: Final = 10_000
TOGETHER_MAX: Final = 4
ONE_WAY_SHARE: Final = 0.15
TOGETHER_SHARE: Final = 0.15
PINNED_SHARE: Final = 0.5
ORDERED_SHARE: Final = 0.25
ORDERING_KEYS: Final = 8
ENDS: Final = ("kill", "zombie", "close")
ENDS_WEIGHTS: Final = (5, 3, 2)
ZOMBIE_MIN: Final = 1.0
ZOMBIE_MAX: Final = 6.0


class RealProducer:
    """All lives of one producer name. The newest is the present one."""

    def __init__(self, plan: ProducerPlan, world: "World", random: Random) -> None:
        self.plan = plan
        self.world = world
        self.random = random
        self.producer_id = named_producer_id(CLUSTER, plan.name)
        world.oracle.real_producers.add(self.producer_id)
        self.running = True
        self.lives = 0
        self._count = 0
        self._present: Life | None = None
        self._living: list[Life] = []

    @property
    def pending(self) -> int:
        """Return how many messages have no outcome yet."""
        return sum(life.pending for life in self._living)

    def start(self) -> None:
        """Begin the next life, on a host that is free."""
        if not self.running:
            return
        taken = {life.process.name: life for life in self._living}
        free = [host for host in hosts_of(self.plan.name) if host not in taken]
        if not free:
            oldest = self._living[0]
            oldest.kill()
            free = [oldest.process.name]
        self.lives += 1
        life = self._present = Life(self, free[0], self.lives)
        for other in self._living:
            other.met_another = life.met_another = True
        self._living.append(life)
        life.process.spawn(life.run(), "the producer")

    def stop(self) -> None:
        """Send no new message; what was handed over is still repeated."""
        self.running = False

    def close(self) -> None:
        """End every life, with the world."""
        for life in list(self._living):
            life.kill()

    def crash(self, how: str = "") -> None:
        """End the present life in one of three ways; another one begins."""
        life = self._present
        if life is None:
            return
        self._present = None
        how = how or self.random.choices(ENDS, ENDS_WEIGHTS)[0]
        self.world.oracle.counts[f"producers ended by {how}"] += 1
        self.world.trace(f"stop {life.process.name} by {how}")
        if how == "kill":
            life.kill()
        elif how == "close":
            life.is_closing = True
        else:
            later = self.random.uniform(ZOMBIE_MIN, ZOMBIE_MAX)
            self.world.scheduler.after(later, life.kill)
        self.world.scheduler.after(self.plan.interval, self.start)

    def fenced(self, life: "Life") -> None:
        """Take a life that another one has fenced: if it was the present one, begin anew."""
        if life is self._present:
            self.world.trace(f"stop {life.process.name} because it is fenced")
            self._present = None
            life.is_closing = True
            self.world.scheduler.after(self.plan.interval, self.start)

    def ended(self, life: "Life") -> None:
        """Take the end of a life."""
        if life in self._living:
            self._living.remove(life)

    def next_body(self, size: int) -> bytes:
        """Return a body that no other message has."""
        self._count += 1
        return f"{self.plan.name}-{self.lives}-{self._count}".encode().ljust(size, b".")


class Life:
    """One process that sends under the name."""

    producer: AsyncProducer
    _engine: Any

    def __init__(self, owner: RealProducer, host: str, number: int) -> None:
        self.owner = owner
        self.plan = owner.plan
        self.world = owner.world
        self.oracle = owner.world.oracle
        self.random = Random(owner.random.random())
        self.process = ClientProcess(owner.world, host, number)
        self.is_closing = False
        """It sends nothing more, and closes in order."""
        self.met_another = False
        """Another life has run at the same time."""
        self._is_started = False
        self._calls = 0
        self._unsettled: dict[int, tuple[Sequence[Send], Delivery | None]] = {}
        self._handed_over: dict[int, int] = {}
        """By call, its place among all of them: `send_many` runs some turns later."""
        self._handing_over = 0
        """The call of several messages that is handed over right now."""
        self._order: dict[QueueKey, list[tuple[int, int]]] = {}
        """By queue: place of the call and offset of each message that was bound to it."""
        self._fenced_at: dict[str, float] = {}
        """By group, when this life learned it."""

    @property
    def pending(self) -> int:
        """Return how many messages have no outcome yet."""
        return sum(len(sends) for sends, _ in self._unsettled.values())

    # Its process.

    async def run(self) -> None:
        """Send until the producer is stopped or this life is to close; then close in order."""
        plan, random = self.plan, self.random
        config = ProducerConfig(
            name=plan.name,
            timeout_ms=TIMEOUT_MS,
            linger_ms=random.choice((0.0, 5.0, 50.0)),
            batch_records=plan.records_max,
            batches_in_flight=plan.window,
            compression=random.choice((Compression.NONE, Compression.NONE, *Compression)),
            avoid_slow_groups=random.random() < 0.3,
        )
        producer = self.producer = AsyncProducer(bootstrap(self.world, random), config)
        self._engine = producer._engine
        self._look_on()
        self.process.owns(self._engine.cluster)
        await producer.start()
        self._is_started = True
        while self.owner.running and not self.is_closing:
            await asyncio.sleep(random.expovariate(1 / plan.interval))
            for _ in range(random.randint(1, plan.records_max)):
                if self.pending < PENDING_MAX:
                    self._send_some()
                    if random.random() < 0.3:  # another turn: what was begun goes on between
                        await asyncio.sleep(0)
        if random.random() < 0.5:
            await producer.flush()
        await producer.close()
        await asyncio.sleep(0)  # who waited for an outcome hears it
        if self._unsettled:
            self._fail(Property.OUTCOME, f"closed, and {self.pending} sends have no outcome")
        self._over()

    def kill(self) -> None:
        """End at once, with everything in memory."""
        if self.process.loop.is_ended:
            return
        if self._is_started:
            self._engine.is_closed = True  # nobody is to miss its end
        for sends, future in self._unsettled.values():
            self._name(sends, future)
            for send in sends:
                self.oracle.info_send(send)
        self._unsettled.clear()
        self._over()

    def _over(self) -> None:
        self.process.end()
        self.owner.ended(self)

    def _fail(self, broken: Property, detail: str) -> None:
        raise Violation(broken, f"{self.plan.name} at {self.process.name}: {detail}")

    # Looking at what the producer takes and lets out.

    def _look_on(self) -> None:
        core, take_batch = self._engine.core, self._engine.take_batch
        next_frame = core.next_frame

        def took(future: Delivery, *arguments: Any) -> Delivery:
            call = self._handing_over
            self._unsettled[call] = self._unsettled[call][0], future
            taken: Delivery = take_batch(future, *arguments)
            return taken

        def sends(link: int, now: float, wall_ms: int) -> bytes | None:
            frame: bytes | None = next_frame(link, now, wall_ms)
            if frame is not None:
                self._note_one_way(frame)
            return frame

        self._engine.take_batch, core.next_frame = took, sends

    def _note_one_way(self, frame: bytes) -> None:
        """Tell the oracle of one-way batches that leave. Each is stored at most once."""
        header, batches = parse_append(frame)
        for batch in batches if header.one_way else ():
            found = parse_header(batch)
            queue = found.topic_id, found.queue
            now = self.world.scheduler.now
            send = self.oracle.invoke_send(
                self.plan.name, queue, found.record_count, now, idempotent=False
            )
            self.oracle.stamped(send, batch_key(found))
            send.open_attempts = 1
            self.oracle.info_send(send)
            self.oracle.counts["one-way batches"] += 1

    # Sending.

    def _send_some(self) -> None:
        """Hand over one message, or several together."""
        random = self.random
        self._calls += 1
        binding, queue = self._binding()
        way = random.random()
        if way < ONE_WAY_SHARE:
            record = self._record(None)
            self.producer.send_one_way(
                TOPIC, record.body, tag=record.tag, keys=record.keys,
                properties=record.properties, **binding,
            )  # fmt: skip
        elif way < ONE_WAY_SHARE + TOGETHER_SHARE:
            sends = [self._invoke(queue) for _ in range(random.randint(1, TOGETHER_MAX))]
            records = [self._record(send) for send in sends]
            self._unsettled[self._calls] = sends, None
            work = self._send_together(self._calls, records, binding, bound=queue is not None)
            self.process.spawn(work, "a batch")
        else:
            send = self._invoke(queue)
            record = self._record(send)
            future = self.producer.submit(
                TOPIC, record.body, tag=record.tag, keys=record.keys,
                properties=record.properties, **binding,
            )  # fmt: skip
            self._handed_over[self._calls] = len(self._handed_over)
            self._unsettled[self._calls] = [send], future
            done = partial(self._one_settled, self._calls, future, bound=queue is not None)
            when_done(future, done)

    def _binding(self) -> tuple[dict[str, Any], QueueKey | None]:
        """Draw what binds a message to a queue; return it, and which queue that is."""
        random, queues = self.random, self.plan.queues
        drawn = random.random()
        if drawn < PINNED_SHARE:
            queue = random.choice(queues)
            return {"queue": queue[1]}, queue
        if drawn < PINNED_SHARE + ORDERED_SHARE:
            key = f"o{random.randrange(ORDERING_KEYS)}"
            return {"ordering_key": key}, queues[queue_of_key(key.encode(), len(queues))]
        return {}, None

    def _invoke(self, queue: QueueKey | None) -> Send:
        send = self.oracle.invoke_send(
            self.plan.name, queue or self.plan.queues[0], 1, self.world.scheduler.now,
            idempotent=True,
        )  # fmt: skip
        if queue is None:
            send.floor = 0  # the producer chooses the queue
        return send

    def _record(self, send: Send | None) -> Record:
        body = self.owner.next_body(self.random.randint(1, self.plan.body_max))
        self.oracle.bodies[body] = send
        return marked_record(self.random, body, self.plan.keys)

    async def _send_together(
        self, call: int, records: Sequence[Record], binding: dict[str, Any], *, bound: bool
    ) -> None:
        outcome: Sequence[SendResult] | ClientError
        self._handed_over[call] = len(self._handed_over)
        self._handing_over = call  # the producer hands over before it waits
        try:
            outcome = await self.producer.send_many(TOPIC, records, **binding)
        except ClientError as error:
            outcome = error
        self._settled(call, outcome, bound=bound)

    def _one_settled(self, call: int, future: AsyncSendFuture, *, bound: bool) -> None:
        try:
            error = future.exception()
            outcome = [future.result()] if error is None else error
            self._settled(call, outcome, bound=bound)
        except Exception as found:  # the producer would only log it
            self.world.found_error(found, f"{self.process.name}: an outcome")

    # Outcomes.

    def _settled(
        self, call: int, outcome: Sequence[SendResult] | ClientError, *, bound: bool
    ) -> None:
        """Compare what a call was told with the log."""
        if call not in self._unsettled:
            return
        sends, future = self._unsettled.pop(call)
        self._name(sends, future)
        if isinstance(outcome, ClientError):
            self._refused(sends, outcome, bound=bound)
            return
        first = outcome[0]
        for place, (send, result) in enumerate(zip(sends, outcome, strict=True)):
            queue = self.plan.queues[result.queue]
            if bound and queue != send.queue:
                self._fail(Property.OUTCOME, f"stored in {queue}, not in the one of {send}")
            send.queue = queue
            send.message = parse_message_id(result.message_id)
            if result.offset != (first.offset + place if first.offset >= 0 else -1):
                self._fail(Property.OUTCOME, f"sent together, stored apart: {outcome}")
            self.oracle.ok_message(send, result.offset)
            self._check_result(send, result)
        if bound and first.offset >= 0:
            self._check_order(self._handed_over[call], sends[0])
        group = self.world.group_of(sends[0].queue).name
        if sends[0].invoked > self._fenced_at.get(group, sends[0].invoked):
            self._fail(Property.PRODUCER_VERDICTS, f"fenced in {group} before it stored {sends[0]}")

    def _name(self, sends: Sequence[Send], future: Delivery | None) -> None:
        """Note under which numbers messages may be stored."""
        place = None if future is None else placed(future)
        if place is not None and place[0].base_number >= 0:
            first = place[0].base_number + place[1]
            for number, send in enumerate(sends, first):
                send.message = self.owner.producer_id, number

    def _refused(self, sends: Sequence[Send], error: ClientError, *, bound: bool) -> None:
        for send in sends:
            if not error.definite:
                self.oracle.info_send(send)
            else:
                self.oracle.fail_send(send, error.code)
        if isinstance(error, ProducerFenced):
            if not self.met_another:
                self._fail(Property.PRODUCER_VERDICTS, f"fenced by a life that is no more: {error}")
            if bound:
                group = self.world.group_of(sends[0].queue).name
                self._fenced_at.setdefault(group, self.world.scheduler.now)
            self.owner.fenced(self)

    def _check_result(self, send: Send, result: SendResult) -> None:
        """Compare what else a result says."""
        assert send.message is not None
        row = self.oracle.contents.rows[send.message]
        due = TOPIC, self.world.group_of(send.queue).name, self.owner.producer_id
        if (result.topic, result.group, send.message[0]) != due:
            self._fail(Property.OUTCOME, f"{result} for {send}, not {due}")
        if not result.duplicate and result.index != row.index:
            self._fail(Property.OUTCOME, f"{result}: the entry is {row.index}")

    def _check_order(self, call: int, send: Send) -> None:
        """Messages that are bound to one queue lie there in the order of the calls."""
        order = self._order.setdefault(send.queue, [])
        at = bisect.bisect(order, (call, send.offset))
        before = order[at - 1][1] if at else -1
        after = order[at][1] if at < len(order) else 1 << 62
        if not before < send.offset < after:
            self._fail(
                Property.PRODUCER_ORDER, f"call {call} is at {send.offset}, others at {order[-9:]}"
            )
        order.insert(at, (call, send.offset))
