"""A simulated producer: batches in order for several queues, several in flight, repeated.

Owns: what D11 asks of a client. A stamped batch is repeated at the new leader after an unknown
outcome, with the same sequence; only a definite outcome ends it. When one is given up its queue
cannot go on in this epoch: the producer registers anew, stamps again what certainly is not stored,
and starts at sequence 0. A producer without stamps never repeats an unknown send. Crashes forget
everything and come back as the same named producer, fencing the old one, whose calls may still fly.
"""

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol

from dledger_proto.batch.codec import ProducerStamp, Record, encode_batch, parse_header, restamp
from dledger_proto.errors import MEANINGS, Code
from tests.sim.clients.lookups import key_of
from tests.sim.clients.oracle import Oracle, Send
from tests.sim.clients.requests import Append, Register, Registered, Taken
from tests.sim.clients.wire import Answer, Calls
from tests.sim.invariants.delivery.queue_contents import QueueKey, batch_key
from tests.sim.world.clock import Scheduler

TRY_TIMEOUT = 3.0
SEND_DEADLINE = 25.0
RETRY_MIN = 0.05
RETRY_MAX = 0.5
OLD_BATCHES_MAX = 60
REPEAT_SHARE = 0.15
"""Of the turns: an old batch is sent again, as by a life that does not know it is over."""
PENDING_MAX = 40
"""Batches that wait or fly per queue; beyond it the producer pauses (I17)."""


class Router(Protocol):
    """Where a client looks for the leader."""

    members: list[str]

    def leader(self, client: str) -> tuple[int, str]:
        """Return the highest term heard of, and its leader ("" when none)."""
        ...


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    """What a producer does. Times in virtual seconds."""

    name: str
    stamped: bool
    interval: float
    records_max: int
    body_max: int
    window: int
    queues: tuple[QueueKey, ...]
    keys: int
    """How many different keys the records have."""


@dataclass(slots=True, eq=False)
class Job:
    """One batch on its way."""

    send: Send
    batch: bytes
    flying: int = 0
    """Number of the attempt that is out; 0: none."""
    unknown: bool = False
    """Some attempt may have stored it."""
    stale: bool = False
    """Stamped under an older epoch: only for settling, never sent again."""


@dataclass(slots=True)
class Lane:
    """One queue of a producer."""

    queue: QueueKey
    jobs: deque[Job] = field(default_factory=deque)
    next_sequence: int = 0
    retry_at: float = 0.0


def marked_record(random: Random, body: bytes, keys: int) -> Record:
    """Return a record with a body, perhaps a tag, up to three keys, perhaps a property."""
    tag = random.choice(("", "paid", "shipped"))
    chosen = {key_of(random, keys): None for _ in range(random.choice((0, 1, 1, 3)))}
    properties = {"region": "eu-west"} if random.random() < 0.5 else {}
    return Record(body, tag=tag, keys=tuple(chosen), properties=properties)


class Producer:
    """One producing process."""

    def __init__(
        self,
        plan: ProducerPlan,
        scheduler: Scheduler,
        random: Random,
        calls: Calls,
        router: Router,
        oracle: Oracle,
    ) -> None:
        self.plan = plan
        self._scheduler = scheduler
        self._random = random
        self._calls = calls
        self._router = router
        self._oracle = oracle
        self.running = True
        self._life = 0
        """Grows with every crash: what an older life asked for is nobody's any more."""
        self._producer_id = random.randbytes(16)
        self._begin_life()
        self._registering = False
        self._number = 0
        self._attempt = 0
        self._target = random.choice(router.members)
        self._target_term = 0
        self._lanes = {queue: Lane(queue) for queue in plan.queues}
        self._old: deque[tuple[Send, bytes]] = deque(maxlen=OLD_BATCHES_MAX)
        """Stamped batches that were answered, or given up with their life."""

    def _begin_life(self) -> None:
        self._life_id = self._random.randbytes(16)
        self._epoch = 0
        """What is stamped with now; 0: it registers first."""
        self._held = 0
        """The newest epoch of this life."""
        self._taken = 0
        """Of the life that this one is about to take over from."""

    def start(self) -> None:
        """Begin to send."""
        self._scheduler.after(self._random.uniform(0, self.plan.interval), self._produce, 0)
        self._scheduler.after(0.25, self._watch, 0)

    @property
    def pending(self) -> int:
        """Return how many sends have no outcome yet."""
        return sum(len(lane.jobs) for lane in self._lanes.values())

    def stop(self) -> None:
        """Send nothing new; what is on its way is still retried."""
        self.running = False

    def crash(self) -> None:
        """Lose everything in memory and start again under the same name."""
        self._calls.crash(self.plan.name)
        for lane in self._lanes.values():
            for job in lane.jobs:
                if job.unknown or job.flying:
                    self._oracle.info_send(job.send)
                    self._old.append((job.send, job.batch))
                else:
                    self._oracle.fail_send(job.send, Code.NOT_PROPOSED)
        self._lanes = {queue: Lane(queue) for queue in self.plan.queues}
        self._life += 1
        self._begin_life()
        self._registering = False
        self._scheduler.after(self.plan.interval, self._produce, self._life)
        self._scheduler.after(0.25, self._watch, self._life)

    # Making batches.

    def _produce(self, life: int) -> None:
        if life != self._life or not self.running:
            return
        self._scheduler.after(self._random.expovariate(1 / self.plan.interval), self._produce, life)
        if self.plan.stamped and self._epoch == 0:
            self._register()
            return
        if self.plan.stamped and self._random.random() < REPEAT_SHARE:
            self._repeat_old()
        lane = self._lanes[self._random.choice(self.plan.queues)]
        if len(lane.jobs) >= PENDING_MAX:
            return
        count = self._random.randint(1, self.plan.records_max)
        number = self._number
        self._number += count
        size = self._random.randint(1, self.plan.body_max)
        body = f"{self.plan.name}-{self._life}-{number}".encode().ljust(size, b".")
        batch = encode_batch(
            [marked_record(self._random, body, self.plan.keys) for _ in range(count)],
            topic_id=lane.queue[0],
            queue=lane.queue[1],
            stamp=self._stamp(lane),
            base_number=self._life * 1_000_000 + number,
            base_time_ms=1_800_000_000_000,
        )
        send = self._oracle.invoke_send(
            self.plan.name, lane.queue, count, self._scheduler.now, idempotent=self.plan.stamped
        )
        self._oracle.stamped(send, batch_key(parse_header(batch)))
        lane.next_sequence += count
        lane.jobs.append(Job(send, batch))
        self._pump(lane)

    def _repeat_old(self) -> None:
        """Send an old batch again: it is a repeat, or fenced, and stored no second time."""
        if self._old:
            send, batch = self._random.choice(self._old)
            send.open_attempts += 1
            aim = self._random.choice((self._aim(), self._random.choice(self._router.members)))
            self._calls.call(self.plan.name, aim, Append(batch), TRY_TIMEOUT, lambda answer: None)

    def _stamp(self, lane: Lane) -> ProducerStamp | None:
        if not self.plan.stamped:
            return None
        return ProducerStamp(self._producer_id, self._epoch, lane.next_sequence)

    # Registering.

    def _register(self) -> None:
        if self._registering:
            return
        self._registering = True
        newest = self._held or self._taken
        life = self._life
        self._calls.call(
            self.plan.name,
            self._aim(),
            Register(self._producer_id, self._life_id, newest + 1 if newest else 0),
            TRY_TIMEOUT,
            lambda answer: self._registered(life, answer),
        )

    def _registered(self, life: int, answer: Answer) -> None:
        if life != self._life:
            return
        self._registering = False
        if answer.code is not Code.OK or isinstance(answer.value, Taken):
            self._not_registered(answer)
            return
        assert isinstance(answer.value, Registered)
        self._epoch = self._held = answer.value.epoch
        self._taken = 0
        for lane in self._lanes.values():
            lane.next_sequence = 0
            for job in lane.jobs:
                self._renew(lane, job)
            self._pump(lane)

    def _not_registered(self, answer: Answer) -> None:
        """Take over from the life before, look again whom to follow, or ask somebody else."""
        fenced = "fenced by a life that is no more"
        if isinstance(answer.value, Taken):
            assert not self._held, fenced
            self._taken = answer.value.epoch
            self._register()
            return
        if answer.code is Code.STALE_EPOCH:
            assert self._taken, fenced
            self._taken = 0
        self._retarget(answer)
        if self.running or self.pending:
            self._scheduler.after(self._pause(), self._register_again, self._life)

    def _register_again(self, life: int) -> None:
        if life == self._life and self._epoch == 0:
            self._register()

    def _renew(self, lane: Lane, job: Job) -> None:
        """Stamp a batch that certainly is not stored under the new epoch."""
        assert not job.unknown, "an unknown batch is settled before the epoch changes"
        assert not job.flying
        stamp = ProducerStamp(self._producer_id, self._epoch, lane.next_sequence)
        job.batch = restamp(job.batch, stamp)
        self._oracle.stamped(job.send, batch_key(parse_header(job.batch)))
        lane.next_sequence += job.send.record_count

    def _new_epoch(self) -> None:
        """Give up this epoch: what may be stored becomes unknown, the rest is stamped again."""
        if self._epoch == 0:
            return
        self._epoch = 0
        for lane in self._lanes.values():
            kept: deque[Job] = deque()
            for job in lane.jobs:
                if job.unknown or job.flying:
                    self._oracle.info_send(job.send)
                else:
                    kept.append(job)
            lane.jobs = kept
        self._register()

    # Sending.

    def _pump(self, lane: Lane) -> None:
        """Send what the window allows, in order: nothing overtakes a batch that waits."""
        if self._lanes[lane.queue] is not lane:
            return  # of a life before a crash
        if self._scheduler.now < lane.retry_at or (self.plan.stamped and self._epoch == 0):
            return
        for place, job in enumerate(lane.jobs):
            if place >= self.plan.window:
                return
            if not job.flying:
                self._attempt += 1
                job.flying = self._attempt
                job.send.open_attempts += 1
                self._calls.call(
                    self.plan.name,
                    self._aim(),
                    Append(job.batch),
                    TRY_TIMEOUT,
                    partial(self._answered, self._life, lane, job, self._attempt),
                )

    def _answered(self, life: int, lane: Lane, job: Job, number: int, answer: Answer) -> None:
        if life != self._life or job.flying != number or job not in lane.jobs:
            return
        job.flying = 0
        if answer.code in (Code.OK, Code.DUPLICATE):
            offset = answer.value if isinstance(answer.value, int) else -1
            lane.jobs.remove(job)
            self._oracle.ok_send(job.send, offset)
            self._old.append((job.send, job.batch))
            self._pump(lane)
            return
        if MEANINGS[answer.code].definite:
            job.send.open_attempts -= 1
        else:
            job.unknown = True
        self._failed(lane, job, answer)

    def _failed(self, lane: Lane, job: Job, answer: Answer) -> None:
        meaning = MEANINGS[answer.code]
        assert answer.code is not Code.STALE_EPOCH, "fenced by a life that is no more"
        if answer.code is Code.UNKNOWN_PRODUCER:
            self._new_epoch()
            return
        retriable = meaning.retriable or answer.code in (Code.SEQUENCE_GAP, Code.UNKNOWN_OUTCOME)
        expired = self._scheduler.now - job.send.invoked > SEND_DEADLINE
        repeat = retriable and not expired and (self.plan.stamped or meaning.definite)
        if not repeat:
            lane.jobs.remove(job)
            if job.unknown:
                self._oracle.info_send(job.send)
            else:
                self._oracle.fail_send(job.send, answer.code)
            if self.plan.stamped:
                self._new_epoch()
            else:
                self._pump(lane)
            return
        self._retarget(answer)
        if lane.retry_at <= self._scheduler.now:
            lane.retry_at = self._scheduler.now + self._pause()
            self._scheduler.at(lane.retry_at, self._pump, lane)

    def _pause(self) -> float:
        return self._random.uniform(RETRY_MIN, RETRY_MAX)

    # Whom to ask.

    def _aim(self) -> str:
        term, leader = self._router.leader(self.plan.name)
        if leader and term > self._target_term:
            self._target, self._target_term = leader, term
        return self._target

    def _retarget(self, answer: Answer) -> None:
        if answer.hint:
            self._target = answer.hint
        elif answer.code is not Code.BUSY:
            self._target = self._random.choice(self._router.members)

    def _watch(self, life: int) -> None:
        """Abandon tries as unknown as soon as a leader of a higher term is heard of (D10)."""
        if life != self._life or not (self.running or self.pending):
            return
        self._scheduler.after(0.25, self._watch, life)
        term, leader = self._router.leader(self.plan.name)
        if not leader or term <= self._target_term:
            return
        self._target, self._target_term = leader, term
        if not self.plan.stamped:
            return
        for lane in self._lanes.values():
            for job in lane.jobs:
                if job.flying:
                    job.flying = 0
                    job.unknown = True
            self._pump(lane)
