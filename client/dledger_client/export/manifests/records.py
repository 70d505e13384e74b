"""What plans and manifests say, and their JSON. Pure.

Owns: the fields, how a file of an export is recognised, format number and sum, what is refused.
A reader takes unknown fields of its own format; another format number it refuses.

```
{
 "columns": [...],
 "crc": CRC-32C of all bytes of the file but those of this line,
 "format": 2,
 "number": 0, ...
}
```

Only these files say what is exported: one wrong digit would lose or repeat rows. So each file has a
checksum, and a reader also checks the types and limits of its values.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, get_origin

from crc32c import crc32c

from dledger_client.arrow.schema import COLUMNS, unknown
from dledger_client.export.errors import ExportCode, ExportError, damaged
from dledger_client.export.layout import FILE_NAME, Layout, Piece, name_of
from dledger_proto.limits import TIME_MS_MAX

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT: Final = 2
"""1 was that of programs before the first release, which did not sum them."""
EXPORT: Final = "export"
COMPACT: Final = "compact"
NUMBER_DIGITS: Final = 10
OFFSET: Final = "queue_offset"
STORED: Final = "store_timestamp"
_SUM: Final = re.compile(rb'^ "crc": (\d{1,10}),\n', re.MULTILINE)
"""What lies deeper has more blanks before it, and no text has a line's end within."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose log is exported. A topic that was deleted and created again has another id."""

    cluster: str
    topic: str
    topic_id: str
    """32 hex digits."""


TRIMMED: Final = "trimmed"
UNREADABLE: Final = "unreadable"
_DETAIL_LENGTH_MAX: Final = 300
"""Characters that a manifest keeps of what is wrong with a batch."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that were planned and are not exported."""

    queue: int
    start: int
    end: int
    reason: str = TRIMMED
    """TRIMMED: gone before they were exported. UNREADABLE: nobody can decode them."""
    detail: str = ""
    """Of UNREADABLE: what is wrong with the batch, the first of several that follow one another."""

    @property
    def records(self) -> int:
        """How many."""
        return self.end - self.start

    def describe(self) -> str:
        """Return one stable line."""
        detail = f": {self.detail}" if self.detail else ""
        return (
            f"queue {self.queue} offsets {self.start} to {self.end - 1}, {self.records} records, "
            f"{self.reason}{detail}"
        )


def unreadable_gap(queue: int, start: int, end: int, detail: str) -> Gap:
    """Return the gap of records that cannot be decoded."""
    return Gap(queue, start, end, UNREADABLE, detail[:_DETAIL_LENGTH_MAX])


def gap_of(said: Mapping[str, Any]) -> Gap:
    """Return a gap as JSON has it; TypeError, ValueError for what is none."""
    gap = known(Gap, said)
    if gap.reason not in (TRIMMED, UNREADABLE):
        raise ValueError(f"reason of a gap is {gap.reason!r}, must be {TRIMMED} or {UNREADABLE}")
    return gap


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as a manifest names it."""

    path: str
    queue: int
    start: int
    end: int
    date: str
    rows: int
    """Fewer than the range has offsets where records were compacted; 0: all were."""
    bytes: int
    crc: int
    """Of the rows' values (`files/content.py`), whatever the encoding."""
    offset_min: int
    """Of the rows; without rows `start`, and `offset_max` lies one below."""
    offset_max: int
    time_min_ms: int
    """Store time, ms since 1970; without rows 0."""
    time_max_ms: int
    file_crc: int
    """CRC-32C of the file's bytes, which are more than its rows: statistics and indexes, that
    readers go by."""

    @property
    def piece(self) -> Piece:
        """The range it was made of."""
        return Piece(self.queue, self.start, self.end, self.date, self.bytes)


@dataclass(frozen=True, slots=True)
class Merge:
    """A file of a compaction: adjacent files that become one."""

    piece: Piece
    inputs: tuple[FileEntry, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What version `number` will hold. An exporter that finds it without a manifest finishes it."""

    number: int
    kind: str
    identity: Identity
    layout: Layout
    columns: tuple[str, ...]
    start: Mapping[int, int]
    """By queue."""
    end: Mapping[int, int]
    pieces: tuple[Piece, ...] = ()
    merges: tuple[Merge, ...] = ()
    gaps: tuple[Gap, ...] = ()
    absent: tuple[int, ...] = ()
    """Queues that were exported before and that the topic no longer had when this was frozen:
    their later records are not here. If a queue comes back, its export continues where it ended."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A version: what it adds to the one before, and how far each queue is exported."""

    number: int
    kind: str
    identity: Identity
    layout: Layout
    columns: tuple[str, ...]
    start: Mapping[int, int]
    end: Mapping[int, int]
    added: tuple[FileEntry, ...]
    removed: tuple[str, ...]
    gaps: tuple[Gap, ...]
    writer: str
    time_ms: int
    """When all its files were made and it was published, by its writer's clock."""
    absent: tuple[int, ...] = ()
    """As the plan has them."""


Value = TypeVar("Value", bound="DataclassInstance")
NO_RECORD: Final = (KeyError, TypeError, ValueError, AttributeError)
"""Errors for JSON with other content than it should have."""


def plan_name(number: int) -> str:
    """Return the name of a plan."""
    return f"_dledger/plans/{number:0{NUMBER_DIGITS}d}.json"


def manifest_name(number: int) -> str:
    """Return the name of a manifest."""
    return f"_dledger/manifests/{number:0{NUMBER_DIGITS}d}.json"


def dump(record: Plan | Manifest) -> bytes:
    """Return the JSON of a plan or a manifest: sorted, so equal records are equal bytes."""
    return summed({"format": FORMAT, **asdict(record)})


def summed(said: Mapping[str, Any]) -> bytes:
    """Return the JSON of fields, with their sum."""
    return _text({**said, "crc": crc32c(_text(said))})


def _text(said: Mapping[str, Any]) -> bytes:
    """Return JSON with a line for each field, and for each element of its lists.

    `indent` would give more lines, and take ten times as long: json's C is without it.
    """
    lines = ",\n".join(f" {json.dumps(name)}: {_value(said[name])}" for name in sorted(said))
    return f"{{\n{lines}\n}}\n".encode()


def _value(value: Any) -> str:
    if not isinstance(value, list | tuple) or not value:
        return json.dumps(value, sort_keys=True)
    lines = ",\n".join(f"  {json.dumps(each, sort_keys=True)}" for each in cast("list[Any]", value))
    return f"[\n{lines}\n ]"


def load_plan(name: str, data: bytes) -> Plan:
    """Return a plan; ExportError NEWER_FORMAT or DAMAGED."""
    said = fields_of(name, data)
    try:
        common = _common(said)
        topic = common["identity"].topic
        merges = tuple(
            Merge(
                _piece(topic, each["piece"]),
                tuple(file_of(topic, file) for file in each["inputs"]),
            )
            for each in said["merges"]
        )
        return Plan(
            pieces=tuple(_piece(topic, each) for each in said["pieces"]), merges=merges, **common
        )
    except NO_RECORD as error:
        raise damaged(name, f"not a plan of an export: {type(error).__name__} {error}") from error


def load_manifest(name: str, data: bytes) -> Manifest:
    """Return a manifest; ExportError NEWER_FORMAT or DAMAGED."""
    said = fields_of(name, data)
    try:
        common = _common(said)
        topic = common["identity"].topic
        return Manifest(
            added=tuple(file_of(topic, each) for each in said["added"]),
            removed=tuple(typed("removed", str, each) for each in said["removed"]),
            writer=typed("writer", str, said["writer"]),
            time_ms=_time(said["time_ms"]),
            **common,
        )
    except NO_RECORD as error:
        raise damaged(
            name, f"not a manifest of an export: {type(error).__name__} {error}"
        ) from error


def known(kind: type[Value], said: Mapping[str, Any]) -> Value:
    """Return a value of the fields that this program knows; TypeError for lacking, other types."""
    return kind(
        **{name: typed(name, wanted, said[name]) for name, wanted in _fields(kind) if name in said}
    )


@cache
def _fields(kind: "type[DataclassInstance]") -> Sequence[tuple[str, type[Any]]]:
    """Return names and types; asked for with each of thousands of files."""
    return [
        (each.name, cast("type[Any]", get_origin(each.type) or each.type)) for each in fields(kind)
    ]


def typed(name: str, kind: type[Any], value: object) -> Any:
    """Return a value of a JSON field; TypeError for one of another type."""
    if isinstance(value, bool) or not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}, must be of type {kind.__name__}")
    return value


def _piece(topic: str, said: Mapping[str, Any]) -> Piece:
    """Return a range; ValueError for one that is none."""
    piece = known(Piece, said)
    _name(topic, piece)
    return piece


def _name(topic: str, piece: Piece) -> str:
    """Return the name of a range's file; ValueError for what is no range: it may lie anywhere."""
    name = name_of(topic, piece)
    if not (0 <= piece.start < piece.end and FILE_NAME.fullmatch(name)):
        raise ValueError(f"{piece.describe()} of {piece.date!r} in topic {topic!r} is no range")
    return name


def file_of(topic: str, said: Mapping[str, Any]) -> FileEntry:
    """Return a file; ValueError for a name that is not that of its range."""
    entry = known(FileEntry, said)
    wanted = _name(topic, entry.piece)
    if entry.path != wanted:
        raise ValueError(f"path is {entry.path!r}, must be {wanted!r}")
    return entry


def _time(said: object) -> int:
    """Return when a version was published; TypeError, ValueError for what is no date."""
    time_ms: int = typed("time_ms", int, said)
    if not 0 <= time_ms <= TIME_MS_MAX:
        raise ValueError(f"time_ms is {time_ms}, must be 0 to {TIME_MS_MAX}")
    return time_ms


def other_format(what: str, version: int, mine: int) -> ExportError:
    """Return the error for a file of a later program, or of one before the first release."""
    is_newer = version > mine
    return ExportError(
        ExportCode.NEWER_FORMAT if is_newer else ExportCode.OLDER_FORMAT,
        f"{what} {version}, this program knows {mine}",
        "use the version of dledger that wrote it, or a later one"
        if is_newer
        else "it was written before the first release: export into a new folder",
    )


def fields_of(name: str, data: bytes) -> dict[str, Any]:
    """Return the fields of a record whose checksum holds; NEWER_FORMAT, DAMAGED."""
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise damaged(name, f"not JSON: {error}") from error
    version = cast("dict[str, object]", said).get("format") if isinstance(said, dict) else None
    if not isinstance(version, int):
        raise damaged(name, "has no format number")
    if version != FORMAT:
        raise other_format(f"{name} has format", version, FORMAT)
    # Of the bytes: to write what was read again takes longer than all else, and nests as deep.
    found = _SUM.search(data)
    if found is None or int(found[1]) != crc32c(data[: found.start()] + data[found.end() :]):
        raise damaged(name, "does not match its own checksum: the file was damaged or edited")
    return cast("dict[str, Any]", said)


def _common(said: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "number": typed("number", int, said["number"]),
        "kind": {EXPORT: EXPORT, COMPACT: COMPACT}[said["kind"]],
        "identity": known(Identity, said["identity"]),
        "layout": Layout(said["layout"]),
        "columns": _columns(said["columns"]),
        "start": by_queue(said["start"]),
        "end": by_queue(said["end"]),
        "gaps": tuple(map(gap_of, said["gaps"])),
        "absent": tuple(typed("absent", int, each) for each in said.get("absent", ())),
    }


def _columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of columns; ValueError without those that every file is checked by."""
    for name in names:
        if name not in COLUMNS:
            raise ValueError(f"columns: {unknown(name, COLUMNS)}")
    if len({*names}) < len(names) or not {OFFSET, STORED} <= {*names}:
        raise ValueError(f"columns: {names}, must be {OFFSET}, {STORED} and others, each once")
    return tuple(names)


def by_queue(offsets: Mapping[str, int]) -> dict[int, int]:
    """Return offsets by queue, as JSON has them; TypeError, ValueError."""
    return {int(queue): typed(queue, int, offset) for queue, offset in offsets.items()}


Span = tuple[int, int, int]
"""Queue, first offset, one above the last."""


def check_tiles(plan: Plan, files: Sequence[FileEntry], gaps: Sequence[Gap]) -> None:
    """Raise CONFLICT unless files and gaps are exactly the plan's ranges, each offset once.

    A merged file must have as many rows as those that it replaces.
    """
    wanted = (
        [(each.piece.queue, each.piece.start, each.piece.end) for each in plan.merges]
        if plan.kind == COMPACT
        else [(queue, plan.start[queue], end) for queue, end in plan.end.items()]
    )
    if wrong := untiled(wanted, files, gaps):
        raise ExportError(
            ExportCode.CONFLICT,
            f"plan {plan.number}: {wrong}",
            "this is a bug in dledger; nothing was published",
        )
    rows = {each.path: each.rows for each in files}
    for merge in plan.merges:
        path = name_of(plan.identity.topic, merge.piece)
        wanted_rows = sum(each.rows for each in merge.inputs)
        if rows.get(path) != wanted_rows:
            raise ExportError(
                ExportCode.CONFLICT,
                f"plan {plan.number}: {path} has {rows.get(path)} rows, the files that it merges "
                f"{wanted_rows}",
                "the file is of another export; move it away",
            )


def untiled(wanted: Sequence[Span], files: Sequence[FileEntry], gaps: Sequence[Gap]) -> str:
    """Say where files and gaps are not exactly the spans that are wanted; empty: they are."""
    spans = [(each.queue, each.start, each.end) for each in files]
    spans = sorted(spans + [(each.queue, each.start, each.end) for each in gaps])
    at_span = 0
    for queue, start, end in sorted(wanted):
        at = start
        while at < end and at_span < len(spans) and spans[at_span][:2] == (queue, at):
            at = spans[at_span][2]
            at_span += 1
        if at != end:
            return f"queue {queue} is written up to offset {at}, the plan ends at {end}"
    return "" if at_span == len(spans) else f"range {spans[at_span]} was written but not planned"
