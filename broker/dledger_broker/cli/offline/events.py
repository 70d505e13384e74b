"""`dledger inspect events`: what a member was doing before it ended, from its flight record."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from dledger_broker.cli.output import JsonFlag, bad_input, print_error, print_json, print_line
from dledger_broker.cli.values import shown_time
from dledger_broker.flight.dumping import PREVIOUS_FILE, RECORD_FILE
from dledger_broker.flight.record_file import (
    FILE_BYTES_MAX,
    FlightRecord,
    NoRecord,
    parse_record,
    shown_events,
)
from dledger_broker.flight.recorder import Event
from dledger_proto.exit_codes import Exit


def events(
    path: Annotated[
        Path, typer.Argument(help="A flight record, or the folder of a member that has one.")
    ],
    previous: Annotated[
        bool, typer.Option("--previous", help="Of a folder: the record before the last.")
    ] = False,
    group: Annotated[str, typer.Option(help="Only events of this broker group.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Show the last events of a member: elections, links, slow syncs, refusals, its end.

    A member writes its record when it ends, and on SIGUSR2. Of a damaged record everything is shown
    that is whole.
    """
    file = path / (PREVIOUS_FILE if previous else RECORD_FILE) if path.is_dir() else path
    record = _read(file)
    if not as_json:
        for line in _about(file, record.about):
            print_line(line)
    found = [event for event in record.events if not group or event.group == group]
    if as_json:
        for fields in shown_events(found):
            print_json(fields)
    else:
        for event in found:
            print_line(*_columns(event))
    if record.problem:
        print_error(f"{file}: {record.problem}")
        raise typer.Exit(Exit.FAILED)


def _read(file: Path) -> FlightRecord:
    try:
        with file.open("rb") as opened:
            return parse_record(opened.read(FILE_BYTES_MAX))
    except FileNotFoundError:
        bad_input(f"{file}: there is no flight record", "a member writes one when it ends")
    except OSError as error:
        bad_input(f"{file}: cannot be read: {error.strerror}")
    except NoRecord as error:
        bad_input(f"{file}: no flight record: {error}")


def _about(file: Path, about: Mapping[str, object]) -> Iterator[str]:
    """Yield who wrote the record, when and why; nothing when that line is damaged."""
    if about:
        written = about.get("written_ms")
        when = shown_time(written) if isinstance(written, int) else "-"
        yield f"{file}: member {about.get('member')}, {when}: {about.get('reason')}"
        if about.get("dropped"):
            yield f"{about['dropped']} older events were not kept"


def _columns(event: Event) -> tuple[str, str, str, str]:
    fields = " ".join(f"{key}={value!s}" for key, value in event.fields.items())
    return shown_time(event.wall_ms, "milliseconds"), event.group or "-", event.name, fields
