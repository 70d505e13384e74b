"""The streaming reader: offsets by queue, limits for each batch, new queues as they appear.

Owns: what an offset of a stream says, how much of the backlog a batch takes. Not: plans and reading
(`batch.py`).

    {"cluster": "c", "q": {"orders": {"0": 12, ...}}, "topics": {"orders": "<id>"}, "v": 1}

Spark keeps offsets as JSON text and compares the text. So keys are always in one order, and no key
ever goes away. An offset names cluster and topic ids: the reader refuses an offset of another
cluster or of a topic that was deleted and created again. Spark builds one reader that plans and
another that travels to tasks, and it calls `commit` a batch late or never. So a partition holds
everything that its task needs. Planning and reading renew the holds, which else end by themselves.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from dledger_client.errors import TopicNotFound, error_of
from dledger_client.reading import LATEST, Edge, KeptHolds, Planner, ReadPlan
from dledger_client.reading.holds import SHARES
from dledger_client.reading.plan import Estimate, Place, QueueState
from dledger_client.spark.batch import (
    LogPartition,
    cut_plan,
    freeze,
    planner_for,
    read_partition,
    settings_for,
    topics_of,
)
from dledger_client.spark.failures import told
from dledger_client.spark.options import OF_BATCHES, Settings, refuse, shown
from dledger_proto.errors import Code

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger("dledger_client")

VERSION: Final = 1
Offsets = dict[str, Any]
"""As in the header of this module."""


def stream_reader_for(options: Mapping[str, str], schema: StructType) -> "LogStreamReader":
    """Return the reader for a schema, which may be the user's own: some of our columns."""
    with told():
        refuse(
            options,
            OF_BATCHES,
            "not for a stream: it has no end, and nothing is added to a stopped member's folder",
        )
        settings = settings_for(options, schema)
    if settings.start == Edge():
        settings = replace(settings, start=Edge(sentinel=LATEST))
    return LogStreamReader(settings)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is committed, batch after batch."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._kept = KeptHolds(settings.hold_ms)
        """The process that plans lives as long as its query."""
        self._target: dict[Place, int] | None = None
        self._triggered = -math.inf
        """When there was last enough for a batch, by the clock."""
        self._held = -math.inf
        """When holds were last taken or renewed."""

    def _freeze(self, planner: Planner, settings: Settings) -> ReadPlan:
        """Return a plan and hold what it reads; for a while by the holds of the plan before."""
        now = self._clock()
        plan = freeze(planner, settings, self._kept.at(now))
        self._kept.note(plan.holds, now)
        self._held = now
        return plan

    def _between(
        self, planner: Planner, start: Offsets, end: Offsets
    ) -> tuple[Settings, ReadPlan] | None:
        """Return the plan of what lies between two offsets, held; None when no topic is left."""
        ends = by_topic(end)
        settings = replace(
            self._settings,
            topics=tuple(sorted(ends)),
            pattern="",
            # A queue that `start` does not name appeared since: all its records are wanted, and
            # those that were trimmed are lost. A queue that `end` does not name comes later.
            start=Edge(offsets=by_topic(start), missing=0),
            end=Edge(offsets=ends, missing=0),
        )
        try:
            return settings, self._freeze(planner, settings)
        except TopicNotFound:
            settings = without_gone(planner, settings)
            return (settings, self._freeze(planner, settings)) if settings.topics else None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's names, here and below
        """Return where the first batch begins: by default at what is the end now."""
        with told(), planner_for(self._settings) as planner:
            plan = self._freeze(planner, self._settings)
            ends = {each.state.place: each.start for each in plan.queues}
            ids = {each.state.topic: each.state.topic_id.hex() for each in plan.queues}
            return offsets_of(plan.cluster, ids, ends)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return what one batch may take at most."""
        settings = self._settings
        if settings.trigger_records:
            return ReadMaxRows(settings.trigger_records)
        if settings.trigger_bytes:
            return ReadMaxBytes(settings.trigger_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Return where the batch that begins at `start` ends, within a limit."""
        with told(), planner_for(self._settings) as planner:
            cluster, states = self._states(planner)
            ids = {state.topic: state.topic_id.hex() for state in states}
            begun = places_of(start, cluster, ids)
            check_held(begun, states)
            ends = {state.place: state.maximum for state in states}
            if self._target is not None:
                # Queues that came after the target was frozen are of a later query.
                known = self._target | {p: o for p, o in begun.items() if p not in self._target}
                states = [state for state in states if state.place in known]
                ends = {state.place: known[state.place] for state in states}
            elif self._is_too_little(states, begun):
                self._hold_on(planner, start)
                return start
            ends = limited(states, begun, ends, limit)
            return offsets_of(cluster, {**start["topics"], **ids}, {**begun, **ends})

    def _is_too_little(self, states: Sequence[QueueState], begun: Mapping[Place, int]) -> bool:
        """Return whether a batch waits for more records, as in Spark's Kafka source.

        The first batch does not wait: nobody knows how long its records have waited already.
        """
        now = self._clock()
        starts = ((max(begun.get(each.place, 0), each.minimum), each.maximum) for each in states)
        waiting = sum(max(maximum - start, 0) for start, maximum in starts)
        is_due = now - self._triggered >= self._settings.trigger_delay_ms / 1_000
        if waiting < self._settings.trigger_records_min and not is_due:
            return True
        if waiting:
            self._triggered = now
        return False

    def _hold_on(self, planner: Planner, start: Offsets) -> None:
        """Renew the hold of records that wait: they may wait longer than a hold lasts."""
        hold_ms = self._settings.hold_ms
        if hold_ms and self._clock() - self._held >= hold_ms / 1_000 / SHARES:
            self._between(planner, start, start)

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        """Return the end of the log, for the lag that a query's progress shows."""
        with told(), planner_for(self._settings) as planner:
            cluster, states = self._states(planner)
            ids = {state.topic: state.topic_id.hex() for state in states}
            return offsets_of(cluster, ids, {state.place: state.maximum for state in states})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Freeze where the query ends."""
        with told(), planner_for(self._settings) as planner:
            _, states = self._states(planner)
            self._target = {state.place: state.maximum for state in states}

    def _states(self, planner: Planner) -> tuple[str, list[QueueState]]:
        try:
            topics = topics_of(planner, self._settings)
        except TopicNotFound:
            if not self._settings.pattern or self._settings.fail_on_data_loss:
                raise
            return planner.cluster, []
        states = planner.states(topics)
        only = self._settings.only
        return planner.cluster, [each for each in states if only is None or each.place in only]

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return the partitions of a batch; its records and those behind them are held."""
        with told(), planner_for(self._settings) as planner:
            check_form(start)
            check_form(end)
            found = self._between(planner, start, end)
            if found is None:
                return []
            settings, plan = found
            ids = {each.state.topic: each.state.topic_id.hex() for each in plan.queues}
            places_of(end, plan.cluster, ids)
            return cut_plan(settings, plan, plan.queues)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the records of a partition as Arrow batches."""
        if isinstance(partition, LogPartition):
            yield from read_partition(partition, self._settings.columns)


def without_gone(planner: Planner, settings: Settings) -> Settings:
    """Return the settings of a batch without topics that were deleted since its query began.

    TOPIC_NOT_FOUND unless data loss is accepted: their unread records are lost.
    """
    there = planner.topics_like(".*")
    gone = [topic for topic in settings.topics if topic not in there]
    if not gone:  # they are back
        return settings
    sentence = f"the checkpoint names topics that are gone: {', '.join(gone)}"
    if not settings.fail_on_data_loss:
        _LOG.warning("%s; their unread records are lost", sentence)
        kept = {topic for topic in settings.topics if topic in there}
        return replace(
            settings,
            topics=tuple(sorted(kept)),
            start=_of_topics(settings.start, kept),
            end=_of_topics(settings.end, kept),
            only=settings.only and frozenset(each for each in settings.only if each[0] in kept),
        )
    raise error_of(
        Code.TOPIC_NOT_FOUND,
        f"{sentence}; set failOnDataLoss=false to go on without them, or begin with a new "
        "checkpoint",
    )


def _of_topics(edge: Edge, topics: Set[str]) -> Edge:
    offsets = edge.offsets or {}
    return replace(edge, offsets={topic: offsets[topic] for topic in offsets if topic in topics})


def offsets_of(cluster: str, ids: Mapping[str, str], ends: Mapping[Place, int]) -> Offsets:
    """Return an offset of a stream, keys in order."""
    queues: dict[str, dict[str, int]] = {}
    for (topic, queue), offset in sorted(ends.items()):
        queues.setdefault(topic, {})[str(queue)] = offset
    return {"cluster": cluster, "q": queues, "topics": dict(sorted(ids.items())), "v": VERSION}


def by_topic(offsets: Offsets) -> dict[str, dict[int, int]]:
    """Return the offsets by topic and queue."""
    queues: Mapping[str, Mapping[str, int]] = offsets["q"]
    return {
        topic: {int(queue): offset for queue, offset in of_topic.items()}
        for topic, of_topic in queues.items()
    }


def check_form(offsets: Offsets) -> None:
    """Raise UNSUPPORTED_FORMAT unless `offsets_of` of this version made an offset."""
    version = offsets.get("v") if isinstance(cast("object", offsets), dict) else None
    if version not in (None, VERSION):
        raise error_of(
            Code.UNSUPPORTED_FORMAT,
            f"the checkpoint's offset is of version {version}, known is {VERSION}: use the dledger "
            "that wrote it, or begin with a new checkpoint",
        )
    if version is None or not _is_ours(offsets):
        raise error_of(
            Code.UNSUPPORTED_FORMAT,
            f"the checkpoint's offset is {shown(offsets)}, which dledger did not write: begin "
            "with a new checkpoint",
        )


def _is_ours(offsets: Offsets) -> bool:
    queues, topics = offsets.get("q"), offsets.get("topics")
    return (
        isinstance(offsets.get("cluster"), str)
        and isinstance(topics, dict)
        and isinstance(queues, dict)
        and all(isinstance(each, dict) for each in cast("dict[str, Any]", queues).values())
        and all(
            queue.isdecimal() and type(offset) is int and offset >= 0
            for each in cast("dict[str, dict[str, Any]]", queues).values()
            for queue, offset in each.items()
        )
    )


def places_of(offsets: Offsets, cluster: str, ids: Mapping[str, str]) -> dict[Place, int]:
    """Return the offsets by queue; refused when they are of another cluster, topic or form."""
    check_form(offsets)
    if offsets["cluster"] != cluster:
        raise error_of(
            Code.WRONG_CLUSTER,
            f"the checkpoint belongs to cluster {offsets['cluster']}, this is {cluster}: begin"
            " with a "
            "new checkpoint",
        )
    known: Mapping[str, str] = offsets["topics"]
    for topic, topic_id in ids.items():
        if known.get(topic, topic_id) != topic_id:
            raise error_of(
                Code.WRONG_CLUSTER,
                f"topic {topic} was deleted and created again since the checkpoint: begin with a"
                " new checkpoint",
            )
    return {
        (topic, queue): offset
        for topic, queues in by_topic(offsets).items()
        for queue, offset in queues.items()
    }


def check_held(begun: Mapping[Place, int], states: Sequence[QueueState]) -> None:
    """Raise OFFSET_OUT_OF_RANGE for an offset behind a queue's end, where nothing would ever come.

    A quorum confirmed the end. So the log was longer once, or it is another log.
    """
    for state in states:
        offset = begun.get(state.place, 0)
        if offset > state.maximum:
            raise error_of(
                Code.OFFSET_OUT_OF_RANGE,
                f"{state.topic}/{state.queue}: the checkpoint is at offset {offset}, the queue "
                f"ends at {state.maximum}: the cluster has lost its log or is another one; begin "
                "with a new checkpoint",
            )


def limited(
    states: Sequence[QueueState],
    begun: Mapping[Place, int],
    ends: Mapping[Place, int],
    limit: ReadLimit,
) -> dict[Place, int]:
    """Return where a batch ends: everything, or of each queue a share in proportion to its backlog.

    The end is never before the start, and at least one record further while there is one: with a
    limit that is too small the query would stand still for good. Trimmed records count for nothing
    and are passed in one step: the batch that passes them logs the loss, or fails because of it.
    """
    starts = {state.place: max(begun.get(state.place, 0), state.minimum) for state in states}
    backlog = {place: max(ends[place] - starts[place], 0) for place in starts}
    if isinstance(limit, ReadMaxBytes):
        sizes = {
            state.place: max(Estimate(state).between(starts[state.place], ends[state.place]), 1)
            for state in states
            if backlog[state.place]
        }
        share = min(limit.max_bytes / max(sum(sizes.values()), 1), 1.0)
    elif isinstance(limit, ReadMaxRows):
        share = min(limit.max_rows / max(sum(backlog.values()), 1), 1.0)
    else:
        share = 1.0
    left = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(backlog.values())
    found: dict[Place, int] = {}
    for place in sorted(starts, key=lambda each: -backlog[each]):
        taken = min(max(round(backlog[place] * share), 1), backlog[place], max(left, 0))
        left -= taken
        found[place] = starts[place] + taken
    return found
