"""A cluster as the log of an export: where queues begin, days by the log's word, holds.

Goal: what the protocol is told is what members say, whatever our own clock says. Method: a planner
in memory stands for the cluster.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_client.export import cluster_source
from dledger_client.export.cluster_source import DAY_MAX, ClusterSource, guesses, narrow
from dledger_client.export.layout import MS_PER_DAY, FrozenQueue, Layout, day_of, pieces_of
from dledger_client.export.source import FreezeRequest, FrozenLog
from tests.unit.reading.fakes import TOPIC, FakePlanner, FakeQueue

DAY: int = 20_500
MEMORY = 1 << 40


def times(*days: int) -> list[int]:
    return [day * MS_PER_DAY + at for at, day in enumerate(days)]


@contextmanager
def source_of(planner: FakePlanner, today: int = DAY) -> Iterator[ClusterSource]:
    """Yield the source of an export whose host has that day."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_source, "Planner", lambda *_: planner)
        patch.setattr("time.time", lambda: today * MS_PER_DAY / 1_000)
        with ClusterSource("a:1", Path("/lake")) as source:
            yield source


def freeze(
    queues: Mapping[int, FakeQueue], request: FreezeRequest, today: int = DAY
) -> dict[int, FrozenQueue]:
    with source_of(FakePlanner(queues), today) as source:
        return {each.queue: each for each in source.freeze(request).queues}


def days_of(frozen: FrozenQueue) -> dict[int, str]:
    """Return each offset's day, as files will say."""
    return {
        at: piece.date
        for piece in pieces_of(frozen, Layout.DATE, MEMORY)
        for at in range(piece.start, piece.end)
    }


def test_where_queues_begin() -> None:
    """The first version at what there is or by time; a later one where the last ended; a queue that
    came since at its first record, or by time where that is known."""
    log = {0: FakeQueue(times(DAY, DAY, DAY + 1, DAY + 1), minimum=1)}
    since = (DAY + 1) * MS_PER_DAY

    def begin(
        position: Mapping[int, int], *, is_first: bool = False, since_ms: int | None = None
    ) -> int:
        wanted = FreezeRequest(TOPIC, position, is_first=is_first, since_ms=since_ms)
        return freeze(log, wanted)[0].start

    assert begin({}, is_first=True) == 1
    assert begin({}, is_first=True, since_ms=since) == 2
    assert begin({0: 0}) == 0
    assert begin({}) == 0
    assert begin({}, since_ms=since) == 2
    assert begin({}, since_ms=DAY * MS_PER_DAY) == 0, "what is trimmed may have been stored since"


@pytest.mark.parametrize("today", [0, DAY - 1, DAY, DAY + 5_000, DAY_MAX, DAY_MAX + 1_000])
def test_days_are_the_logs_and_not_our_clocks(today: int) -> None:
    """A host that was set to 1970, or to the far future, exports into the same folders."""
    days = [DAY - 400, DAY - 400, DAY - 2, DAY, DAY, DAY + 1]
    queues = {0: FakeQueue(times(*days)), 1: FakeQueue(times(DAY))}
    found = freeze(queues, FreezeRequest(TOPIC, {}, is_first=True), today)
    assert days_of(found[0]) == {at: day_of(day * MS_PER_DAY) for at, day in enumerate(days)}
    assert days_of(found[1]) == {0: day_of(DAY * MS_PER_DAY)}


def test_a_trimmed_beginning_costs_no_more_looks_at_days() -> None:
    """They are bounded by what the log holds, and not by how long ago 1970 was."""
    planner = FakePlanner({0: FakeQueue(times(DAY - 1, DAY, DAY), minimum=2)})
    with source_of(planner) as source:
        frozen: FrozenLog = source.freeze(FreezeRequest(TOPIC, {0: 1}))
    assert days_of(frozen.queues[0]) == {2: day_of(DAY * MS_PER_DAY)}
    assert sum(planner.asked) < 100


@given(
    st.lists(st.integers(0, DAY_MAX), min_size=1, max_size=8).map(sorted),
    st.integers(0, 7),
    st.integers(0, DAY_MAX),
)
def test_days_are_narrowed_down_to_those_of_the_range(
    days: list[int], start: int, today: int
) -> None:
    """Every record's day is in; the looks are few, and beside the range they are bounded."""
    queue = FakeQueue(times(*days))
    start = min(start, len(days) - 1)
    looked: dict[int, Mapping[int, int]] = {}
    wanted = guesses(today)
    while wanted:
        looked |= {day: {0: queue.by_time(day * MS_PER_DAY)} for day in wanted}
        first, last, wanted = narrow(looked, [0], {0: start}, {0: len(days)})
        assert len(looked) < 200
    assert first <= days[start] <= days[-1] < last
    span = days[-1] + 1 - days[start]
    assert last - first <= 3 * span + 2 * cluster_source.DAYS_AT_ONCE


def test_a_hold_ends_with_its_exporter() -> None:
    """What a run that failed keeps is `tests/scenarios/test_export_holds.py`'s."""
    planner = FakePlanner({0: FakeQueue(times(DAY, DAY), minimum=1)})
    request = FreezeRequest(TOPIC, {0: 0}, with_days=False)
    with source_of(planner) as source:
        source.freeze(request)
        (held,) = planner.holds[TOPIC, 0]
        assert held.owner.startswith("export-")
        assert held.offset == 1, "what is trimmed cannot be held"
    assert planner.holds[TOPIC, 0] == []
