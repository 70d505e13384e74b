"""A push consumer's engine: fetched records on their way through the listener.

Owns: how many calls of the listener run, when records are taken from the fetch buffer, timeouts,
the end. Decides nothing about order or outcomes: `_core/group/dispatch.py` does.

Up to `concurrency` workers run on the event loop. A worker asks for the next job until there is
none. So a listener that does not wait costs no task of its own.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final, Protocol

from dledger_client._core.consumer.state import Place
from dledger_client._core.group.actions import Failed, Why
from dledger_client._core.group.dispatch import Dispatcher, Job
from dledger_client._core.group.failures import BY_POLICY, TO_DEAD_LETTERS, Failure
from dledger_client._core.group.flow import FlowLimits
from dledger_client._core.group.queues import HeldQueue
from dledger_client._shell.consumer import ConsumerEngine
from dledger_client._shell.group.broadcast import Broadcast
from dledger_client._shell.group.calling import Caller, Listener, error_text, results_of
from dledger_client._shell.group.membership import Membership
from dledger_client.config import ConsumeOrder, PushConfig, StartAt
from dledger_client.errors import ClientError
from dledger_client.model import DeadLetter
from dledger_client.records import ConsumedRecord
from dledger_proto.names import RETRY_TOPIC_PREFIX
from dledger_proto.v1 import delivery_pb2

TAKE_RECORDS: Final = 256
"""Taken from the fetch buffer at once."""
TURN_SECONDS: Final = 0.002
"""Of one worker, before other tasks of the event loop have their turn."""
LOOK_SECONDS: Final = 0.25
"""Between two looks for listeners that take too long, at most."""
_LOG = logging.getLogger("dledger_client")


class Owner(Protocol):
    """Who gives queues to the engine: a consumer group, or a broadcast."""

    async def start(self) -> None:
        """Begin."""
        ...

    def let_go(self, held: HeldQueue) -> None:
        """Take a queue back."""
        ...

    def fail(self, failure: Failure) -> None:
        """Take in that a record failed."""
        ...

    async def leave(self, seconds: float) -> None:
        """End, with a last commit."""
        ...


class PushEngine:
    """One push consumer."""

    def __init__(
        self,
        bootstrap: Sequence[str],
        group: str,
        subscriptions: Sequence[delivery_pb2.Subscription],
        listener: Listener,
        config: PushConfig,
    ) -> None:
        self.config = config
        consumer = replace(config.consumer, group=group)
        # An offset that the log has lost goes on at the oldest record, never behind the newest.
        self.fetching = ConsumerEngine(bootstrap, replace(consumer, start_at=StartAt.FIRST))
        self.fetching.on_settled = self._settled
        self.fetching.on_empty = self._nothing_at
        self._is_ordered = consumer.order is not ConsumeOrder.CONCURRENT
        self._dispatcher = Dispatcher(
            key_of=attrgetter("order_by") if consumer.order is ConsumeOrder.KEY else None,
            is_ordered=self._is_ordered,
            batch_size=config.batch_size,
            listener_seconds=config.listener_timeout_ms / 1_000,
            limits=FlowLimits(config.queue_records, config.queue_bytes, config.queue_span),
            retry_topic=RETRY_TOPIC_PREFIX + group,
        )
        self._caller = Caller(listener, is_batch=config.batch_size > 1, threads=config.concurrency)
        cluster, queries = self.fetching.cluster, self.fetching.queries
        self._owner: Owner = (
            Broadcast(cluster, queries, consumer, subscriptions, self, config.offsets_file)
            if config.broadcast
            else Membership(cluster, queries, consumer, subscriptions, self)
        )
        self._held: dict[HeldQueue, None] = {}
        self._filled: set[HeldQueue] = set()
        """Not fetched, because they fill the buffer faster than they can be handed out."""
        self._is_fetching_changed = False
        self._workers: dict[asyncio.Task[None], Job | None] = {}
        self._may_have_news = True
        self._is_working = False
        """A worker gives others a turn, and goes on at once: its listener does not wait."""
        self._timer: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        """The end, once somebody has begun it."""
        self.error: ClientError | None = None
        self.is_closed = False

    @property
    def _now(self) -> Callable[[], float]:
        return self.fetching.driver.now

    async def start(self) -> None:
        """Join the group and begin to hand out records."""
        await self.fetching.start()
        try:
            await self._owner.start()
        except BaseException:
            await self.close()
            raise
        self._look()

    async def run(self) -> None:
        """Wait for the end of the consumer; ClientError when its group does not take it."""
        await self._ended.wait()
        if self.error is not None:
            raise self.error.again()

    def is_listener_here(self) -> bool:
        """Return whether a function that is the listener is the caller."""
        return self._caller.is_here()

    async def close(self, *, for_listener: bool = False) -> None:
        """Take no more, finish what the listener has, commit it, leave the group.

        Called by the listener, it only begins that: it would wait for its own caller.
        """
        if self._closing is None:
            self.is_closed = True
            self._closing = asyncio.get_running_loop().create_task(
                self._end(), name="dledger close"
            )
        if not for_listener and asyncio.current_task() not in self._workers:
            await asyncio.shield(self._closing)

    async def _end(self) -> None:
        if self.fetching.driver.is_started:
            await self._owner.leave(self.config.close_timeout_ms / 1_000)
        if self._timer is not None:
            self._timer.cancel()
        for worker in list(self._workers):
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._caller.close()
        await self.fetching.close()
        self._ended.set()

    def places(self) -> list[Place]:
        """Return the queues that are read."""
        return [held.place for held in self._held]

    # What the owner of queues says.

    def start_queue(self, held: HeldQueue) -> None:
        """Read a queue from its floor on."""
        self._held[held] = None
        read = self.fetching.core.assign(held.place, held.topic_id, held.group, held.progress.floor)
        self._dispatcher.start(held, read.priority)
        self.fetching.wake()

    def stop_queue(self, held: HeldQueue, why: Why) -> None:
        """Hand out nothing more of a queue; let it go once the listener has nothing of it."""
        if held in self._held:
            del self._held[held]
            self.fetching.core.unassign(held.place)
        else:  # its beginning was not found yet
            self._owner.let_go(held)
        self._filled.discard(held)
        lost = self._dispatcher.stop(held, is_lost=why is not Why.REVOKED)
        self._cancel(lost)
        self._let_go_idle()
        self.fetching.wake()

    def _let_go_idle(self) -> None:
        for held in self._dispatcher.idle_leavers():
            self._owner.let_go(held)

    def failure_stored(self, told: Failed) -> None:
        """Take in what becomes of a record that failed."""
        self._dispatcher.failure_stored(told, self._now())
        self._run_ready()
        self._arm()

    def group_ended(self, error: ClientError) -> None:
        """End: `run` raises the error, if anybody calls it."""
        _LOG.error("push consumer of group %s: %s", self.fetching.config.group, error)
        self.error = error
        self._ended.set()

    # Records.

    def _settled(self) -> None:
        """Take in that frames may have arrived."""
        self._may_have_news = True
        self._refill()
        self._run_ready()

    def _nothing_at(self, place: Place, first: int, end: int) -> None:
        """Take offsets for done that hold no record."""
        for held in self._held:
            if held.place == place:
                held.progress.done(first, end)

    def _refill(self) -> None:
        """Take records from the fetch buffer, of queues that have room."""
        fetching, dispatcher = self.fetching, self._dispatcher
        if self.is_closed or not self._may_have_news:
            return
        now = self._now()
        while True:
            for held in self._held:
                self._set_held_back(held, now)
            try:
                runs = fetching.take(TAKE_RECORDS)
            except ClientError as error:
                self.group_ended(error)
                return
            if not runs:
                self._may_have_news = fetching.core.buffer.buffered_bytes > 0 or bool(self._filled)
                break
            by_place = {held.place: held for held in self._held}
            for run in runs:
                owner = by_place.get((run.topic, run.queue))
                if owner is not None:
                    dispatcher.add(owner, run, now)
        self._make_room()
        if self._is_fetching_changed:
            self._is_fetching_changed = False
            fetching.carry_out()

    def _set_held_back(self, held: HeldQueue, now: float) -> None:
        read = self.fetching.core.read(held.place)
        has_room = self._dispatcher.has_room(held) and held.may_hand_out(now)
        read.is_held_back = read.is_gone or not has_room
        if has_room and held in self._filled and self.fetching.core.buffer.is_short_of(read):
            self._filled.discard(held)
            self.fetching.core.fetch_again(held.place)
            self._is_fetching_changed = True

    def _make_room(self) -> None:
        """Stop fetching queues that are held back, before they fill the buffer for all others.

        What is buffered of them is handed out meanwhile. Once it fills the buffer all the same, it
        is dropped, and will be fetched again.
        """
        core = self.fetching.core
        for held in self._held:
            read = core.read(held.place)
            if not read.is_held_back or not read.buffer:
                continue
            if not core.buffer.wants_more(read.priority):
                core.give_up(held.place)
            elif held not in self._filled and core.buffer.has_enough(read):
                core.stop_fetching(held.place)
            else:
                continue
            self._filled.add(held)
            self._is_fetching_changed = True

    # Workers.

    def _run_ready(self) -> None:
        """Begin a worker if there is something to do; another one if that has to wait."""
        if self._is_working or not self._dispatcher.ready_jobs:
            return
        if len(self._workers) < self.config.concurrency:
            loop = self.fetching.driver.loop
            worker = loop.create_task(self._work(), name="dledger listener")
            self._workers[worker] = None
            worker.add_done_callback(self._worker_ended)
            loop.call_soon(self._run_ready)

    def _worker_ended(self, worker: "asyncio.Task[None]") -> None:
        job = self._workers.pop(worker)
        if job is not None:  # cancelled by us, or by the listener
            self._outcome(job, None, "the call was cancelled", self._now())
        if not worker.cancelled() and worker.exception() is not None:
            _LOG.error("a worker of a push consumer failed", exc_info=worker.exception())
        if not self.is_closed:
            self._run_ready()

    async def _work(self) -> None:
        """Call the listener for one job after the other."""
        me = asyncio.current_task()
        assert me is not None, "a worker is a task"
        loop, dispatcher = self.fetching.driver.loop, self._dispatcher
        caller, workers = self._caller, self._workers
        direct, time, concurrency = caller.direct, loop.time, self.config.concurrency
        now = time()
        turn_ends = now + TURN_SECONDS
        while (job := dispatcher.next(now)) is not None:
            workers[me] = job
            said, error = None, ""
            try:
                if direct is not None:
                    said = await direct(job.records[0])
                else:
                    said = await caller.call(job, loop)
            except Exception as raised:  # noqa: BLE001  (whatever it is, the record failed)
                error = error_text(raised)
            except (SystemExit, KeyboardInterrupt) as raised:
                if threading.current_thread() is threading.main_thread():
                    raise
                error = error_text(raised)  # it would end the event loop that all clients share
            workers[me] = None
            now = time()
            self._outcome(job, said, error, now)
            if self._may_have_news and (
                dispatcher.ready_jobs < concurrency
                or (self._filled and dispatcher.runs_short(self._filled))
            ):
                self._refill()
            if now >= turn_ends:
                self._is_working = True
                try:
                    await asyncio.sleep(0)
                finally:  # a listener may have cancelled its own task
                    self._is_working = False
                now = time()
                turn_ends = now + TURN_SECONDS

    def _outcome(self, job: Job, said: object, error: str, now: float) -> None:
        """Settle a job: `error` says why it failed, or `said` is what the listener returned."""
        if said is None and not error:
            self._dispatcher.succeeded(job, now)
        elif not self._dispatcher.ended(job, now):
            return
        elif error:
            self._failed(job, error, now)
        else:
            self._settle(job, said, now)
        if job.chain.lane.is_leaving:
            self._let_go_idle()

    def _failed(self, job: Job, error: str, now: float) -> None:
        if len(job.records) > 1:
            self._dispatcher.again(job, now)
            self._run_ready()
            return
        record = job.records[0]
        _LOG.warning("%s/%d@%d: %s", record.topic, record.queue, record.offset, error)
        self._tell(job, [(record, error, BY_POLICY)], now)

    def _settle(self, job: Job, said: object, now: float) -> None:
        try:
            failed = self._failed_of(job, said)
        except Exception as raised:  # noqa: BLE001  (a result that means nothing)
            self._failed(job, error_text(raised), now)
            return
        self._tell(job, failed, now)

    def _failed_of(self, job: Job, said: object) -> list[tuple[ConsumedRecord, str, int]]:
        """Return the records that a listener did not handle, why, and when they come again."""
        failed: list[tuple[ConsumedRecord, str, int]] = []
        for record, wish in zip(job.records, results_of(said, job.records), strict=True):
            if isinstance(wish, DeadLetter):
                failed.append((record, wish.error, TO_DEAD_LETTERS))
            elif wish is not None:
                delay_ms = BY_POLICY if wish.delay_ms is None else wish.delay_ms
                failed.append((record, wish.error, delay_ms))
        return failed

    def _tell(self, job: Job, failed: list[tuple[ConsumedRecord, str, int]], now: float) -> None:
        dispatcher = self._dispatcher
        failures = [
            dispatcher.failure(job, record, error, delay_ms) for record, error, delay_ms in failed
        ]
        counted = dispatcher.settle(job, [record for record, *_ in failed], now)
        for failure in failures[: len(counted)]:
            self._owner.fail(failure)

    # Time.

    def _look(self) -> None:
        """End calls that take too long, and let suspended queues go on."""
        now = self._now()
        late = self._dispatcher.expired(now)
        for job in late:
            _LOG.warning(
                "%s@%d: the listener takes longer than %d ms",
                job.chain.lane.held.name, job.records[0].offset, self.config.listener_timeout_ms,
            )  # fmt: skip
            self._failed(job, f"no result within {self.config.listener_timeout_ms} ms", now)
        self._cancel(late)
        self._dispatcher.tick(now)
        self._may_have_news = True
        self._refill()
        self._run_ready()
        self._let_go_idle()
        self._timer = None
        self._arm()

    def _arm(self) -> None:
        """Set the timer to the next suspended queue, or to the next look."""
        if self.is_closed and not self._held and not self._workers:
            return
        at = self._now() + LOOK_SECONDS
        resume_at = self._dispatcher.next_deadline()
        if resume_at is not None:
            at = min(at, resume_at)
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self.fetching.driver.loop.call_at(at, self._look)

    def _cancel(self, jobs: Sequence[Job]) -> None:
        """Cancel coroutines whose outcome does not count any more."""
        if self._caller.is_coroutine:
            for worker, job in self._workers.items():
                if job is not None and job in jobs:
                    worker.cancel()
