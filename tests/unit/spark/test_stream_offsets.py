"""Offsets of a stream, and how a limit is spread over queues."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from dledger_client.errors import InvalidRequest
from dledger_client.reading.plan import QueueState, Sample
from dledger_client.spark.stream import check_form, limited, offsets_of, places_of
from tests.unit.proto.samples import TOPIC_ID, untimed

IDS = {"t": TOPIC_ID.hex()}


def test_equal_offsets_are_equal_text() -> None:
    """Whatever order the queues came in; and they are read back as they were."""
    ends = {("t", queue): queue * 10 for queue in range(12)}
    text = json.dumps(offsets_of("c", IDS, ends))
    assert text == json.dumps(offsets_of("c", IDS, dict(reversed(ends.items()))))
    assert places_of(json.loads(text), "c", IDS) == ends


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cluster": "other"}, "to cluster other"),
        ({"topics": {"t": "ff" * 16}}, "created again"),
        ({"v": 2}, "version 2, known is 1"),
        ({"q": None}, "dledger did not write: begin with a new checkpoint"),
        ({"q": {"t": [1]}}, "dledger did not write"),
        ({"q": {"t": {"0": 1.5}}}, "dledger did not write"),
        ({"q": {"t": {"first": 1}}}, "dledger did not write"),
        ({"topics": None}, "dledger did not write"),
        ({"cluster": 7}, "dledger did not write"),
    ],
)
def test_foreign_offsets_are_refused(change: dict[str, Any], says: str) -> None:
    """Another cluster, a topic of the same name, a later form."""
    with pytest.raises(InvalidRequest, match=says):
        places_of(offsets_of("c", IDS, {("t", 0): 1}) | change, "c", IDS)


@pytest.mark.parametrize("offset", [5, [1], None, "x", {}, {"orders": {"0": 5}}])
def test_a_checkpoint_of_another_source_is_refused(offset: Any) -> None:
    """Of a query that read from something else before: numbers, Kafka's offsets."""
    with pytest.raises(InvalidRequest, match="dledger did not write: begin with a new checkpoint"):
        check_form(offset)


limits = st.one_of(
    st.just(ReadAllAvailable()),
    st.integers(1, 5_000).map(ReadMaxRows),
    st.integers(1, 500_000).map(ReadMaxBytes),
)


@untimed
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 2_000)), max_size=6), limits)
def test_a_limit_is_kept_and_never_stands_still(
    queues: list[tuple[int, int]], limit: ReadLimit
) -> None:
    """No queue goes back or past its end; there is progress while there is a backlog."""
    states = [
        QueueState("t", TOPIC_ID, n, "g", low, low + count, (Sample(low, 1, 100),))
        for n, (low, count) in enumerate(queues)
    ]
    ends = {state.place: state.maximum for state in states}
    found = limited(states, {}, ends, limit)
    assert found.keys() == ends.keys()
    assert all(state.minimum <= found[state.place] <= state.maximum for state in states)
    taken = sum(found[state.place] - state.minimum for state in states)
    backlog = sum(count for _, count in queues)
    assert bool(taken) == bool(backlog)
    if isinstance(limit, ReadAllAvailable):
        assert taken == backlog
    if isinstance(limit, ReadMaxRows):
        assert taken <= limit.max_rows
