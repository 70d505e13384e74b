"""Which record a listener gets next, and what its outcome means. Pure.

Owns: records in hand, their order, the end of a listener's time. Not: calling the listener
(`_shell/group/push.py`), telling failures to the home group (`failures.py`).

A *lane* is one claim of a queue. A *chain* is a row of records that are handed out in order. A
concurrent consumer has one chain for each queue, and takes from it while earlier records are still
in hand. An ordered consumer has one chain for each queue, or for each key of it. It takes the next
job of a chain only after the one before is over, also if that belongs to an older claim.

A batch that fails is delivered again record by record. So a record that always fails uses up its
own attempts, and not those of its neighbours.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from dledger_client._core.consumer.state import Place
from dledger_client._core.group.actions import Failed
from dledger_client._core.group.failures import Failure
from dledger_client._core.group.flow import FlowLimits
from dledger_client._core.group.queues import HeldQueue
from dledger_client.errors import UnreadableData
from dledger_client.records import ConsumedRecord, RecordBatch

Key = str
AHEAD_MAX: Final = 256
"""Records of a chain that wait for the listener, beyond which no more are taken."""


@dataclass(slots=True, eq=False, repr=False)
class Chain:
    """Records that are handed out in order."""

    lane: "Lane"
    key: Key
    waiting: deque[tuple[ConsumedRecord, int]] = field(default_factory=deque)
    """With their sizes."""
    alone: int = 0
    """So many of the first are handed out one by one."""
    is_ready: bool = False
    """It is among the chains that give jobs."""
    is_aside: bool = False
    """It would give jobs, but its claim may not hand out records now."""
    is_suspended: bool = False
    """Its first record failed, and its pause is not over."""
    failing: int = 0
    """So many of its first records failed, and the home group has not answered yet."""


@dataclass(slots=True, eq=False, repr=False)
class Lane:
    """One claim of a queue."""

    held: HeldQueue
    is_retries: bool
    """Its records failed before in this group: they come with their attempts."""
    priority: int = 0
    chains: dict[Key, Chain] = field(default_factory=dict)
    records: int = 0
    """Waiting, running and failing."""
    size: int = 0
    jobs: int = 0
    failing: dict[int, Chain] = field(default_factory=dict)
    """Chains by the offset of a record that failed."""
    is_leaving: bool = False
    is_gone: bool = False


class ReadyChains:
    """Chains that give jobs: those of a higher priority first, others in turn."""

    def __init__(self) -> None:
        self._by_priority: dict[int, deque[Chain]] = {}
        """The highest first."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, chain: Chain) -> None:
        """Add a chain behind those of its priority."""
        priority = chain.lane.priority
        chains = self._by_priority.get(priority)
        if chains is None:
            chains = self._by_priority[priority] = deque()
            self._by_priority = dict(sorted(self._by_priority.items(), reverse=True))
        chains.append(chain)
        self._count += 1

    def popleft(self) -> Chain:
        """Remove and return the first chain; there is one."""
        self._count -= 1
        for chains in self._by_priority.values():
            if chains:
                return chains.popleft()
        raise AssertionError("there is one")


@dataclass(slots=True, eq=False, repr=False)
class Job:
    """One call of the listener."""

    chain: Chain
    records: list[ConsumedRecord]
    sizes: int
    deadline: float
    is_over: bool = False
    """Its outcome is settled: what the listener still says does not count."""

    @property
    def attempts(self) -> int:
        """Failures before this delivery, of the first record."""
        return known_attempts(self.chain.lane, self.records[0])


class Dispatcher:
    """The records that one consumer has in hand."""

    def __init__(
        self,
        *,
        key_of: Callable[[ConsumedRecord], Key] | None,
        is_ordered: bool,
        batch_size: int,
        listener_seconds: float,
        limits: FlowLimits,
        retry_topic: str = "",
    ) -> None:
        self._key_of = key_of
        self._is_ordered = is_ordered
        self._batch_size = batch_size
        self._listener_seconds = listener_seconds
        self._limits = limits
        self._retry_topic = retry_topic
        """Of this group; in other retry topics it has not failed yet."""
        self._lanes: dict[HeldQueue, Lane] = {}
        self._ready = ReadyChains()
        self._aside: dict[Lane, list[Chain]] = {}
        """Chains of claims that may not hand out records now: the group is paused, or a lease
        ended. `tick` offers them again."""
        self._running: dict[tuple[Place, Key], Job] = {}
        """Jobs of ordered chains: at most one of each queue or key, whatever claim it is of."""
        self._suspended: list[tuple[float, int, Chain]] = []
        self._number = 0
        self._jobs: dict[Job, None] = {}
        self.waiting = 0
        """Records that no listener has."""

    @property
    def ready_jobs(self) -> int:
        """How many jobs there may be now, at most."""
        if self._is_ordered or not self._ready:
            return len(self._ready)
        if not self._aside:
            return self.waiting
        aside = sum(len(chain.waiting) for chains in self._aside.values() for chain in chains)
        return self.waiting - aside

    def runs_short(self, claims: Iterable[HeldQueue]) -> bool:
        """Return whether little is in hand of one of some claims."""
        little = min(self._limits.records, AHEAD_MAX) // 2
        return any(
            lane.records < little for held in claims if (lane := self._lanes.get(held)) is not None
        )

    # Queues.

    def start(self, held: HeldQueue, priority: int = 0) -> None:
        """Take records of a claim from now on; those of a higher priority are handed out first."""
        self._lanes[held] = Lane(held, held.place[0] == self._retry_topic, priority)

    def stop(self, held: HeldQueue, *, is_lost: bool) -> list[Job]:
        """Hand out nothing more of a claim; return jobs whose outcome does not count any more."""
        lane = self._lanes.get(held)
        if lane is None:
            return []
        lane.is_leaving = True
        self._aside.pop(lane, None)
        for chain in lane.chains.values():
            self.waiting -= len(chain.waiting)
            chain.waiting.clear()
        if not is_lost:
            return []
        lane.is_gone = True
        del self._lanes[held]
        lost = [job for job in self._jobs if job.chain.lane is lane and not job.is_over]
        for job in lost:
            self._over(job)
        return lost

    def idle_leavers(self) -> list[HeldQueue]:
        """Drop and return the claims that leave, and of which nothing is in hand any more."""
        idle = [lane.held for lane in self._lanes.values() if lane.is_leaving and not lane.jobs]
        for held in idle:
            del self._lanes[held]
        return idle

    def has_room(self, held: HeldQueue) -> bool:
        """Return whether more records of a claim may be taken."""
        lane = self._lanes.get(held)
        if lane is None or lane.is_leaving:
            return False
        if self._key_of is None and lane.chains and len(lane.chains[""].waiting) >= AHEAD_MAX:
            return False
        progress = held.progress
        # A key that waits for its next try keeps the floor, perhaps for hours. Others go on.
        is_kept = self._key_of is not None and bool(held.attempts)
        return self._limits.has_room(
            records=lane.records,
            size=lane.size,
            span=0 if is_kept else progress.taken - progress.floor,
            ranges=progress.range_count,
            queues=len(self._lanes),
        )

    def add(self, held: HeldQueue, run: RecordBatch, now: float) -> None:
        """Take in a run of records; what is done already is left out, what is gone is done."""
        lane = self._lanes.get(held)
        if lane is None or lane.is_leaving:
            return
        if run.gone_before:
            _note_gone(held, run)
        size = max(1, run.memory // max(1, run.view.header.record_count))
        for first, end in held.progress.take(run.base_offset, run.next_offset):
            lane.records += end - first
            lane.size += size * (end - first)
            self.waiting += end - first
            places = range(first - run.base_offset, end - run.base_offset)
            records = [(ConsumedRecord(run, place), size) for place in places]
            if self._key_of is None:
                self._chain_up(lane, "", records, now)
                continue
            for record in records:
                self._chain_up(lane, self._key(record[0]), (record,), now)

    def _key(self, record: ConsumedRecord) -> Key:
        """Return the key of a record; none of one that cannot be decoded: its listener fails."""
        assert self._key_of is not None, "records have keys"
        try:
            return self._key_of(record)
        except UnreadableData:
            return ""

    def _chain_up(
        self, lane: Lane, key: Key, records: Iterable[tuple[ConsumedRecord, int]], now: float
    ) -> None:
        chain = lane.chains.get(key)
        if chain is None:
            chain = lane.chains[key] = Chain(lane, key)
        chain.waiting.extend(records)
        if not chain.is_ready:
            self._offer(chain, now)

    def _offer(self, chain: Chain, now: float) -> None:
        """Let a chain give jobs, if it may."""
        if chain.is_ready or chain.is_aside or chain.is_suspended or chain.failing:
            return
        if not chain.waiting:
            return
        lane = chain.lane
        if self._is_ordered:
            if (lane.held.place, chain.key) in self._running:
                return
            known = lane.held.attempts.get(chain.waiting[0][0].offset)
            if known is not None and now < known[1]:
                self._number += 1
                heapq.heappush(self._suspended, (known[1], self._number, chain))
                chain.is_suspended = True
                return
        chain.is_ready = True
        self._ready.append(chain)

    # Jobs.

    def next(self, now: float) -> Job | None:
        """Return the next job, None when there is none now."""
        while self._ready:
            chain = self._ready.popleft()
            chain.is_ready = False
            lane = chain.lane
            if not chain.waiting:
                continue
            if not lane.held.may_hand_out(now):
                chain.is_aside = True
                self._aside.setdefault(lane, []).append(chain)
                continue
            job = self._job(chain, now)
            if self._is_ordered:
                self._running[lane.held.place, chain.key] = job
            elif chain.waiting:
                chain.is_ready = True
                self._ready.append(chain)
            return job
        return None

    def _job(self, chain: Chain, now: float) -> Job:
        waiting = chain.waiting
        record, sizes = waiting.popleft()
        records = [record]
        if chain.alone:
            chain.alone -= 1
        else:
            for _ in range(min(self._batch_size - 1, len(waiting))):
                record, size = waiting.popleft()
                records.append(record)
                sizes += size
        self.waiting -= len(records)
        chain.lane.jobs += 1
        job = Job(chain, records, sizes, now + self._listener_seconds)
        self._jobs[job] = None
        return job

    def ended(self, job: Job, now: float) -> bool:
        """Take in that a call of the listener is over; return whether its outcome counts.

        When it does, `settle` or `again` follows.
        """
        del self._jobs[job]
        chain, lane = job.chain, job.chain.lane
        if self._is_ordered:
            place = (lane.held.place, chain.key)
            if self._running.get(place) is job:
                del self._running[place]
        if not job.is_over:
            self._over(job)
            return True
        self._offer_newest(chain, now)
        return False

    def succeeded(self, job: Job, now: float) -> None:
        """Take in that the listener handled all of a job: `ended` and `settle` in one."""
        if self._is_ordered or job.is_over or len(job.records) > 1 or job.chain.lane.held.attempts:
            if self.ended(job, now):
                self.settle(job, (), now)
            return
        del self._jobs[job]
        job.is_over = True
        lane = job.chain.lane
        lane.jobs -= 1
        lane.records -= 1
        lane.size -= job.sizes
        lane.held.progress.done(job.records[0].offset)

    def _over(self, job: Job) -> None:
        job.is_over = True
        job.chain.lane.jobs -= 1

    def _offer_newest(self, chain: Chain, now: float) -> None:
        """Let the chain go on that waited for the end of a late job: perhaps of a newer claim."""
        for lane in self._lanes.values():
            if lane.held.place == chain.lane.held.place and chain.key in lane.chains:
                self._offer(lane.chains[chain.key], now)

    def settle(
        self, job: Job, failing: Sequence[ConsumedRecord], now: float
    ) -> Sequence[ConsumedRecord]:
        """Take in that the records of a job are done, but those that failed; return these.

        In an ordered chain only the first one failed: what the listener says of those behind it
        does not count, for they are delivered again, after it.
        """
        chain, lane = job.chain, job.chain.lane
        held, count = lane.held, len(job.records)
        lane.records -= count
        lane.size -= job.sizes
        if self._is_ordered:
            failing = failing[:1]
        failed = {record.offset for record in failing} if failing else ()
        back: Sequence[ConsumedRecord] = ()
        for at, record in enumerate(job.records):
            offset = record.offset
            if offset not in failed:
                held.progress.done(offset)
                if held.attempts:
                    held.attempts.pop(offset, None)
            elif self._is_ordered:
                back = job.records[at:]
                break
        lane.records += len(back or failed)
        if back:
            each = job.sizes // count
            lane.size += each * len(back)
            lane.failing.update(dict.fromkeys(failed, chain))
            chain.failing += len(failed)
            self._put_back(chain, back, each)
        elif self._is_ordered:
            self._go_on(chain, now)
        return failing

    def _go_on(self, chain: Chain, now: float) -> None:
        if chain.waiting:
            self._offer(chain, now)
        elif chain.key:
            chain.lane.chains.pop(chain.key, None)

    def again(self, job: Job, now: float) -> None:
        """Deliver the records of a job again, one by one: one of them makes the others fail."""
        chain, count = job.chain, len(job.records)
        chain.alone += count
        self._put_back(chain, job.records, job.sizes // count)
        self._offer(chain, now)

    def _put_back(self, chain: Chain, records: Sequence[ConsumedRecord], each: int) -> None:
        if chain.lane.is_leaving:
            return
        chain.waiting.extendleft((record, each) for record in reversed(records))
        self.waiting += len(records)

    def failure(self, job: Job, record: ConsumedRecord, error: str, delay_ms: int) -> Failure:
        """Return the failure to tell of a record."""
        lane = job.chain.lane
        return Failure(lane.held, record.offset, known_attempts(lane, record), error, delay_ms)

    def failure_stored(self, told: Failed, now: float) -> None:
        """Take in that the home group knows of a failure."""
        held, offset = told.held, told.offset
        lane = self._lanes.get(held)
        if lane is None:
            return
        if not self._is_ordered:
            lane.records -= 1
            return
        chain = lane.failing.pop(offset, None)
        if chain is None:
            return
        chain.failing -= 1
        if told.is_done:
            held.attempts.pop(offset, None)
            self._remove(chain, offset)
        else:
            held.attempts[offset] = told.attempts, told.again_at
        if not chain.failing:
            self._go_on(chain, now)

    def _remove(self, chain: Chain, offset: int) -> None:
        for at, (record, size) in enumerate(chain.waiting):
            if record.offset == offset:
                del chain.waiting[at]
                self.waiting -= 1
                chain.lane.records -= 1
                chain.lane.size -= size
                return

    # Time.

    def expired(self, now: float) -> list[Job]:
        """Return jobs whose listener takes too long, or whose lease ends (S108)."""
        late = [job for job in self._jobs if not job.is_over and now >= job.deadline]
        for job in late:
            self._over(job)
        return late

    def tick(self, now: float) -> None:
        """Let chains go on whose time has come, or whose claim may hand out records again."""
        for lane in [lane for lane in self._aside if lane.held.may_hand_out(now)]:
            for chain in self._aside.pop(lane):
                chain.is_aside = False
                self._offer(chain, now)
        while self._suspended and self._suspended[0][0] <= now:
            _, _, chain = heapq.heappop(self._suspended)
            chain.is_suspended = False
            self._offer(chain, now)

    def next_deadline(self) -> float | None:
        """Return when a suspended chain goes on."""
        return self._suspended[0][0] if self._suspended else None


def _note_gone(held: HeldQueue, run: RecordBatch) -> None:
    """Take offsets before a run for done whose records are compacted: nothing is left to do."""
    first, end = run.base_offset - run.gone_before, run.base_offset
    held.progress.done(first, end)
    for offset in [each for each in held.attempts if first <= each < end]:
        del held.attempts[offset]


def known_attempts(lane: Lane, record: ConsumedRecord) -> int:
    """Return how often a record failed in this group, in its queue or before it came into it."""
    known = lane.held.attempts.get(record.offset)
    if known is not None:
        return known[0]
    return record.attempts if lane.is_retries else 0
