"""The batch reader: it freezes a plan where Spark plans, and reads ranges where tasks run.

Owns: what is in a partition, the columns of a schema given by the user, filters that are pushed
down. Not: options (`options.py`), plans and reading (`dledger_client.reading`; of the option `path`
`pyspark_dledger.folders`).

Spark's rules that shape this: partitions are a list; an empty list becomes one task with a bare
InputPartition; batches must have exactly the schema's Arrow form; a reader that can take filters
makes every query fail where the conf is off, so the plain one cannot (see `PushingReader`).
"""

import datetime as dt
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from dledger_client.arrow.schema import COLUMNS, ddl_of, schema_of, unknown
from dledger_client.errors import error_of, invalid
from dledger_client.reading import (
    Hold,
    HoldRequest,
    Origin,
    PlannedQueue,
    Planner,
    Range,
    RangeReader,
    ReadPlan,
    Trimmed,
    partitions,
)
from dledger_client.reading.folders import FolderOrigin
from dledger_client.reading.plan import Place, QueueState
from dledger_client.spark.failures import told
from dledger_client.spark.options import OF_STREAMS, Settings, parse, refuse
from dledger_client.unreadable import Unreadable
from dledger_proto.errors import Code

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_dledger.folders import FolderPlanner, FolderRangeReader

    AnyPlanner = Planner | FolderPlanner

NEAR: Final = 256
"""So many records between two wanted ones are read rather than left out."""
_LOG: Final = logging.getLogger("dledger_client")


def schema_for(options: Mapping[str, str]) -> str:
    """Return the schema of the columns that options ask for, as DDL."""
    with told():
        return ddl_of(parse(options).columns)


def reader_for(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Return the reader for a schema, which may be the user's own: some of our columns."""
    with told():
        refuse(options, OF_STREAMS, "only for streams (spark.readStream); leave it out")
        settings = settings_for(options, schema)
    return PushingReader(settings) if settings.pushdown else LogReader(settings)


def settings_for(options: Mapping[str, str], schema: StructType) -> Settings:
    """Return the settings of a read with a schema; INVALID_ARGUMENT where the two disagree."""
    settings, columns = parse(options), columns_of(schema)
    if any(name.lower() == "columns" for name in options) and columns != settings.columns:
        raise invalid(
            f"columns, .schema(): {', '.join(settings.columns)} and {', '.join(columns)}; give one "
            "of them"
        )
    return replace(settings, columns=columns)


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Return the names of a schema's columns; INVALID_ARGUMENT unless each is exactly ours."""
    names = schema.fieldNames()
    if not names:
        raise invalid(f"schema: empty, known are {', '.join(COLUMNS)}")
    for name in names:
        if name not in COLUMNS:
            raise invalid(f"schema: column {unknown(name, COLUMNS)}")
    ours = schema_of(names)
    for field, wanted in zip(schema.fields, from_arrow_schema(ours).fields, strict=True):
        if field.dataType != wanted.dataType or not field.nullable:
            raise invalid(
                f"schema: column {field.name} is {field.dataType.simpleString()}"
                f"{'' if field.nullable else ' not null'}, it must be {COLUMNS[field.name].ddl}"
            )
    assert to_arrow_schema(schema, timezone="UTC").equals(ours), "Spark's form and ours differ"
    return tuple(names)


@dataclass
class LogPartition(InputPartition):
    """Some ranges, and where to read them. It is small, for it travels with its task."""

    ranges: tuple[Range, ...]
    holds: tuple[Hold | None, ...]
    origin: Origin | FolderOrigin


class LogReader(DataSourceReader):
    """Reads what a plan froze."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def partitions(self) -> list[InputPartition]:
        """Freeze the plan, and cut it."""
        with told():
            if self._settings.path:
                return self._of_folder()
            with planner_for(self._settings) as planner:
                plan = freeze(planner, self._settings)
                return cut_plan(self._settings, plan, self._narrowed(planner, plan))

    def _of_folder(self) -> list[InputPartition]:
        from pyspark_dledger.folders import FolderPlanner

        with FolderPlanner(self._settings.path) as planner:
            plan = freeze(planner, self._settings)
            queues = self._narrowed(planner, plan)
            return cut_plan(self._settings, plan, queues, planner.origin)

    def _narrowed(self, _planner: "AnyPlanner", plan: ReadPlan) -> Sequence[PlannedQueue]:
        """Return the queues to read, narrowed by what was pushed down."""
        return plan.queues

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the records of a partition as Arrow batches."""
        if isinstance(partition, LogPartition):
            yield from read_partition(partition, self._settings.columns, is_plan_kept=True)


def read_partition(
    partition: LogPartition, columns: Sequence[str], *, is_plan_kept: bool = False
) -> Iterator["pa.RecordBatch"]:
    """Yield the records of a partition, one range after the other."""
    with told(is_plan_kept=is_plan_kept), reader_of(partition.origin, columns) as reader:
        for wanted, hold in zip(partition.ranges, partition.holds, strict=True):
            yield from reader.read(wanted, hold)
        unreadable = [gap for gap in reader.gaps if isinstance(gap, Unreadable)]
        if unreadable:
            records = sum(gap.records for gap in unreadable)
            _LOG.warning(
                "%s records in %s batches of this partition were left out: they cannot be decoded",
                records, len(unreadable),
            )  # fmt: skip


def reader_of(
    origin: Origin | FolderOrigin, columns: Sequence[str]
) -> "RangeReader | FolderRangeReader":
    """Return what reads ranges: from members, or from their folders."""
    if isinstance(origin, Origin):
        return RangeReader(origin, columns)
    from pyspark_dledger.folders import FolderRangeReader

    return FolderRangeReader(origin, columns)


def planner_for(settings: Settings) -> Planner:
    """Return a connection to plan over."""
    return Planner(settings.endpoints, settings.connection)


def topics_of(planner: "AnyPlanner", settings: Settings) -> tuple[str, ...]:
    """Return the topics that settings name, those of a pattern as they are now."""
    if not settings.pattern:
        return settings.topics
    topics = planner.topics_like(settings.pattern)
    if not topics:
        raise error_of(
            Code.TOPIC_NOT_FOUND, f"topicsPattern: no topic matches {settings.pattern!r}"
        )
    return tuple(topics)


def freeze(
    planner: "AnyPlanner", settings: Settings, kept: Mapping[Place, Hold] | None = None
) -> ReadPlan:
    """Return the plan of a batch read, held unless switched off. Lost records are logged.

    `kept` are holds to go on with.
    """
    hold = HoldRequest(settings.hold_owner, settings.hold_ms, kept or {})
    plan = planner.freeze(
        topics_of(planner, settings),
        settings.start,
        settings.end,
        hold=hold if settings.hold_ms else None,
        fail_on_data_loss=settings.fail_on_data_loss,
        only=settings.only,
    )
    for gap in plan.gaps:
        _LOG.warning("%s", gap.describe())
    return plan


def cut_plan(
    settings: Settings,
    plan: ReadPlan,
    queues: Sequence[PlannedQueue],
    folders: FolderOrigin | None = None,
) -> list[InputPartition]:
    """Return the partitions of a plan; parallel ones begin with different members.

    With `folders` they are read from there.
    """
    parts = partitions(
        queues,
        size_max=settings.max_bytes,
        records_max=settings.max_records,
        at_least=settings.min_partitions,
    )
    holds = plan.holds
    return [
        LogPartition(
            ranges,
            tuple(holds.get((each.topic, each.queue)) for each in ranges),
            replace(folders, fail_on_unreadable=settings.fail_on_unreadable)
            if folders is not None
            else Origin(
                settings.endpoints,
                tuple(plan.groups.values()),
                settings.read_from,
                rotation,
                settings.fail_on_data_loss,
                settings.stall_ms,
                settings.connection,
                settings.fail_on_unreadable,
            ),
        )
        for rotation, ranges in enumerate(parts)
    ]


class PushingReader(LogReader):
    """Reads less where a query filters queues, offsets, store times or keys.

    Needs `spark.sql.python.filterPushdown.enabled`; without it Spark refuses every query of a
    reader that has `pushFilters`. Hence the option `pushdown`, and hence two classes.

    Spark (4.3) keeps one plan for a `load()` or a view: that of the filters that it pushed last. So
    a query without such a filter reads what an earlier query of the same DataFrame left, and both
    sides of a union or a join with itself read the same. Call `load()` for each query.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._queues: set[int] | None = None
        self._from_offset = 0
        self._to_offset = 1 << 63
        self._keys: set[str] = set()
        self._from_ms: int | None = None
        self._to_ms: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Use the filters that can be used; return those that Spark must still apply."""
        return [each for each in filters if not self._take(each)]

    def _take(self, given: Filter) -> bool:
        """Return whether reading less already applies the whole filter."""
        column = ".".join(getattr(given, "attribute", ()))
        value: object = getattr(given, "value", None)
        match (given, column):
            case (EqualTo(), "queue_id") if isinstance(value, int):
                self._keep_queues({value})
                return True
            case (In(), "queue_id"):
                wanted: Sequence[object] = given.value
                self._keep_queues({each for each in wanted if isinstance(each, int)})
                return True
            case (EqualTo(), "key") if isinstance(value, str) and value.strip(" "):
                # The column holds all keys of a record, by spaces; the index knows each of them.
                self._keys.add(value.strip(" ").partition(" ")[0])
                return False
            case (_, "queue_offset") if isinstance(value, int):
                return self._take_offset(given, value)
            case (_, "store_timestamp") if isinstance(value, dt.datetime):
                self._take_time(given, value)
                return False  # times have microseconds, the index milliseconds
            case _:
                return False

    def _keep_queues(self, queues: set[int]) -> None:
        self._queues = queues if self._queues is None else self._queues & queues

    def _take_offset(self, given: Filter, value: int) -> bool:
        match given:
            case EqualTo():
                low, high = value, value + 1
            case GreaterThan():
                low, high = value + 1, self._to_offset
            case GreaterThanOrEqual():
                low, high = value, self._to_offset
            case LessThan():
                low, high = 0, value
            case LessThanOrEqual():
                low, high = 0, value + 1
            case _:
                return False
        self._from_offset = max(self._from_offset, low)
        self._to_offset = min(self._to_offset, high)
        return True

    def _take_time(self, given: Filter, value: dt.datetime) -> None:
        """Widen to whole milliseconds: Spark filters by the exact times afterwards."""
        time_ms = max(int(value.timestamp() * 1_000) - 1, 0)
        if isinstance(given, EqualTo | GreaterThan | GreaterThanOrEqual):
            self._from_ms = max(self._from_ms or 0, time_ms)
        if isinstance(given, EqualTo | LessThan | LessThanOrEqual):
            self._to_ms = min(time_ms + 3, self._to_ms or time_ms + 3)

    def _narrowed(self, planner: "AnyPlanner", plan: ReadPlan) -> Sequence[PlannedQueue]:
        times = [each for each in (self._from_ms, self._to_ms) if each is not None]
        topics = sorted({each.state.topic for each in plan.queues})
        states = planner.states(topics, times) if times and topics else []
        by_time = {state.place: state.by_time for state in states}
        narrowed: list[PlannedQueue] = []
        for each in plan.queues:
            if self._queues is not None and each.state.queue not in self._queues:
                continue
            start = max(each.start, self._from_offset)
            end = min(each.end, self._to_offset)
            at = by_time.get(each.state.place, {})
            if self._from_ms is not None:
                start = max(start, at[self._from_ms])
            if self._to_ms is not None:
                end = min(end, at[self._to_ms])
            if start < end:
                narrowed.append(replace(each, start=start, end=end))
        for key in sorted(self._keys):
            narrowed = _of_key(planner, key, narrowed)
        can_be_trimmed = not self._settings.hold_ms and not self._settings.path
        if topics and can_be_trimmed and (times or self._keys):
            self._check_trimmed(plan, planner.states(topics))
        return narrowed

    def _check_trimmed(self, plan: ReadPlan, states: Sequence[QueueState]) -> None:
        """Look whether a trim came between the plan and the lookups by time and key.

        A lookup finds no trimmed record. Without this check no task would read such records, and
        nobody would learn that they are lost. With a hold there is no such trim.
        """
        minimum = {state.place: state.minimum for state in states}
        for each in plan.queues:
            topic, queue = each.state.place
            start, end = max(each.start, self._from_offset), min(each.end, self._to_offset)
            gap = Trimmed(topic, queue, start, min(minimum.get(each.state.place, end), end))
            is_wanted = self._queues is None or queue in self._queues
            if not is_wanted or gap.end <= gap.start:
                continue
            if self._settings.fail_on_data_loss:
                raise error_of(
                    Code.OFFSET_OUT_OF_RANGE,
                    f"{gap.describe()}: trimmed while the read was planned; hold it (holdMs), "
                    "start later or set failOnDataLoss=false",
                )
            _LOG.warning("%s", gap.describe())


def _of_key(planner: "AnyPlanner", key: str, queues: Sequence[PlannedQueue]) -> list[PlannedQueue]:
    """Return the parts of some ranges near the records with a key, if these are few."""
    groups: dict[bytes, set[str]] = {}
    for each in queues:
        groups.setdefault(each.state.topic_id, set()).add(each.state.group)
    found = {
        topic_id: planner.offsets_of_key(topic_id, sorted(names), key)
        for topic_id, names in groups.items()
    }
    near: list[PlannedQueue] = []
    for each in queues:
        by_queue = found[each.state.topic_id]
        if by_queue is None:
            near.append(each)
            continue
        offsets = [
            offset for offset in by_queue.get(each.state.queue, ())
            if each.start <= offset < each.end
        ]  # fmt: skip
        near += [replace(each, start=low, end=high + 1) for low, high in runs_of(offsets)]
    return near


def runs_of(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last of each run of growing offsets that are near to another."""
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and offset - runs[-1][1] <= NEAR:
            runs[-1] = runs[-1][0], offset
        else:
            runs.append((offset, offset))
    return runs
