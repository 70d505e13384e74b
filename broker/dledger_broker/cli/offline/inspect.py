"""`dledger inspect`: decode the files of a stopped member. Never writes, shows what it can.

A running member can be inspected, too; then the newest bytes may be half written.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import typer

from dledger.state.commands.registry import UnknownCommand
from dledger.state.commands.registry import decode as decode_command
from dledger.state.commands.registry import describe as describe_command
from dledger.state.tables import Table
from dledger.store.lmdb_check import check_store
from dledger.store.sealed import reason_of
from dledger.store.store import DamagedStore, StoreFailed
from dledger_broker.cli.offline.events import events
from dledger_broker.cli.offline.folders import FolderArgument, one_data_folder
from dledger_broker.cli.output import (
    JsonFlag,
    bad_input,
    note,
    print_error,
    print_json,
    print_line,
    print_rows,
)
from dledger_offline.folder import (
    Damage,
    EntryFound,
    Found,
    Piece,
    SegmentStart,
    is_refusal,
    is_running,
    read_checkpoint,
    read_hard_state,
    read_identity,
    state_folder,
    walk_segments,
)
from dledger_offline.state import StateRow, open_state
from dledger_proto.batch.codec import BatchHeader, parse_header
from dledger_proto.entry import (
    KIND_BATCHES,
    KIND_COMMANDS,
    KIND_GENESIS,
    KIND_NAMES,
    CorruptEntry,
    DecodedEntry,
    parse_genesis,
)
from dledger_proto.errors import DledgerError
from dledger_proto.exit_codes import Exit

T = TypeVar("T")


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(
        help="Decode the files of a stopped member. Writes nothing.", no_args_is_help=True
    )
    group.command("identity")(identity)
    group.command("hard-state")(hard_state)
    group.command("checkpoint")(checkpoint)
    group.command("segments")(segments)
    group.command("state")(state)
    group.command("events")(events)
    app.add_typer(group, name="inspect")


def identity(folder: FolderArgument, as_json: JsonFlag = False) -> None:
    """Show whose data this is: cluster, group, member, incarnation."""
    found = read_identity(_open(folder))
    value = _value(found)
    _print_fields(
        found.path,
        {
            "cluster": value.cluster,
            "group": value.group,
            "member": value.member,
            "incarnation": value.incarnation.hex(),
            "group_id": value.group_id.hex(),
        },
        as_json,
    )


def hard_state(folder: FolderArgument, as_json: JsonFlag = False) -> None:
    """Show what a member must never forget: term, vote, incarnations, quarantine."""
    found = read_hard_state(_open(folder))
    value = _value(found)
    _print_fields(
        found.path,
        {
            "term": value.term,
            "vote": value.vote,
            "quarantined": value.quarantined,
            "lifted": value.lifted,
            "incarnations": {
                member: incarnation.hex() for member, incarnation in value.incarnations.items()
            },
        },
        as_json,
    )


def checkpoint(folder: FolderArgument, as_json: JsonFlag = False) -> None:
    """Show up to where the log is certainly on disk, and where a restart begins to read."""
    found = read_checkpoint(_open(folder))
    value = _value(found)
    _print_fields(
        found.path,
        {
            "group_id": value.group_id.hex(),
            "first_index": value.first_index,
            "first_position": value.first_position,
            "previous_term": value.previous_term,
            "previous_crc": f"{value.previous_crc:08x}",
            "end_index": value.end.index,
            "end_position": value.end.position,
            "end_term": value.end.term,
            "end_crc": f"{value.end.crc:08x}",
            "segments": [{"position": p, "index": i} for p, i in value.segments],
            "term_starts": [{"index": i, "term": t} for i, t in value.term_starts],
        },
        as_json,
    )


def segments(
    folder: FolderArgument,
    first: Annotated[int, typer.Option("--from", min=0, help="First index to show.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="Number of entries to show.")] = 1_000_000_000,
    payloads: Annotated[bool, typer.Option("--payloads", help="Show batches and commands.")] = (
        False
    ),
    as_json: JsonFlag = False,
) -> None:
    """Show every entry of the log, with all checks; show damage and what lies behind it.

    With --json: one document per line. A damaged end of the last file may be a torn tail: a killed
    member leaves one and cuts it off at its next start.
    """
    shown = 0
    skipped = 0
    more = ""
    damaged = False
    for piece in walk_segments(_open(folder)):
        if isinstance(piece, EntryFound):
            if piece.entry.header.index < first and not piece.problem:
                skipped += 1
                continue
            if shown == limit:
                more = ", more follow"
                break
            shown += 1
        damaged |= isinstance(piece, Damage) or bool(piece.problem)
        if as_json:
            print_json(_piece_fields(piece, payloads=payloads))
        else:
            for line in _piece_lines(piece, payloads=payloads):
                print_line(line)
    if not as_json:
        below = f" and {skipped} below {first}" if skipped else ""
        print_line(f"{shown} entries{below}, {'with damage' if damaged else 'all sound'}{more}")
    if damaged:
        raise typer.Exit(Exit.FAILED)


def state(
    folder: FolderArgument,
    table: Annotated[str, typer.Option(help="Only this table, e.g. topic or queue.")] = "",
    limit: Annotated[
        int, typer.Option(min=1, help="Number of rows to show of each table.")
    ] = 1_000_000_000,
    as_json: JsonFlag = False,
) -> None:
    """Show the derived state in LMDB, table by table, as it was last saved.

    The command reads the file without LMDB, so damage cannot crash it. For a stopped member and all
    tables it also checks whether rows are missing.
    """
    names = {kind.name.lower().replace("_", "-"): kind for kind in Table}
    wanted = names.get(table.lower().replace("_", "-"))
    if table and wanted is None:
        bad_input(f"--table: {table}, must be one of {', '.join(names)}")
    found = _open(folder)
    path = state_folder(found)
    problems = 0
    rows: list[Mapping[str, object]] = []
    for row in _rows(path, wanted, limit, moves=is_running(found)):
        problems += bool(row.problem)
        rows.append(
            {
                "table": row.table,
                "key": row.key,
                "value": row.value or row.raw,
                **({"problem": row.problem} if row.problem else {}),
            }
        )
        if len(rows) == 1_000:
            _flush(rows, as_json)
    _flush(rows, as_json)
    if problems:
        print_error(f"{problems} rows of {path} cannot be decoded")
        raise typer.Exit(Exit.FAILED)
    if wanted is None and not is_running(found):
        _check_whole(path)


def _check_whole(path: Path) -> None:
    try:
        check_store(str(path), whole=True)
    except DamagedStore as error:
        _broken(path, reason_of(error).removeprefix(f"{path}: "))
    except StoreFailed as error:
        _broken(path, error.strerror or str(error), refused=True)


def _rows(path: Path, table: Table | None, limit: int, *, moves: bool) -> Iterator[StateRow]:
    """Yield the rows. `moves`: a member writes meanwhile, so what looks like damage may be none."""
    try:
        for row in open_state(path, table, limit):
            if moves and row.problem:
                _moved(path)
            yield row
    except DamagedStore as error:
        if moves:
            _moved(path)
        _broken(path, reason_of(error).removeprefix(f"{path}: "))
    except OSError as error:
        _broken(path, error.strerror or str(error), refused=is_refusal(error))


def _moved(path: Path) -> NoReturn:
    print_error(f"{path}: the running member changed it while it was read", "stop the member first")
    raise typer.Exit(Exit.FAILED)


def _flush(rows: list[Mapping[str, object]], as_json: bool) -> None:
    """Print what gathered: the state may be larger than memory."""
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        print_rows(
            [{**row, "value": _short(row["value"])} for row in rows],
            ("table", "key", "value"),
            as_json=False,
        )
    rows.clear()


def _open(folder: Path) -> Path:
    found = one_data_folder(folder)
    if is_running(found):
        note(f"note: the member of {found} is running; its newest bytes may be half written")
    return found


def _value(found: Found[T]) -> T:
    """Return what a small file holds; end the command when it cannot be read."""
    if found.value is None:
        _broken(found.path, found.problem, refused=found.refused)
    return found.value


def _broken(path: Path, problem: str, *, refused: bool = False) -> NoReturn:
    remedy = "dledger repair sets a damaged folder aside"
    print_error(f"{path}: {problem}", "" if refused else remedy)
    raise typer.Exit(Exit.FAILED)


def _print_fields(path: Path, values: Mapping[str, object], as_json: bool) -> None:
    fields = {"file": str(path), **values}
    if as_json:
        print_json(fields)
        return
    rows = [{"field": name, "value": _short(value)} for name, value in fields.items()]
    print_rows(rows, ("field", "value"), as_json=False)


def _short(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_short(item)}" for key, item in value.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list):
        return "; ".join(_short(item) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return "-" if value is None or value == "" else str(value)


def _piece_lines(piece: Piece, *, payloads: bool) -> Iterator[str]:
    match piece:
        case SegmentStart(path, base_position, size, header, problem):
            index = f" index {header.base_index}" if header else ""
            trouble = f"  BAD HEADER: {problem}" if problem else ""
            yield f"{path.name}: position {base_position}{index}, {size} bytes{trouble}"
        case EntryFound(_, entry, problem):
            trouble = f"  MISFIT: {problem}" if problem else ""
            yield f"  {entry.header.describe()}{trouble}"
            if payloads:
                for line in _payload_lines(entry):
                    yield f"    {line}"
        case Damage(path, position, reason, resumed_at, later_files):
            end = f"to {resumed_at}" if resumed_at is not None else "to the end of the file"
            kind = "DAMAGED" if later_files or resumed_at is not None else "TORN OR DAMAGED"
            yield f"  {kind} from position {position} {end} in {path.name}: {reason}"


def _payload_lines(entry: DecodedEntry) -> Iterator[str]:
    for payload in entry.payloads:
        if entry.header.kind == KIND_BATCHES:
            yield _batch_line(parse_header(payload))
        elif entry.header.kind == KIND_COMMANDS:
            try:
                yield describe_command(decode_command(bytes(payload)))
            except (UnknownCommand, DledgerError) as error:
                yield f"unknown command: {error}"
        elif entry.header.kind == KIND_GENESIS:
            try:
                genesis = parse_genesis(payload)
            except CorruptEntry as error:
                yield f"unreadable genesis: {error}"
            else:
                members = ", ".join(member for member, _ in genesis.members)
                yield f"genesis of {genesis.group} ({genesis.group_id.hex()}): {members}"


def _batch_line(header: BatchHeader) -> str:
    producer = (
        f" producer {header.producer_id.hex()} epoch {header.producer_epoch} "
        f"sequence {header.base_sequence}"
        if any(header.producer_id)
        else ""
    )
    return (
        f"batch of {header.record_count} for topic {header.topic_id.hex()} queue {header.queue}, "
        f"{header.size} bytes{producer}"
    )


def _piece_fields(piece: Piece, *, payloads: bool) -> dict[str, object]:
    match piece:
        case SegmentStart(path, base_position, size, header, problem):
            return {
                "piece": "segment",
                "file": str(path),
                "position": base_position,
                "index": header.base_index if header else None,
                "size": size,
                "problem": problem,
            }
        case EntryFound(path, entry, problem):
            found = entry.header
            fields: dict[str, object] = {
                "piece": "entry",
                "file": str(path),
                "index": found.index,
                "term": found.term,
                "kind": KIND_NAMES[found.kind],
                "position": found.position,
                "size": found.size,
                "time_ms": found.time_ms,
                "crc": f"{found.header_crc:08x}",
                "payloads": found.payload_count,
                "problem": problem,
            }
            if payloads:
                fields["contents"] = list(_payload_lines(entry))
            return fields
        case Damage(path, position, reason, resumed_at, later_files):
            return {
                "piece": "damage",
                "file": str(path),
                "position": position,
                "reason": reason,
                "resumed_at": resumed_at,
                "maybe_torn_tail": not later_files and resumed_at is None,
            }
