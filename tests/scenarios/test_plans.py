"""What a plan must not do in silence. Small enough to catch known bugs with."""

import datetime as dt
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable

from dledger_client.errors import OffsetOutOfRange
from dledger_client.reading import Hold, HoldRequest, ReadPlan
from dledger_client.reading import plan as plans
from dledger_client.reading.holds import KEPT_MAX, PLACES
from dledger_client.spark import batch as batches
from dledger_client.spark import stream as streams
from dledger_client.spark.batch import LogPartition
from dledger_client.spark.failures import DledgerReadError
from dledger_client.spark.options import parse
from tests.unit.proto.samples import TOPIC_ID
from tests.unit.reading.fakes import GROUP, TOPIC, FakePlanner, FakeQueue

STATE = plans.QueueState("t", TOPIC_ID, 0, "g", 10, 100)


def test_lost_data_is_never_passed_over_in_silence() -> None:
    """What was trimmed before it was read is an error, unless that was accepted."""
    start = plans.Edge(offsets={"t": {0: 3}})
    with pytest.raises(OffsetOutOfRange):
        plans.resolve([STATE], start, plans.Edge())


def test_no_record_is_in_two_ranges_or_in_none() -> None:
    """However a queue is cut."""
    ranges = plans.cut(plans.PlannedQueue(STATE, 10, 100), 7.5, 4)
    offsets = [offset for each in ranges for offset in range(each.start, each.end)]
    assert offsets == list(range(10, 100))


def shared_from(state: plans.QueueState, start: int, ttl_ms: int = 600_000) -> Hold:
    return HoldRequest("", ttl_ms).on(state, start)


def test_a_shared_hold_keeps_what_each_of_its_readers_reads() -> None:
    """Whoever renews it, as long as it lives; and a queue has few of them, wherever jobs begin."""
    holds: dict[str, int] = {}
    for start in range(1_000):
        # The queue grows all the time, and is trimmed as far as is allowed.
        minimum = min(min(holds.values(), default=start // 2), start // 2)
        state = plans.QueueState("t", TOPIC_ID, 0, "g", minimum, 1_000 + start)
        hold = shared_from(state, start)
        assert minimum <= hold.offset <= start
        assert holds.setdefault(hold.owner, hold.offset) == hold.offset, "a hold was moved"
    one = plans.QueueState("t", TOPIC_ID, 0, "g", 0, 1 << 62)
    assert len({shared_from(one, start << 52).owner for start in range(1 << 10)}) <= PLACES
    assert HoldRequest("mine", 1).on(STATE, 50) == Hold("mine", 50, 1)
    assert shared_from(STATE, 50, 1).owner != shared_from(STATE, 50, 2).owner


def test_a_hold_that_is_gone_on_with_keeps_what_is_read() -> None:
    """Else another is taken: for what lies before it, and where it was trimmed."""
    kept = {STATE.place: Hold("shared-9-30", 30, 9)}
    request = HoldRequest("", 9, kept)
    assert request.on(STATE, 50) == kept[STATE.place]
    assert request.on(STATE, 29).offset <= 29
    assert request.on(plans.QueueState("t", TOPIC_ID, 0, "g", 40, 100), 50).offset >= 40


class Held:
    """A queue that begins empty, grows, and has holds that end by their time."""

    def __init__(self, rate: float, *, is_trimmed: bool) -> None:
        self.rate = rate
        self.is_trimmed = is_trimmed
        """Up to the first hold, all the time."""
        self.minimum = 0
        self.offsets: dict[str, int] = {}
        self.until: dict[str, float] = {}
        self.most = 0

    def state(self, now: float) -> plans.QueueState:
        """Return the queue at a time, in seconds, without the holds that have ended."""
        maximum = int(self.rate * now)
        for owner in [owner for owner, until in self.until.items() if until <= now]:
            del self.offsets[owner], self.until[owner]
        if self.is_trimmed:
            self.minimum = max(self.minimum, min(self.offsets.values(), default=maximum))
        return plans.QueueState(TOPIC, TOPIC_ID, 0, GROUP, self.minimum, maximum)

    def hold(self, held: Hold, now: float) -> None:
        """Take or renew a hold."""
        assert held.offset >= self.minimum, f"{held.owner} would be refused"
        assert self.offsets.setdefault(held.owner, held.offset) == held.offset, "a hold was moved"
        self.until[held.owner] = now + held.ttl_ms / 1_000
        self.most = max(self.most, len(self.offsets))


class HeldPlanner(FakePlanner):
    """Stands for `Planner`, at a time."""

    def __init__(self, queue: Held) -> None:
        super().__init__({0: FakeQueue([])})
        self.queue = queue
        self.now = 0.0

    def states(self, topics: Sequence[str], times_ms: Sequence[int] = ()) -> list[plans.QueueState]:
        assert list(topics) == [TOPIC]
        assert not times_ms
        return [self.queue.state(self.now)]

    def freeze(self, *arguments: Any, **more: Any) -> ReadPlan:
        plan = super().freeze(*arguments, **more)
        for held in plan.holds.values():
            self.queue.hold(held, self.now)
        self.holds.clear()
        return plan


def histories() -> Iterator[tuple[float, float, int, bool]]:
    """Yield rates per second, seconds between two plans, times of holds, whether it is trimmed."""
    for rate, period, ttl_ms, is_trimmed in product(
        (1, 100, 10_000, 100_000), (0.1, 0.5, 2, 60), (60_000, 600_000, 3_600_000), (False, True)
    ):
        if ttl_ms / 1_000 / period <= 1_500:
            yield rate, period, ttl_ms, is_trimmed


def moments(period: float, ttl_ms: int) -> Iterator[float]:
    """Yield the times of plans until holds have ended and others begun."""
    for number in range(int(1.7 * ttl_ms / 1_000 / period)):
        yield number * period


def test_a_stream_has_few_holds_whatever_its_rate() -> None:
    """From an empty queue on, closely trimmed or not, several batches a second or one a minute."""
    for rate, period, ttl_ms, is_trimmed in histories():
        queue = Held(rate, is_trimmed=is_trimmed)
        planner = HeldPlanner(queue)
        given = {"endpoints": "a:1", "topic": TOPIC, "holdMs": str(ttl_ms)}
        with patch.object(streams, "planner_for", return_value=planner):
            reader = streams.LogStreamReader(parse(given), partial(getattr, planner, "now"))
            at = reader.initialOffset()
            for planner.now in moments(period, ttl_ms):
                before, at = at, reader.latestOffset(at, ReadAllAvailable())
                reader.partitions(before, at)
        assert queue.most <= KEPT_MAX == 5, (rate, period, ttl_ms, is_trimmed)


def test_jobs_share_few_holds_wherever_they_begin() -> None:
    """Each a process of its own, that knows of no other: behind the end, and anywhere before it."""
    for rate, period, ttl_ms, is_trimmed in histories():
        queue = Held(rate, is_trimmed=is_trimmed)
        anywhere = random.Random(1)
        for time in moments(period, ttl_ms):
            state = queue.state(time)
            last = max(int(rate * (time - period)), state.minimum)
            for start in (last, anywhere.randint(state.minimum, state.maximum)):
                queue.hold(shared_from(state, start, ttl_ms), time)
        assert queue.most <= 32, (rate, period, ttl_ms, is_trimmed)


def test_a_stream_lets_go_of_what_it_has_read() -> None:
    """It keeps no more than a hold's time and a share of it, and what is held is there."""
    queue = Held(100, is_trimmed=True)
    planner = HeldPlanner(queue)
    with patch.object(streams, "planner_for", lambda _settings: planner):
        given = parse({"endpoints": "a:1", "topic": TOPIC, "holdMs": "60000"})
        reader = streams.LogStreamReader(given, lambda: planner.now)
        at = reader.initialOffset()
        for planner.now in moments(1, 600_000):
            before, at = at, reader.latestOffset(at, ReadAllAvailable())
            reader.partitions(before, at)
        # A place is rounded down by half of what is there at most.
        assert queue.state(planner.now).minimum > planner.now * 100 - 2 * 100 * (60 + 15)
        # A pause in which all holds end: the queue is trimmed behind what was held.
        planner.now += 1_000
        queue.state(planner.now)
        at = reader.latestOffset(at, ReadAllAvailable())
        reader.partitions(at, at)
        assert queue.most <= KEPT_MAX


class TrimmedPlanner(FakePlanner):
    """A cluster whose queues are trimmed as soon as a plan has been made."""

    def states(self, topics: Sequence[str], times_ms: Sequence[int] = ()) -> list[plans.QueueState]:
        if self.frozen:
            self.queues[0].minimum = 3
        return super().states(topics, times_ms)

    frozen = False

    def freeze(self, *arguments: Any, **more: Any) -> ReadPlan:
        plan = super().freeze(*arguments, **more)
        self.frozen = True
        return plan

    def offsets_of_key(self, *_: object) -> dict[int, list[int]]:
        """Say what the index has of a key that all records had."""
        self.queues[0].minimum = 3
        return {number: [*range(queue.minimum, 5)] for number, queue in self.queues.items()}


FILTERS: Sequence[Sequence[Filter]] = (
    [GreaterThanOrEqual(("store_timestamp",), dt.datetime.fromtimestamp(0.5, dt.UTC))],
    [EqualTo(("key",), "k")],
)


def narrowed(filters: Sequence[Filter], **options: str) -> list[tuple[int, int]]:
    """Return what is planned of two queues, of which the first is trimmed meanwhile."""
    given = {"endpoints": "a:1", "topic": TOPIC, "holdMs": "0", "pushdown": "true"} | options
    planner = TrimmedPlanner({number: FakeQueue([1_000] * 5) for number in range(2)})
    reader = batches.PushingReader(parse(given))
    list(reader.pushFilters([*filters]))
    with patch.object(batches, "planner_for", lambda _settings: planner):
        return offsets_in(reader.partitions())


def test_what_is_trimmed_while_a_filter_is_looked_up_is_told() -> None:
    """By time or key: what a look does not find because it is gone, no task would ask for."""
    for filters in FILTERS:
        with pytest.raises(DledgerReadError, match="orders/0 offsets 0 to 2 are gone: trimmed"):
            narrowed(filters)
        with logged() as lines:
            assert len(narrowed(filters, failOnDataLoss="false")) == 2 + 5
            assert lines == ["orders/0 offsets 0 to 2 are gone"]
        assert len(narrowed([*filters, EqualTo(("queue_id",), 1)])) == 5
        assert len(narrowed([*filters, GreaterThanOrEqual(("queue_offset",), 3)])) == 2 + 2


@contextmanager
def stream(queues: Mapping[int, FakeQueue], **options: str) -> Iterator[streams.LogStreamReader]:
    """Yield a stream's reader of a topic."""
    settings = parse({"endpoints": "a:1", "topic": TOPIC, "startingOffsets": "earliest"} | options)
    with patch.object(streams, "planner_for", lambda _settings: FakePlanner(queues)):
        yield streams.LogStreamReader(settings)


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def logged() -> Iterator[list[str]]:
    """Yield the lines that the client logs meanwhile."""
    handler = Lines()
    logger = logging.getLogger("dledger_client")
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)


def offsets_in(parts: Any) -> list[tuple[int, int]]:
    """Return what partitions hold."""
    return [
        (part.queue, offset)
        for each in parts
        if isinstance(each, LogPartition)
        for part in each.ranges
        for offset in range(part.start, part.end)
    ]


def test_a_stream_tells_what_was_trimmed_of_a_queue_that_came_later() -> None:
    """It begins at its first record, and not at the first that is left."""
    queues = {0: FakeQueue([1] * 5, minimum=2)}
    with stream(queues) as reader:
        first = reader.initialOffset()
        assert first["q"] == {TOPIC: {"0": 2}}
        queues[1] = FakeQueue([1] * 9, minimum=4)
        second = reader.latestOffset(first, ReadAllAvailable())
        assert second["q"] == {TOPIC: {"0": 5, "1": 9}}
        with pytest.raises(DledgerReadError, match="wanted from offset 0, the earliest is 4"):
            reader.partitions(first, second)
    with stream(queues, failOnDataLoss="false") as reader, logged() as lines:
        assert len(offsets_in(reader.partitions(first, second))) == 3 + 5
        assert lines == ["orders/1 offsets 0 to 3 are gone"]
        # One that comes later than a query's target is not of that query, nor lost in it.
        reader.prepareForTriggerAvailableNow()
        queues[2] = FakeQueue([1] * 9, minimum=4)
        third = reader.latestOffset(first, ReadAllAvailable())
        assert third == second
    with stream(queues) as reader:
        assert offsets_in(reader.partitions(second, third)) == []


def test_a_stream_behind_the_end_of_the_log_is_refused() -> None:
    """Nothing would ever come: the log is another one, or has lost its end."""
    queues = {0: FakeQueue([1] * 5)}
    with stream(queues) as reader:
        at = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        queues[0] = FakeQueue([1] * 4)
        with pytest.raises(DledgerReadError, match=r"OUT_OF_RANGE.*ends at 4.*checkpoint"):
            reader.latestOffset(at, ReadAllAvailable())


def test_a_batch_waits_for_enough_but_not_for_ever() -> None:
    """As Spark's Kafka source has it; with a target nothing waits, or the query would not end."""
    queue = Held(1, is_trimmed=False)
    planner = HeldPlanner(queue)
    given = parse(
        {"endpoints": "a:1", "topic": TOPIC, "minOffsetsPerTrigger": "100", "maxTriggerDelay": "5m"}
    )
    with patch.object(streams, "planner_for", return_value=planner):
        reader = streams.LogStreamReader(given, partial(getattr, planner, "now"))
        at = reader.initialOffset()
        ends: list[tuple[float, int]] = []
        for planner.now in range(10, 1_000, 10):
            queue.rate = min(planner.now, 500.5) / planner.now  # then nothing more comes
            later = reader.latestOffset(at, ReadAllAvailable())
            if later != at:
                ends.append((planner.now, later["q"][TOPIC]["0"]))
            at = later
        # The first at once, then whenever there are a hundred, the rest when five minutes are over.
        assert ends == [(10, 10), (110, 110), (210, 210), (310, 310), (410, 410), (710, 500)]
        queue.rate = 1
        reader.prepareForTriggerAvailableNow()
        assert reader.latestOffset(at, ReadAllAvailable())["q"][TOPIC]["0"] == 990


def test_what_waits_for_more_is_held() -> None:
    """A batch may wait for longer than holds last; the queue is trimmed all the time."""
    queue = Held(1, is_trimmed=True)
    planner = HeldPlanner(queue)
    waits = {"minOffsetsPerTrigger": "1000", "maxTriggerDelay": "1h", "holdMs": "60000"}
    given = parse({"endpoints": "a:1", "topic": TOPIC} | waits)
    with patch.object(streams, "planner_for", return_value=planner):
        reader = streams.LogStreamReader(given, partial(getattr, planner, "now"))
        at = reader.initialOffset()
        taken = 0
        for planner.now in range(10, 2_500, 10):
            queue.state(planner.now)
            before, at = at, reader.latestOffset(at, ReadAllAvailable())
            if at != before:
                taken += len(offsets_in(reader.partitions(before, at)))
    assert taken == at["q"][TOPIC]["0"] == 2_010
    assert queue.most <= KEPT_MAX
