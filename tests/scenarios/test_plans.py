"""What a plan must not do in silence. Small enough to catch known bugs with."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from dledger_client.errors import OffsetOutOfRange
from dledger_client.reading import plan as plans
from dledger_client.spark import stream as streams
from dledger_client.spark.batch import LogPartition
from dledger_client.spark.failures import DledgerReadError
from dledger_client.spark.options import parse
from tests.unit.proto.samples import TOPIC_ID
from tests.unit.reading.fakes import TOPIC, FakePlanner, FakeQueue

STATE = plans.QueueState("t", TOPIC_ID, 0, "g", 10, 100)


def test_lost_data_is_never_passed_over_in_silence() -> None:
    """What was trimmed before it was read is an error, unless that was accepted."""
    start = plans.Edge(offsets={"t": {0: 3}})
    with pytest.raises(OffsetOutOfRange):
        plans.resolve([STATE], start, plans.Edge())


def test_no_record_is_in_two_ranges_or_in_none() -> None:
    """However a queue is cut."""
    ranges = plans.cut(plans.Frozen(STATE, 10, 100), 7.5, 4)
    offsets = [offset for each in ranges for offset in range(each.start, each.end)]
    assert offsets == list(range(10, 100))


def test_a_shared_hold_keeps_what_each_of_its_readers_reads() -> None:
    """Whoever renews it, as long as it lives; and a queue has few of them, wherever jobs begin."""
    holds: dict[str, int] = {}
    for start in range(1_000):
        # The queue grows all the time, and is trimmed as far as is allowed.
        minimum = min(min(holds.values(), default=start // 2), start // 2)
        state = plans.QueueState("t", TOPIC_ID, 0, "g", minimum, 1_000 + start)
        hold = plans.hold_of(state, start, "", 600_000)
        assert minimum <= hold.offset <= start
        assert holds.setdefault(hold.owner, hold.offset) == hold.offset, "a hold was moved"
    assert len(holds) < 64
    one = plans.QueueState("t", TOPIC_ID, 0, "g", 0, 1 << 62)
    assert len({plans.hold_of(one, start << 52, "", 1).owner for start in range(1 << 10)}) <= 17
    assert plans.hold_of(STATE, 50, "mine", 1) == plans.Hold("mine", 50, 1)
    assert plans.hold_of(STATE, 50, "", 1) != plans.hold_of(STATE, 50, "", 2)


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
