"""What a job reads, frozen: edges resolved to offsets, queues cut into ranges by bytes. Pure.

Owns: the meaning of starts and ends, what counts as lost data, the estimate of bytes, partitions.
Not: asking the cluster (`planner.py`), holds (`holds.py`), reading (`reader.py`).

Committed records never change, so a range is a value. Every reader of a range gets the same rows,
however often it reads and from whichever member. This module resolves "earliest", "latest" and
times once; a plan holds numbers only.
"""

import heapq
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from dledger_client.errors import error_of, invalid
from dledger_proto.errors import Code

EARLIEST: Final = -2
LATEST: Final = -1
"""Kafka's numbers, in maps of offsets."""

PARTITIONS_MAX: Final = 100_000
"""Partitions of one plan, at most: each is a task, and travels with it."""

Place = tuple[str, int]
"""Topic and queue."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Where reading begins, or where it ends. At most one kind is given; none: the queue's end."""

    offsets: Mapping[str, Mapping[int, int]] | None = None
    """Of every queue of every topic, exactly; EARLIEST and LATEST are allowed."""
    missing: int | None = None
    """What a queue gets that `offsets` does not name; None: that is an error."""
    time_ms: int | None = None
    """The first offset stored at or after it; the end when there is none yet."""
    times: Mapping[str, Mapping[int, int]] | None = None
    """As `offsets`, with a time for each queue of every topic."""
    group: str = ""
    """The offsets that this consumer group committed; the minimum of a queue without one."""
    sentinel: int | None = None
    """EARLIEST or LATEST, of all queues."""


class Sample(NamedTuple):
    """A batch of a queue."""

    offset: int
    record_count: int
    size: int


@dataclass(frozen=True, slots=True)
class QueueState:
    """What the cluster told about a queue, all at one applied index."""

    topic: str
    topic_id: bytes
    queue: int
    group: str
    minimum: int
    maximum: int
    samples: tuple[Sample, ...] = ()
    by_time: Mapping[int, int] = field(default_factory=dict[int, int])
    """Time in milliseconds -> offset, for the times that were asked."""
    committed: int | None = None
    """Of the consumer group that an edge names."""

    @property
    def place(self) -> Place:
        """Topic and queue."""
        return self.topic, self.queue


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets `start` to `end` - 1 of one queue."""

    topic: str
    topic_id: bytes
    queue: int
    group: str
    start: int
    end: int
    size: int
    """Estimate, bytes."""

    @property
    def records(self) -> int:
        """How many."""
        return self.end - self.start

    def describe(self) -> str:
        """Return one stable line."""
        return f"{self.topic}/{self.queue} offsets {self.start} to {self.end - 1}"


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Records that were asked for and are gone."""

    topic: str
    queue: int
    start: int
    end: int

    def describe(self) -> str:
        """Return one stable line."""
        return f"{self.topic}/{self.queue} offsets {self.start} to {self.end - 1} are gone"


@dataclass(frozen=True, slots=True)
class PlannedQueue:
    """One queue of a plan: its whole range, and what it was cut from."""

    state: QueueState
    start: int
    end: int


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that a regular expression matches as a whole."""
    try:
        matches = re.compile(pattern).fullmatch
    except re.error as error:
        raise invalid(f"topicsPattern {pattern!r}: {error}") from None
    return [name for name in names if matches(name)]


@dataclass(frozen=True, slots=True)
class Question:
    """What a planner asks about queues, besides their bounds."""

    times_ms: tuple[int, ...] = ()
    """Times whose offsets are asked of every queue."""
    times_by_queue: Mapping[Place, tuple[int, ...]] = field(
        default_factory=dict[Place, tuple[int, ...]]
    )
    """Those of one queue alone."""
    group: str = ""
    """The consumer group whose committed offsets are asked; empty: none."""

    def times_of(self, place: Place) -> tuple[int, ...]:
        """Return the times that are asked of a queue."""
        return tuple(sorted({*self.times_ms, *self.times_by_queue.get(place, ())}))


def question_of(start: Edge, end: Edge) -> Question:
    """Return what two edges need to know; INVALID_ARGUMENT for two consumer groups."""
    if start.group and end.group and start.group != end.group:
        raise invalid("startingOffsets and endingOffsets name two consumer groups: name one")
    by_queue: dict[Place, tuple[int, ...]] = {}
    for edge in (start, end):
        for topic, queues in (edge.times or {}).items():
            for queue, time_ms in queues.items():
                by_queue[topic, queue] = (*by_queue.get((topic, queue), ()), time_ms)
    times = tuple(edge.time_ms for edge in (start, end) if edge.time_ms is not None)
    return Question(times, by_queue, start.group or end.group)


def check_queues(edge: Edge, states: Sequence[QueueState], option: str) -> None:
    """Raise INVALID_ARGUMENT unless an edge's map names exactly the queues that exist."""
    given = edge.offsets if edge.times is None else edge.times
    if given is None:
        return
    if edge.times is not None:
        option += "ByTimestamp"
    named = {(topic, queue) for topic, queues in given.items() for queue in queues}
    there = {state.place for state in states}
    missed = there - named if edge.missing is None else set[Place]()
    for problem, places in (("misses", missed), ("names", named - there)):
        if places:
            topic, queue = min(places)
            marks = "" if edge.offsets is None else ", with -2 for earliest and -1 for latest"
            raise invalid(
                f"{option}: {problem} {topic}/{queue}, {len(places)} in all; name every queue "
                f"exactly{marks}"
            )


def check_group(edge: Edge, states: Sequence[QueueState], option: str) -> None:
    """Raise INVALID_ARGUMENT for a group that committed nothing here: it may be misspelt."""
    if edge.group and states and all(state.committed is None for state in states):
        topics = ", ".join(sorted({state.topic for state in states}))
        raise invalid(
            f"{option}: consumer group {edge.group} has committed nothing in the queues of "
            f"{topics} that are read; if that is its name, earliest reads all there is"
        )


def resolve(
    states: Sequence[QueueState], start: Edge, end: Edge, *, fail_on_data_loss: bool = True
) -> tuple[list[PlannedQueue], list[Trimmed]]:
    """Return each queue's range, and the gaps in it.

    OFFSET_OUT_OF_RANGE for an offset below the minimum (with `fail_on_data_loss`) or above the
    maximum (always: the log never held it, so it is of another topic), INVALID_ARGUMENT for maps
    that do not fit.
    """
    for edge, option in ((start, "startingOffsets"), (end, "endingOffsets")):
        check_queues(edge, states, option)
        check_group(edge, states, option)
    frozen: list[PlannedQueue] = []
    gaps: list[Trimmed] = []
    for state in states:
        first = _offset(start, state, EARLIEST)
        last = max(_offset(end, state, LATEST), first)
        for option, offset in (("startingOffsets", first), ("endingOffsets", last)):
            if offset > state.maximum:
                raise error_of(
                    Code.OFFSET_OUT_OF_RANGE,
                    f"{option}: {state.topic}/{state.queue} offset {offset}, the queue ends at "
                    f"{state.maximum}: the offsets are of another cluster or of an older topic",
                )
        if first < state.minimum:
            lost = Trimmed(state.topic, state.queue, first, min(state.minimum, last))
            if lost.end > lost.start:
                if fail_on_data_loss:
                    raise error_of(
                        Code.OFFSET_OUT_OF_RANGE,
                        f"{state.topic}/{state.queue}: wanted from offset {first}, the earliest is "
                        f"{state.minimum}: raise startingOffsets or set failOnDataLoss=false",
                    )
                gaps.append(lost)
            first = state.minimum
        frozen.append(PlannedQueue(state, first, max(first, last)))
    return frozen, gaps


def _offset(edge: Edge, state: QueueState, default: int) -> int:
    offset = default if edge.sentinel is None else edge.sentinel
    if edge.offsets is not None:
        named = edge.offsets.get(state.topic, {}).get(state.queue, edge.missing)
        assert named is not None, f"{state.place} was checked to be named"
        offset = named
    elif edge.times is not None:
        offset = state.by_time[edge.times[state.topic][state.queue]]
    elif edge.time_ms is not None:
        offset = state.by_time[edge.time_ms]
    elif edge.group:
        offset = state.minimum if state.committed is None else state.committed
    if offset == EARLIEST:
        return state.minimum
    if offset == LATEST:
        return state.maximum
    if offset < 0:
        raise invalid(f"{state.topic}/{state.queue}: offset {offset}, must be 0 or more, -2 or -1")
    return offset


class Estimate:
    """Bytes of a queue by offset, from samples: each stands for the records nearest to it."""

    def __init__(self, state: QueueState) -> None:
        samples = state.samples or (Sample(state.minimum, 1, 1),)
        middles = [(left.offset + right.offset) // 2 for left, right in pairwise(samples)]
        self._edges = [state.minimum, *middles]
        self._densities = [max(each.size, 1) / max(each.record_count, 1) for each in samples]
        self._before = [0.0]
        for k, middle in enumerate(middles):
            width = middle - self._edges[k]
            self._before.append(self._before[-1] + width * self._densities[k])

    def up_to(self, offset: int) -> float:
        """Return the bytes of everything before an offset."""
        k = max(bisect_right(self._edges, offset) - 1, 0)
        return self._before[k] + (offset - self._edges[k]) * self._densities[k]

    def between(self, start: int, end: int) -> int:
        """Return the bytes of a range."""
        return round(self.up_to(end) - self.up_to(start))

    def offset_at(self, size: float) -> int:
        """Return the offset before which about `size` bytes lie."""
        k = max(bisect_right(self._before, size) - 1, 0)
        return self._edges[k] + round((size - self._before[k]) / self._densities[k])


def cut(frozen: PlannedQueue, size_max: float, records_max: int = 0) -> list[Range]:
    """Return the ranges of a queue: of equal bytes, none above the limits by the estimate."""
    state = frozen.state
    start, end = frozen.start, frozen.end
    if start == end:
        return []
    estimate = Estimate(state)
    low, high = estimate.up_to(start), estimate.up_to(end)
    parts = min(max(1, -int(-(high - low) // size_max)), end - start)
    borders = [start]
    for part in range(1, parts):
        offset = estimate.offset_at(low + (high - low) * part / parts)
        borders.append(min(max(offset, borders[-1]), end))
    borders.append(end)
    if records_max:
        borders = [
            *(
                offset
                for left, right in pairwise(borders)
                for offset in range(left, right, records_max)
            ),
            end,
        ]
    return [
        Range(
            state.topic, state.topic_id, state.queue, state.group, left, right,
            estimate.between(left, right),
        )
        for left, right in pairwise(borders)
        if left < right
    ]  # fmt: skip


def partitions(
    frozen: Sequence[PlannedQueue], *, size_max: int, records_max: int = 0, at_least: int = 1
) -> list[tuple[Range, ...]]:
    """Return ranges in partitions, the largest first; small queues share one.

    No partition is above `size_max` bytes (by the estimate) or `records_max` records (0: any), but
    one that holds a single batch. `at_least` is a wish: there are fewer when there is little.
    """
    total = sum(Estimate(each.state).between(each.start, each.end) for each in frozen)
    limit = max(min(size_max, -(-total // max(at_least, 1))), 1)
    records = sum(each.end - each.start for each in frozen)
    wanted = max(min(-(-total // limit), records), -(-records // records_max) if records_max else 0)
    if wanted > PARTITIONS_MAX:
        raise invalid(
            f"{wanted} partitions, at most {PARTITIONS_MAX}: raise maxBytesPerPartition or "
            "maxRecordsPerPartition, or lower minPartitions"
        )
    ranges = [part for each in frozen for part in cut(each, limit, records_max)]
    ranges.sort(key=lambda each: (-each.size, each.topic, each.queue, each.start))
    filled: list[tuple[int, int, int]] = []
    """(bytes, records, number) of each partition, the emptiest first."""
    found: list[list[Range]] = []
    for each in ranges:
        size, records, number = filled[0] if filled else (limit, 0, -1)
        fits = size + each.size <= limit and (
            not records_max or records + each.records <= records_max
        )
        if fits and number >= 0:
            heapq.heapreplace(filled, (size + each.size, records + each.records, number))
            found[number].append(each)
        else:
            heapq.heappush(filled, (each.size, each.records, len(found)))
            found.append([each])
    return [tuple(each) for each in found]
