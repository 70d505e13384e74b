"""Simulated consumers and an administrator: reading at any member, group offsets, bounds, trims.

Owns: what readers may demand (D9): from one position the batches follow without gap, repeat or
step back, whatever member answers; each batch is compared with the true contents and its bytes
with its checksum. Group offsets and confirmed bounds are registers checked by the oracle.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from dledger_proto.batch.codec import check_batch
from dledger_proto.errors import MEANINGS, Code, DledgerError
from tests.sim.clients.lookups import Lookup, LookupOffset, Span
from tests.sim.clients.oracle import Oracle
from tests.sim.clients.requests import (
    CommitOffset,
    Fetch,
    Fetched,
    FetchedBatch,
    HoldQueue,
    ReadBounds,
    ReadOffset,
    Trimmed,
    TrimQueue,
)
from tests.sim.clients.wire import Answer, Calls
from tests.sim.invariants.delivery.queue_contents import QueueKey, batch_key
from tests.sim.invariants.violation import Property, Violation
from tests.sim.world.clock import Scheduler

if TYPE_CHECKING:
    from tests.sim.world.group import Group

TRY_TIMEOUT = 3.0
HOLD_SHARE = 0.3
"""Of an administrator's commands."""
HURRY_INTERVAL = 0.005
WAIT = 2.0
"""How long a fetch may wait for more, virtual seconds."""


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """What a consumer does. Times in virtual seconds."""

    name: str
    interval: float
    max_bytes: int
    queues: tuple[QueueKey, ...]
    resets: bool
    """Whether it ever goes back with an explicit reset."""
    keys: int
    """How many keys the records have; it looks them up."""
    lookup_interval: float


def check_fetched(
    who: str, oracle: Oracle, queue: QueueKey, position: int, fetched: Fetched
) -> int:
    """Compare what was served with the truth; return the next position."""
    for batch in fetched.batches:
        position = _check_batch(who, oracle, queue, position, batch)
    if fetched.batches and position > fetched.maximum:  # else a member that is behind may answer
        raise Violation(
            Property.COMMITTED_READS, f"{who} read {queue} to {position}, above {fetched.maximum}"
        )
    return position


def _check_batch(
    who: str, oracle: Oracle, queue: QueueKey, position: int, batch: FetchedBatch
) -> int:
    try:
        header = check_batch(batch.data)
    except DledgerError as error:
        raise Violation(
            Property.CHECKED_BYTES, f"{who} got bad bytes of {queue}: {error}"
        ) from None
    end = batch.base_offset + batch.first_record + batch.record_count
    first = batch.base_offset + batch.first_record
    if not first <= position < end:
        raise Violation(
            Property.COMMITTED_READS, f"{who} asked {queue} for {position}, got {first}..{end}"
        )
    if (header.topic_id, header.queue) != queue:
        raise Violation(Property.CHECKED_BYTES, f"{who} got {header} for {queue}")
    oracle.read_batch(who, queue, batch.base_offset, header.record_count, batch_key(header))
    return end


class Consumer:
    """One reading process with a consumer group of its own."""

    def __init__(
        self,
        plan: ConsumerPlan,
        scheduler: Scheduler,
        random: Random,
        calls: Calls,
        group: "Group",
        oracle: Oracle,
    ) -> None:
        self.plan = plan
        self._scheduler = scheduler
        self._random = random
        self._calls = calls
        self._group = group
        self._router = group.routes
        self._oracle = oracle
        self._positions = dict.fromkeys(plan.queues, 0)
        self.furthest = dict.fromkeys(plan.queues, 0)
        """How far it has read."""
        self._fetch_interval = plan.interval
        self._wait_longest = WAIT
        self._group_busy = False
        self._committed: dict[QueueKey, int] = {}
        self.running = True

    def start(self) -> None:
        """Begin to read."""
        self._scheduler.after(self._random.uniform(0, self.plan.interval), self._fetch)
        self._scheduler.after(self._random.uniform(0, 10 * self.plan.interval), self._group_turn)
        self._scheduler.after(self._random.uniform(0, 10 * self.plan.interval), self._read_bounds)
        self._scheduler.after(self._random.uniform(0, 5 * self.plan.lookup_interval), self._look_up)

    def hurry(self) -> None:
        """Fetch without pauses from now on, from the present position."""
        self._fetch_interval = HURRY_INTERVAL
        self._wait_longest = 0.0

    def stop(self) -> None:
        """Read no more."""
        self.running = False

    def _call(self, member: str, request: object, done: Callable[[Answer], None]) -> None:
        self._calls.call(self.plan.name, member, request, TRY_TIMEOUT, done)

    def _leader(self) -> str:
        return self._router.leader(self.plan.name)[1] or self._random.choice(self._router.members)

    # Reading.

    def _fetch(self) -> None:
        if not self.running:
            return
        queue = self._random.choice(self.plan.queues)
        position = self._positions[queue]
        member = self._random.choice(self._router.members)
        self._call(
            member,
            Fetch(
                queue, position, self.plan.max_bytes, self._random.choice((0.0, self._wait_longest))
            ),
            lambda answer: self._fetched(member, queue, position, answer),
        )

    def _fetched(self, member: str, queue: QueueKey, position: int, answer: Answer) -> None:
        self._scheduler.after(self._random.expovariate(1 / self._fetch_interval), self._fetch)
        if answer.code is Code.OFFSET_OUT_OF_RANGE and isinstance(answer.value, Fetched):
            minimum = answer.value.minimum
            asked = self._oracle.minimums.get(queue, 0)
            if minimum > asked:
                raise Violation(
                    Property.COMMITTED_READS,
                    f"{member}: {queue} begins at {minimum}, asked {asked}",
                )
            if position < minimum:
                self._positions[queue] = minimum
            return
        if answer.code is not Code.OK:
            return
        assert isinstance(answer.value, Fetched)
        who = f"{self.plan.name} at {member}"
        reached = check_fetched(who, self._oracle, queue, position, answer.value)
        self._positions[queue] = reached
        self.furthest[queue] = max(reached, self.furthest[queue])
        if self._wait_longest and self._random.random() < 0.01:
            self._positions[queue] = self._oracle.minimums.get(queue, 0)  # read it all again

    # The group's offsets: one operation at a time, so that the register has a simple history.

    def _group_turn(self) -> None:
        if not self.running:
            return
        self._scheduler.after(
            self._random.expovariate(1 / (4 * self.plan.interval)), self._group_turn
        )
        if self._group_busy:
            return
        self._group_busy = True
        queue = self._random.choice(self.plan.queues)
        if self._random.random() < 0.5:
            self._commit(queue)
        else:
            self._call(
                self._random.choice(self._router.members),
                ReadOffset(self.plan.name, queue),
                lambda answer: self._offset_read(queue, answer),
            )

    def _commit(self, queue: QueueKey) -> None:
        reset = self.plan.resets and self._random.random() < 0.2
        offset = self._positions[queue]
        if reset or self._random.random() < 0.1:  # without reset: must be refused
            offset = self._random.randint(0, offset)
        self._call(
            self._leader(),
            CommitOffset(self.plan.name, queue, offset, reset),
            lambda answer: self._commit_answered(queue, offset, reset, answer),
        )

    def _commit_answered(self, queue: QueueKey, offset: int, reset: bool, answer: Answer) -> None:
        self._group_busy = False
        if answer.code is Code.OK:
            self._oracle.commit_ok(self.plan.name, queue, offset, reset=reset)
        elif not MEANINGS[answer.code].definite:
            self._oracle.commit_unknown(self.plan.name, queue, offset, reset=reset)
        elif answer.code is Code.OFFSET_BEHIND:
            assert isinstance(answer.value, int)
            self._oracle.commit_behind(self.plan.name, queue, offset, answer.value)

    def _offset_read(self, queue: QueueKey, answer: Answer) -> None:
        self._group_busy = False
        if answer.code is Code.OK:
            assert isinstance(answer.value, int)
            self._oracle.read_group_offset(self.plan.name, self.plan.name, queue, answer.value)

    # Confirmed bounds.

    def _read_bounds(self) -> None:
        if not self.running:
            return
        self._scheduler.after(
            self._random.expovariate(1 / (4 * self.plan.interval)), self._read_bounds
        )
        queue = self._random.choice(self.plan.queues)
        floor = self._oracle.acknowledged_ends.get(queue, 0)
        member = self._random.choice(self._router.members)
        self._call(
            member, ReadBounds(queue), lambda answer: self._bounds(member, queue, floor, answer)
        )

    def _bounds(self, member: str, queue: QueueKey, floor: int, answer: Answer) -> None:
        if answer.code is Code.OK:
            assert isinstance(answer.value, tuple)
            self._oracle.read_end(f"{self.plan.name} at {member}", queue, floor, answer.value[1])

    # Lookups.

    def _look_up(self) -> None:
        if not self.running:
            return
        self._scheduler.after(
            self._random.expovariate(1 / self.plan.lookup_interval), self._look_up
        )
        wanted = self._oracle.judge.draw(self._random, self.plan.queues, self.plan.keys)
        if wanted is not None:
            member = self._random.choice(self._router.members)
            begin = self._group.applied_span()
            self._call(member, wanted, lambda answer: self._looked(member, wanted, begin, answer))

    def _looked(self, member: str, wanted: Lookup, begin: Span, answer: Answer) -> None:
        if answer.code is Code.OK:
            end = self._group.applied_span()
            span = Span(begin.floor, end.ceiling, begin.lowest, end.highest)
            self._oracle.counts[f"looked up by {type(wanted).__name__[6:].lower()}"] += 1
            self._oracle.judge.check(f"{self.plan.name} at {member}", wanted, answer.value, span)
        elif answer.code is Code.OFFSET_OUT_OF_RANGE:
            assert isinstance(wanted, LookupOffset)
            if wanted.offset >= self._oracle.minimums.get(wanted.queue, 0):
                raise Violation(
                    Property.LOOKUP, f"{self.plan.name} at {member}: {wanted}: {answer.detail}"
                )


class Trimmer:
    """An administrator that trims queues far behind the readers, and places holds."""

    def __init__(
        self,
        interval: float,
        keep: int,
        queues: tuple[QueueKey, ...],
        scheduler: Scheduler,
        random: Random,
        calls: Calls,
        group: "Group",
        oracle: Oracle,
    ) -> None:
        self._interval = interval
        self._keep = keep
        self._queues = queues
        self._scheduler = scheduler
        self._random = random
        self._calls = calls
        self._group = group
        self._router = group.routes
        self._oracle = oracle
        self.running = True
        self.trimmed: dict[QueueKey, int] = {}
        """Minimums that were acknowledged."""

    def start(self) -> None:
        """Begin to trim."""
        self._scheduler.after(self._random.expovariate(1 / self._interval), self._turn)

    def stop(self) -> None:
        """Trim no more."""
        self.running = False

    def _turn(self) -> None:
        if not self.running:
            return
        self._scheduler.after(self._random.expovariate(1 / self._interval), self._turn)
        queue = self._random.choice(self._queues)
        if self._random.random() < HOLD_SHARE:
            self._hold(queue)
        else:
            self._trim(queue)

    def _call(self, request: object, done: Callable[[Answer], None]) -> None:
        leader = self._router.leader("admin")[1] or self._random.choice(self._router.members)
        self._calls.call("admin", leader, request, TRY_TIMEOUT, done)

    def _trim(self, queue: QueueKey) -> None:
        offset = self._oracle.acknowledged_ends.get(queue, 0) - self._keep
        if offset > self._oracle.minimums.get(queue, 0):
            self._oracle.minimums[queue] = offset
            self._call(TrimQueue(queue, offset), lambda answer: self._trimmed(queue, answer))

    def _trimmed(self, queue: QueueKey, answer: Answer) -> None:
        if answer.code is Code.OK and isinstance(answer.value, Trimmed):
            self._oracle.counts["trims"] += 1
            self._oracle.counts["trims held"] += bool(answer.value.held_by)
            self.trimmed[queue] = max(answer.value.minimum, self.trimmed.get(queue, 0))
        self._oracle.counts["trims held"] += answer.code is Code.HELD

    def _hold(self, queue: QueueKey) -> None:
        """Place a hold at the present minimum. While it lasts, no trim may pass it."""
        floor = self._oracle.minimums.get(queue, 0)
        end = self._oracle.acknowledged_ends.get(queue, 0)
        if end <= floor:
            return
        seconds = self._random.choice((0.0, 1.0, 5.0, 20.0, 600.0))
        offset = self._random.randint(floor, end)
        ends_ms = self._group.true_ms() + int(1_000 * seconds)
        request = HoldQueue("sim", queue, offset, seconds)
        self._call(request, lambda answer: self._held(request, ends_ms, answer))

    def _held(self, request: HoldQueue, ends_ms: int, answer: Answer) -> None:
        if answer.code is Code.OK and request.seconds:
            assert isinstance(answer.value, int)
            trims = self._group.invariants.trims
            trims.granted(request.owner, request.queue, answer.value, ends_ms)
