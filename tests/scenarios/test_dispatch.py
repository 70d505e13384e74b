"""What listeners get, and in which order: lanes, chains, jobs, in virtual time."""

import random
from dataclasses import dataclass, field, replace
from operator import attrgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_client._core.group.actions import Failed
from dledger_client._core.group.dispatch import AHEAD_MAX, Dispatcher, Job
from dledger_client._core.group.flow import FlowLimits
from dledger_client._core.group.queues import HeldQueue, QueueState
from dledger_client._core.message_checks import make_record
from dledger_client.errors import UnreadableData
from dledger_client.records import ConsumedRecord, RecordBatch
from dledger_proto.batch.codec import BatchView, Record, check_batch, encode_batch
from dledger_proto.errors import Code
from dledger_proto.rpc.frames import RowOrigin
from tests.unit.client.model_cluster import topic_id

ROOMY = FlowLimits()


def run_of(first: int, count: int, *, queue: int = 0, keys: int = 1) -> RecordBatch:
    """Return records `first` to `first + count - 1`; their keys repeat after `keys`."""
    records = [Record(b"x", keys=(f"k{at % keys}",)) for at in range(first, first + count)]
    return batch_of(records, first, queue)


def batch_of(records: list[Record], first: int, queue: int = 0) -> RecordBatch:
    batch = encode_batch(
        records, topic_id=topic_id("t"), queue=queue, stamp=None, base_number=0, base_time_ms=1
    )
    view = BatchView(batch, check_batch(batch))
    return RecordBatch("t", queue, first, view, 0, len(records), 1)


def claim(epoch: int = 1, queue: int = 0) -> HeldQueue:
    return HeldQueue(("t", queue), topic_id("t"), "a", epoch, QueueState.SERVING)


def dispatcher(
    *, ordered: bool = False, keyed: bool = False, batch: int = 1, limits: FlowLimits = ROOMY
) -> Dispatcher:
    return Dispatcher(
        retry_topic="%RETRY%g",
        key_of=(lambda record: record.keys[0]) if keyed else None,
        is_ordered=ordered or keyed,
        batch_size=batch,
        listener_seconds=10.0,
        limits=limits,
    )


def offsets(job: Job | None) -> list[int]:
    return [] if job is None else [record.offset for record in job.records]


def end(jobs: Dispatcher, job: Job, *, failing: list[ConsumedRecord] | None = None) -> None:
    if not failing:
        jobs.succeeded(job, 0.0)
    elif jobs.ended(job, 0.0):
        jobs.settle(job, failing, 0.0)


def test_concurrent_jobs_of_a_queue_run_side_by_side_and_the_floor_waits() -> None:
    jobs, held = dispatcher(), claim()
    jobs.start(held)
    jobs.add(held, run_of(0, 5), 0.0)
    taken = [jobs.next(0.0) for _ in range(6)]
    assert [offsets(job) for job in taken] == [[0], [1], [2], [3], [4], []]
    for at in (1, 2, 4):
        job = taken[at]
        assert job is not None
        end(jobs, job)
    assert (held.progress.floor, held.progress.ranges()) == (0, [(1, 3), (4, 5)])
    assert taken[0] is not None
    end(jobs, taken[0])
    assert held.progress.floor == 3


def test_a_higher_priority_is_handed_out_first_and_equals_take_turns() -> None:
    jobs = dispatcher()
    for queue, priority in ((0, 0), (1, 2), (2, 2)):
        held = claim(queue=queue)
        jobs.start(held, priority)
        jobs.add(held, run_of(0, 2, queue=queue), 0.0)
    order: list[int] = []
    while (job := jobs.next(0.0)) is not None:
        order.append(job.records[0].queue)
    assert order == [1, 2, 1, 2, 0, 0]
    assert jobs.ready_jobs == 0


@pytest.mark.parametrize("keyed", [False, True])
def test_an_ordered_chain_gives_one_job_at_a_time(keyed: bool) -> None:
    jobs, held = dispatcher(ordered=True, keyed=keyed), claim()
    jobs.start(held)
    jobs.add(held, run_of(0, 6, keys=2), 0.0)
    first, second = jobs.next(0.0), jobs.next(0.0)
    assert offsets(first) == [0]
    assert offsets(second) == ([1] if keyed else [])
    assert jobs.next(0.0) is None
    assert first is not None
    end(jobs, first)
    assert offsets(jobs.next(0.0)) == ([2] if keyed else [1])


def test_records_of_one_ordering_key_go_one_after_another_whatever_their_keys_are() -> None:
    records = [
        make_record(b"x", key=f"m{at}", ordering_key=key)[0] for at, key in enumerate("aabb")
    ]
    jobs = Dispatcher(
        key_of=attrgetter("order_by"), is_ordered=True, batch_size=1, listener_seconds=10.0,
        limits=ROOMY,
    )  # fmt: skip
    held = claim()
    jobs.start(held)
    jobs.add(held, batch_of(records, 0), 0.0)
    first, second = jobs.next(0.0), jobs.next(0.0)
    assert (offsets(first), offsets(second)) == ([0], [2])
    assert jobs.next(0.0) is None, "two records of one key at once"


def test_records_that_cannot_be_decoded_have_no_key_and_nothing_behind_them_is_lost() -> None:
    def key_of(record: ConsumedRecord) -> str:
        if record.offset in (1, 2):
            raise UnreadableData(Code.UNREADABLE_BATCH, "offsets 1 to 2")
        return f"k{record.offset}"

    jobs, held = (
        Dispatcher(
            key_of=key_of, is_ordered=True, batch_size=1, listener_seconds=10.0, limits=ROOMY
        ),
        claim(),
    )
    jobs.start(held)
    for run in (run_of(0, 1), run_of(1, 2), run_of(3, 2)):
        jobs.add(held, run, 0.0)
    seen = []
    while (job := jobs.next(0.0)) is not None:
        seen += offsets(job)
        end(jobs, job)
    assert sorted(seen) == [0, 1, 2, 3, 4]
    assert held.progress.floor == 5


@pytest.mark.parametrize(("ordered", "keyed"), [(False, False), (True, False), (True, True)])
def test_a_claim_that_rests_is_not_ready_and_goes_on_afterwards(ordered: bool, keyed: bool) -> None:
    jobs, held, other = dispatcher(ordered=ordered, keyed=keyed), claim(), claim(queue=1)
    jobs.start(held)
    jobs.start(other)
    jobs.add(held, run_of(0, 6, keys=3), 0.0)
    held.rest_until = 5.0
    assert jobs.next(1.0) is None
    assert jobs.ready_jobs == 0, "a worker would begin for nothing"
    jobs.add(held, run_of(6, 2, keys=3), 1.0)
    jobs.add(other, run_of(0, 1, queue=1), 1.0)
    assert jobs.ready_jobs == 1
    job = jobs.next(1.0)
    assert job is not None
    assert job.chain.lane.held is other, "other queues go on"
    end(jobs, job)
    jobs.tick(4.0)
    assert jobs.ready_jobs == 0
    jobs.tick(5.0)
    seen = []
    while (job := jobs.next(5.0)) is not None:
        seen += offsets(job)
        end(jobs, job)
    assert sorted(seen) == list(range(8))


def test_an_ordered_chain_waits_for_its_record_that_failed() -> None:
    jobs, held = dispatcher(ordered=True), claim()
    jobs.start(held)
    jobs.add(held, run_of(0, 3), 0.0)
    job = jobs.next(0.0)
    assert job is not None
    assert jobs.ended(job, 0.0)
    failure = jobs.failure(job, job.records[0], "bad", -1)
    jobs.settle(job, job.records, 0.0)
    assert (failure.offset, failure.attempts) == (0, 0)
    assert jobs.next(50.0) is None, "the home group has not answered"
    jobs.failure_stored(Failed(held, 0, 1, is_done=False, again_at=60.0), 50.0)
    assert jobs.next(50.0) is None, "its pause is not over"
    assert jobs.next_deadline() == 60.0
    jobs.tick(60.0)
    job = jobs.next(60.0)
    assert job is not None
    assert (offsets(job), job.attempts) == ([0], 1)
    assert jobs.ended(job, 60.0)
    jobs.settle(job, job.records, 60.0)
    jobs.failure_stored(Failed(held, 0, 2, is_done=True, again_at=60.0), 60.0)
    assert offsets(jobs.next(60.0)) == [1], "it is dead"


@pytest.mark.parametrize("keyed", [False, True])
def test_what_comes_behind_a_failure_in_an_ordered_batch_comes_again_behind_it(keyed: bool) -> None:
    jobs, held = dispatcher(ordered=True, keyed=keyed, batch=4), claim()
    jobs.start(held)
    jobs.add(held, run_of(0, 5), 0.0)
    job = jobs.next(0.0)
    assert job is not None
    assert offsets(job) == [0, 1, 2, 3]
    assert jobs.ended(job, 0.0)
    counted = jobs.settle(job, [job.records[1], job.records[3]], 0.0)
    assert [record.offset for record in counted] == [1]
    assert (held.progress.floor, held.progress.ranges()) == (1, []), "2 is not done before 1"
    jobs.failure_stored(Failed(held, 1, 1, is_done=False, again_at=5.0), 0.0)
    assert jobs.next(0.0) is None
    jobs.tick(5.0)
    job = jobs.next(5.0)
    assert job is not None
    assert offsets(job) == [1, 2, 3, 4]
    end(jobs, job)
    assert held.progress.floor == 5
    assert jobs._lanes[held].records == jobs._lanes[held].size == 0


def test_a_key_that_waits_for_its_next_try_stops_no_other_key() -> None:
    jobs, held = dispatcher(keyed=True, limits=FlowLimits(records=100, span=50)), claim()
    jobs.start(held)
    jobs.add(held, run_of(0, 1), 0.0)
    job = jobs.next(0.0)
    assert job is not None
    assert jobs.ended(job, 0.0)
    jobs.settle(job, job.records, 0.0)
    jobs.failure_stored(Failed(held, 0, 1, is_done=False, again_at=7_200.0), 0.0)
    for first in range(1, 5_001, 20):
        assert jobs.has_room(held), f"at {first}"
        jobs.add(held, run_of(first, 20, keys=10_000), 0.0)
        while (job := jobs.next(0.0)) is not None:
            end(jobs, job)
    assert (held.progress.floor, held.progress.ranges()) == (0, [(1, 5_001)])
    jobs.add(held, run_of(5_001, 100), 0.0)
    assert not jobs.has_room(held), "its own records in hand are bounded"


def test_attempts_of_suspended_records_come_with_the_claim() -> None:
    jobs, held = dispatcher(ordered=True), claim()
    held.attempts = {0: (3, 20.0)}
    jobs.start(held)
    jobs.add(held, run_of(0, 2), 0.0)
    assert jobs.next(10.0) is None
    jobs.tick(20.0)
    job = jobs.next(20.0)
    assert job is not None
    assert job.attempts == 3


def test_failures_in_another_group_are_no_attempts_in_this_one() -> None:
    """A group may read the dead letters of another one: there its records have not failed yet."""
    jobs = dispatcher()
    for topic, attempts in (("%RETRY%g", 3), ("%DLQ%other", 0), ("%RETRY%other", 0)):
        held = replace(claim(), place=(topic, 0))
        jobs.start(held)
        origin = RowOrigin(topic_id("t"), 0, 7, 3, "bad")
        jobs.add(held, replace(run_of(0, 1), topic=topic, origin=origin), 0.0)
        job = jobs.next(0.0)
        assert job is not None
        assert (job.attempts, jobs.failure(job, job.records[0], "", -1).attempts) == (
            attempts, attempts,
        )  # fmt: skip


def test_a_record_that_a_fetch_left_out_is_not_done() -> None:
    """Nobody said that the log holds nothing there: the next claim delivers it."""
    jobs, held = dispatcher(), claim()
    jobs.start(held)
    jobs.add(held, run_of(0, 2), 0.0)
    jobs.add(held, run_of(3, 2), 0.0)
    while (job := jobs.next(0.0)) is not None:
        end(jobs, job)
    assert (held.progress.floor, held.progress.ranges()) == (2, [(3, 5)])


def test_a_newer_claim_waits_for_the_job_of_the_older_one() -> None:
    """A listener that still has a record of a lost claim is not called for the same queue."""
    jobs, old = dispatcher(ordered=True), claim(1)
    jobs.start(old)
    jobs.add(old, run_of(0, 3), 0.0)
    late = jobs.next(0.0)
    assert late is not None
    assert jobs.stop(old, is_lost=True) == [late]
    new = claim(2)
    jobs.start(new)
    jobs.add(new, run_of(0, 3), 0.0)
    assert jobs.next(0.0) is None, "two callbacks of one queue at once"
    assert not jobs.ended(late, 0.0), "its outcome does not count"
    assert old.progress.floor == new.progress.floor == 0
    assert offsets(jobs.next(0.0)) == [0]


def test_a_revoked_claim_leaves_when_nothing_of_it_is_in_hand() -> None:
    jobs, held = dispatcher(), claim()
    jobs.start(held)
    jobs.add(held, run_of(0, 4), 0.0)
    job = jobs.next(0.0)
    assert job is not None
    assert jobs.stop(held, is_lost=False) == []
    jobs.add(held, run_of(4, 4), 0.0)
    assert jobs.next(0.0) is None
    assert jobs.idle_leavers() == []
    end(jobs, job)
    assert jobs.idle_leavers() == [held]
    assert held.progress.floor == 1


def test_a_batch_that_fails_comes_again_record_by_record() -> None:
    jobs, held = dispatcher(batch=3), claim()
    jobs.start(held)
    jobs.add(held, run_of(0, 5), 0.0)
    job = jobs.next(0.0)
    assert job is not None
    assert jobs.ended(job, 0.0)
    jobs.again(job, 0.0)
    assert [offsets(jobs.next(0.0)) for _ in range(4)] == [[0], [1], [2], [3, 4]]


def test_a_late_result_does_not_count() -> None:
    jobs, held = dispatcher(), claim()
    jobs.start(held)
    jobs.add(held, run_of(0, 1), 0.0)
    job = jobs.next(0.0)
    assert job is not None
    assert jobs.expired(9.9) == []
    assert jobs.expired(10.0) == [job]
    jobs.settle(job, job.records, 10.0)
    assert not jobs.ended(job, 11.0)
    assert held.progress.floor == 0


def test_nothing_is_handed_out_after_the_lease() -> None:
    jobs, held = dispatcher(ordered=True), claim()
    held.lease_end = 20.0
    jobs.start(held)
    jobs.add(held, run_of(0, 2), 0.0)
    job = jobs.next(19.9)
    assert job is not None
    end(jobs, job)
    assert jobs.next(20.0) is None


def test_flow_control_by_count_bytes_and_span() -> None:
    cases = {
        "records": FlowLimits(records=3), "bytes": FlowLimits(bytes=100),
        "span": FlowLimits(span=3),
    }  # fmt: skip
    for name, limits in cases.items():
        jobs, held = dispatcher(limits=limits), claim()
        jobs.start(held)
        assert jobs.has_room(held), name
        jobs.add(held, run_of(0, 4), 0.0)
        assert not jobs.has_room(held), name
        for _ in range(4):
            job = jobs.next(0.0)
            assert job is not None
            end(jobs, job)
        assert jobs.has_room(held), name
    jobs, held = dispatcher(), claim()
    jobs.start(held)
    jobs.add(held, run_of(0, AHEAD_MAX), 0.0)
    assert not jobs.has_room(held), "the listener is not that fast"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["concurrent", "queue", "key"]), st.integers(1, 4))
def test_every_record_ends_done_and_order_is_kept(seed: int, order: str, batch: int) -> None:
    """Random outcomes, failures, timeouts: all is done at last, nothing of a key overtakes."""
    world = _World(random.Random(seed), order, batch)
    world.run()
    assert world.held.progress.floor == world.count
    if order != "concurrent":
        for key, done in world.done.items():
            assert done == sorted(done), f"key {key}"
    assert world.jobs.waiting == 0


@dataclass
class _World:
    random: random.Random
    order: str
    batch: int
    count: int = 40
    now: float = 0.0
    done: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.held = claim()
        self.jobs = dispatcher(
            ordered=self.order == "queue", keyed=self.order == "key", batch=self.batch
        )
        self.running: list[Job] = []
        self.failing: list[tuple[int, int]] = []

    def run(self) -> None:
        self.jobs.start(self.held)
        self.jobs.add(self.held, run_of(0, self.count, keys=3), self.now)
        for _ in range(5_000):
            if self.held.progress.floor == self.count and not self.running:
                return
            self.now += self.random.random()
            self.jobs.tick(self.now)
            self.random.choice([self.begin, self.finish, self.store])()
        raise AssertionError("it never ended")

    def begin(self) -> None:
        job = self.jobs.next(self.now)
        if job is not None:
            keys = [(each.chain.lane.held.place, each.chain.key) for each in self.running]
            if self.order != "concurrent":
                assert (job.chain.lane.held.place, job.chain.key) not in keys
            self.running.append(job)

    def finish(self) -> None:
        if not self.running:
            return
        job = self.running.pop(self.random.randrange(len(self.running)))
        assert self.jobs.ended(job, self.now)
        if self.random.random() < 0.7:
            self.settle(job, [])
        elif len(job.records) > 1 and self.random.random() < 0.5:
            self.jobs.again(job, self.now)
        else:
            self.settle(job, [self.random.choice(job.records)])

    def settle(self, job: Job, failing: list[ConsumedRecord]) -> None:
        self.failing += [
            (record.offset, self.jobs.failure(job, record, "", -1).attempts) for record in failing
        ]
        for record in job.records:
            if record in failing and self.order != "concurrent":
                break
            key = "" if self.order == "queue" else record.keys[0]
            self.done.setdefault(key, []).append(record.offset)
        self.jobs.settle(job, failing, self.now)

    def store(self) -> None:
        if not self.failing:
            return
        offset, attempts = self.failing.pop(self.random.randrange(len(self.failing)))
        is_done = self.order == "concurrent" or attempts >= 3
        if is_done:
            self.held.progress.done(offset)
        again_at = self.now + self.random.random()
        told = Failed(self.held, offset, attempts + 1, is_done=is_done, again_at=again_at)
        self.jobs.failure_stored(told, self.now)
