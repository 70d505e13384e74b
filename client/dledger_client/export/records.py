"""What plans and manifests say, and their JSON. Pure.

Owns: the fields, what makes a file of ours one of ours, the format number and what is refused.
A reader takes unknown fields of its own format; a higher format number it refuses.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from dledger_client.export.errors import ExportCode, ExportError, damaged
from dledger_client.export.layout import Layout, Piece

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT: Final = 1
EXPORT: Final = "export"
COMPACT: Final = "compact"
NUMBER_DIGITS: Final = 10


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose log it is. A topic that was deleted and made anew has another id."""

    cluster: str
    topic: str
    topic_id: str
    """32 hex digits."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets that were to be exported and are lost."""

    queue: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as a manifest names it."""

    path: str
    queue: int
    start: int
    end: int
    date: str
    rows: int
    bytes: int
    crc: int
    """Of the rows' values (`content.py`), whatever the encoding."""
    offset_min: int
    offset_max: int
    time_min_ms: int
    """Store time, ms since 1970."""
    time_max_ms: int
    file_crc: int | None = None
    """CRC-32C of the file's bytes, which are more than its rows: statistics and indexes, that
    readers go by. None: written by a version that did not sum them."""

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
    """What version `number` will hold, frozen. Whoever finds it without a manifest finishes it."""

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
    """Queues, exported before, that were no queues of the topic when this was frozen: what was
    stored in them since is not here. Where one comes back, its export goes on where it ended."""


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


def plan_name(number: int) -> str:
    """Return the name of a plan."""
    return f"_dledger/plans/{number:0{NUMBER_DIGITS}d}.json"


def manifest_name(number: int) -> str:
    """Return the name of a manifest."""
    return f"_dledger/manifests/{number:0{NUMBER_DIGITS}d}.json"


def dump(record: Plan | Manifest) -> bytes:
    """Return the JSON of a plan or a manifest: sorted, so equal records are equal bytes."""
    said = {"format": FORMAT, **asdict(record)}
    return (json.dumps(said, sort_keys=True, indent=1) + "\n").encode()


def load_plan(name: str, data: bytes) -> Plan:
    """Return a plan; ExportError NEWER_FORMAT or DAMAGED."""
    said = _said(name, data)
    try:
        merges = tuple(
            Merge(
                known(Piece, each["piece"]),
                tuple(known(FileEntry, file) for file in each["inputs"]),
            )
            for each in said["merges"]
        )
        return Plan(
            pieces=tuple(known(Piece, each) for each in said["pieces"]),
            merges=merges,
            **_common(said),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(name, f"no plan of ours: {type(error).__name__} {error}") from error


def load_manifest(name: str, data: bytes) -> Manifest:
    """Return a manifest; ExportError NEWER_FORMAT or DAMAGED."""
    said = _said(name, data)
    try:
        return Manifest(
            added=tuple(known(FileEntry, each) for each in said["added"]),
            removed=tuple(said["removed"]),
            writer=said["writer"],
            time_ms=int(said["time_ms"]),
            **_common(said),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(name, f"no manifest of ours: {type(error).__name__} {error}") from error


def known(kind: type[Value], said: Mapping[str, Any]) -> Value:
    """Return a value of the fields that this program knows; TypeError when it lacks one."""
    names = {each.name for each in fields(kind)}
    return kind(**{name: value for name, value in said.items() if name in names})


def newer(what: str, version: object, mine: int) -> ExportError:
    """Return the error for what a later program wrote."""
    return ExportError(
        ExportCode.NEWER_FORMAT,
        f"{what} {version}, this program knows {mine}",
        "use the version of dledger that wrote it, or a later one",
    )


def _said(name: str, data: bytes) -> dict[str, Any]:
    try:
        said = json.loads(data)
    except ValueError as error:
        raise damaged(name, f"no JSON: {error}") from error
    version = cast("dict[str, object]", said).get("format") if isinstance(said, dict) else None
    if not isinstance(version, int):
        raise damaged(name, "has no format number")
    if version > FORMAT:
        raise newer(f"{name} has format", version, FORMAT)
    return cast("dict[str, Any]", said)


def _common(said: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "number": int(said["number"]),
        "kind": {EXPORT: EXPORT, COMPACT: COMPACT}[said["kind"]],
        "identity": known(Identity, said["identity"]),
        "layout": Layout(said["layout"]),
        "columns": tuple(said["columns"]),
        "start": _by_queue(said["start"]),
        "end": _by_queue(said["end"]),
        "gaps": tuple(known(Gap, each) for each in said["gaps"]),
        "absent": tuple(said.get("absent", ())),
    }


def _by_queue(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(queue): int(offset) for queue, offset in offsets.items()}


def check_tiles(plan: Plan, files: Sequence[FileEntry], gaps: Sequence[Gap]) -> None:
    """Raise CONFLICT unless files and gaps are exactly the plan's ranges, each offset once."""
    spans = [(each.queue, each.start, each.end) for each in files]
    spans = sorted(spans + [(each.queue, each.start, each.end) for each in gaps])
    wanted = (
        [(each.piece.queue, each.piece.start, each.piece.end) for each in plan.merges]
        if plan.kind == COMPACT
        else [(queue, plan.start[queue], end) for queue, end in plan.end.items()]
    )
    for queue, start, end in sorted(wanted):
        at = start
        while at < end and spans and spans[0][:2] == (queue, at):
            at = spans.pop(0)[2]
        if at != end:
            raise ExportError(
                ExportCode.CONFLICT,
                f"plan {plan.number}: queue {queue} is made up to offset {at}, planned to {end}",
                "this is a bug of ours; nothing was published",
            )
    if spans:
        raise ExportError(
            ExportCode.CONFLICT,
            f"plan {plan.number}: range {spans[0]} was made and not planned",
            "this is a bug of ours; nothing was published",
        )
