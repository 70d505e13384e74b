"""Edges become offsets, ranges are cut by bytes: every record in exactly one partition."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_client.errors import InvalidRequest, OffsetOutOfRange
from dledger_client.reading.plan import (
    EARLIEST,
    LATEST,
    Edge,
    PlannedQueue,
    QueueState,
    Sample,
    partitions,
    question_of,
    resolve,
)
from tests.unit.proto.samples import TOPIC_ID, untimed

EVERYTHING = Edge()


def state(queue: int = 0, minimum: int = 10, maximum: int = 100, **more: Any) -> QueueState:
    return QueueState("t", TOPIC_ID, queue, "g", minimum, maximum, **more)


def bounds(
    states: Sequence[QueueState], start: Edge, end: Edge = EVERYTHING
) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in resolve(states, start, end)[0]]


def at(offsets: Mapping[int, int]) -> Edge:
    return Edge(offsets={"t": offsets})


def test_sentinels_times_and_groups() -> None:
    """Each kind of edge, with the queue's own ends as the defaults."""
    states = [state(0, by_time={5: 50}, committed=60), state(1, by_time={5: 100})]
    assert bounds(states, EVERYTHING) == [(10, 100), (10, 100)]
    assert bounds(states, Edge(sentinel=LATEST)) == [(100, 100), (100, 100)]
    assert bounds(states, at({0: EARLIEST, 1: LATEST})) == [(10, 100), (100, 100)]
    assert bounds(states, Edge(time_ms=5)) == [(50, 100), (100, 100)]
    assert bounds(states, EVERYTHING, Edge(time_ms=5)) == [(10, 50), (10, 100)]
    each = Edge(times={"t": {0: 5, 1: 5}})
    assert bounds(states, each) == [(50, 100), (100, 100)]
    assert bounds(states, EVERYTHING, each) == [(10, 50), (10, 100)]
    assert bounds(states, Edge(group="g")) == [(60, 100), (10, 100)]
    assert bounds(states, at({0: 30, 1: 90}), at({0: 40, 1: 20})) == [(30, 40), (90, 90)]


def test_a_group_that_has_committed_nothing_is_named() -> None:
    """It may be misspelt, and would read all there is, or nothing, without a word."""
    states = [state(0), state(1)]
    with pytest.raises(InvalidRequest, match="startingOffsets: consumer group typo has committed"):
        bounds(states, Edge(group="typo"))
    with pytest.raises(InvalidRequest, match="endingOffsets: consumer group typo has committed"):
        bounds(states, EVERYTHING, Edge(group="typo"))
    assert bounds([], Edge(group="typo")) == []


@pytest.mark.parametrize("offsets", [{0: 10}, {0: 10, 1: 10, 2: 10}, {0: 10, 1: -3}])
def test_maps_name_every_queue_exactly(offsets: dict[int, int]) -> None:
    """A queue too few, one too many, a number that is no offset."""
    with pytest.raises(InvalidRequest):
        bounds([state(0), state(1)], at(offsets))


@pytest.mark.parametrize("times", [{0: 5}, {0: 5, 1: 5, 2: 5}])
def test_maps_of_times_do_too(times: dict[int, int]) -> None:
    states = [state(0, by_time={5: 50}), state(1, by_time={5: 50})]
    with pytest.raises(InvalidRequest, match=r"endingOffsetsByTimestamp: .* exactly$"):
        bounds(states, EVERYTHING, Edge(times={"t": times}))


def test_each_queue_is_asked_for_its_own_times() -> None:
    """And for those of all; a time that both edges name is asked for once."""
    start, end = Edge(times={"t": {0: 5, 1: 6}}), Edge(times={"t": {0: 7, 1: 6}})
    question = question_of(start, end)
    assert [question.times_of(("t", queue)) for queue in range(3)] == [(5, 7), (6,), ()]
    question = question_of(start, Edge(time_ms=5))
    assert [question.times_of(("t", queue)) for queue in range(3)] == [(5,), (5, 6), (5,)]


def test_what_was_trimmed_is_told() -> None:
    """An error, or where that is accepted the gap; above the end it is always an error."""
    with pytest.raises(OffsetOutOfRange, match="failOnDataLoss=false"):
        bounds([state()], at({0: 3}))
    frozen, gaps = resolve([state()], at({0: 3}), EVERYTHING, fail_on_data_loss=False)
    assert (frozen[0].start, frozen[0].end) == (10, 100)
    assert [gap.describe() for gap in gaps] == ["t/0 offsets 3 to 9 are gone"]
    frozen, gaps = resolve([state()], at({0: 3}), at({0: 7}), fail_on_data_loss=False)
    assert (frozen[0].start, frozen[0].end, gaps[0].end) == (10, 10, 7)
    with pytest.raises(OffsetOutOfRange, match="another cluster"):
        resolve([state()], at({0: 101}), EVERYTHING, fail_on_data_loss=False)


queues = st.builds(
    lambda number, minimum, count, samples: state(
        number,
        minimum,
        minimum + count,
        samples=tuple(
            Sample(minimum + k * max(count // max(len(samples), 1), 1), records, size)
            for k, (records, size) in enumerate(samples)
        )
        if count > len(samples)
        else (),
    ),
    st.integers(0, 3),
    st.integers(0, 1_000),
    st.integers(0, 5_000),
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 10_000)), max_size=5),
)


@untimed
@given(
    st.lists(queues, max_size=5, unique_by=lambda each: each.queue),
    st.integers(1, 100_000),
    st.one_of(st.just(0), st.integers(1, 500)),
    st.integers(1, 9),
)
def test_every_record_is_in_one_partition(
    states: list[QueueState], size_max: int, records_max: int, at_least: int
) -> None:
    """Ranges of a queue join without gap or overlap, whatever the samples say."""
    frozen = [PlannedQueue(each, each.minimum, each.maximum) for each in states]
    found = partitions(frozen, size_max=size_max, records_max=records_max, at_least=at_least)
    for each in states:
        ranges = sorted(
            (part.start, part.end) for made in found for part in made if part.queue == each.queue
        )
        at_offset = each.minimum
        for start, end in ranges:
            assert start == at_offset < end
            at_offset = end
        assert at_offset == each.maximum
    for made in found:
        assert not records_max or sum(part.records for part in made) <= records_max


def test_ranges_are_cut_by_bytes_not_by_counts() -> None:
    """The half with large records gets most of the ranges; small queues share a partition."""
    skewed = state(0, 0, 1_000, samples=(Sample(0, 10, 100), Sample(900, 10, 10_000)))
    found = partitions([PlannedQueue(skewed, 0, 1_000)], size_max=100_000)
    heavy = [part for made in found for part in made if part.start >= 450]
    assert len(heavy) >= len(found) - 2
    assert [made[0].size for made in found] == sorted(
        (made[0].size for made in found), reverse=True
    )
    small = [PlannedQueue(state(n, 0, 10, samples=(Sample(0, 1, 10),)), 0, 10) for n in range(50)]
    assert len(partitions(small, size_max=1_000)) == 5
    assert len(partitions(small, size_max=1_000_000)) == 1
    assert len(partitions(small, size_max=1_000_000, at_least=7)) >= 7
    assert partitions([PlannedQueue(state(), 10, 10)], size_max=1) == []


def test_partitions_have_a_bound() -> None:
    """Each is a task: the option that asks for millions of them is named, before any is made."""
    huge = PlannedQueue(state(0, maximum=1 << 40), 10, 1 << 40)
    for more in ({"size_max": 1 << 60, "records_max": 100}, {"size_max": 1}):
        with pytest.raises(InvalidRequest, match="partitions, at most 100000: raise maxBytes"):
            partitions([huge], **more)
