"""A stream by pattern whose topics go away.

Goal: it goes on without them where loss is accepted, and says what to do where it is not. Method: a
planner in memory stands for the cluster.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from dledger_client.errors import error_of
from dledger_client.reading import Edge, HoldRequest, ReadPlan
from dledger_client.reading.plan import Place, QueueState, resolve
from dledger_client.spark import stream
from dledger_client.spark.batch import LogPartition
from dledger_client.spark.failures import DledgerReadError
from dledger_client.spark.options import parse
from dledger_client.spark.stream import LogStreamReader
from dledger_proto.errors import Code
from tests.unit.proto.samples import TOPIC_ID

ALL = ReadAllAvailable()


class Topics:
    """Stands for `Planner`: topics of one queue, with as many records as the test says."""

    cluster = "c1"

    def __init__(self, **records: int) -> None:
        self.records = records

    def __enter__(self) -> "Topics":
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def topics_like(self, pattern: str) -> list[str]:
        return sorted(name for name in self.records if re.fullmatch(pattern, name))

    def states(self, topics: Sequence[str]) -> list[QueueState]:
        for name in topics:
            if name not in self.records:
                raise error_of(Code.TOPIC_NOT_FOUND, name)
        return [QueueState(name, TOPIC_ID, 0, "g", 0, self.records[name]) for name in topics]

    def freeze(
        self,
        topics: Sequence[str],
        start: Edge,
        end: Edge,
        *,
        hold: HoldRequest | None = None,
        fail_on_data_loss: bool = True,
        only: Iterable[Place] | None = None,
    ) -> ReadPlan:
        assert only is None
        states = self.states(topics)
        frozen, gaps = resolve(states, start, end, fail_on_data_loss=fail_on_data_loss)
        return ReadPlan(self.cluster, tuple(frozen), tuple(gaps), {}, hold)


@contextmanager
def reader_of(topics: Topics, fail_on_data_loss: str) -> Iterator[LogStreamReader]:
    """Yield the reader of a stream over all topics."""
    settings = parse(
        {
            "endpoints": "a:1", "topicsPattern": ".*", "startingOffsets": "earliest",
            "failOnDataLoss": fail_on_data_loss,
        }
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "planner_for", lambda _: topics)
        yield LogStreamReader(settings)


def read(reader: LogStreamReader, start: stream.Offsets, end: stream.Offsets) -> list[str]:
    parts = reader.partitions(start, end)
    ranges = [each for part in parts if isinstance(part, LogPartition) for each in part.ranges]
    return [each.describe() for each in ranges]


def test_a_stream_goes_on_without_topics_that_are_gone(caplog: pytest.LogCaptureFixture) -> None:
    """Of a batch that was planned with them, of later ones, and when none is left."""
    topics = Topics(a=3, b=5)
    with reader_of(topics, "false") as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        assert read(reader, start, end) == ["b/0 offsets 0 to 4", "a/0 offsets 0 to 2"]
        topics.records = {"a": 4}
        assert read(reader, start, end) == ["a/0 offsets 0 to 2"]
        assert "gone: b; their unread records are lost" in caplog.text
        later = reader.latestOffset(end, ALL)
        assert read(reader, end, later) == ["a/0 offsets 3 to 3"]
        topics.records = {}
        assert reader.latestOffset(later, ALL) == later
        assert read(reader, end, later) == []


def test_a_stream_that_must_lose_nothing_says_what_is_gone() -> None:
    """And what can be done, since it would say the same for ever."""
    topics = Topics(a=3, b=5)
    with reader_of(topics, "true") as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        del topics.records["b"]
        with pytest.raises(DledgerReadError, match="gone: b; set failOnDataLoss=false to go on"):
            reader.partitions(start, end)
