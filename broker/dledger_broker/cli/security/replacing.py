"""`dledger tls authority`: a new authority takes over from the old one while all goes on.

Owns the order of the steps. Each writes the folders of processes, which the user then copies to
where they run, all of them, before the next step. So at any moment all trust whoever they may meet.
"""

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from dledger_broker.cli.output import CommandFailed, JsonFlag, bad_input, note
from dledger_broker.cli.security.issuing import issue_all
from dledger_broker.security.authority import (
    AUTHORITY_FOLDER,
    DAYS,
    DAYS_MAX,
    NEW_FOLDER,
    OLD_FOLDER,
    Authority,
    Wanted,
    begin_change,
    end_change,
    held,
    processes,
)
from dledger_broker.security.authority import change as change_authority
from dledger_proto.network.tls import TlsError
from dledger_proto.network.tls_files import AUTHORITY

Folder = Annotated[Path, typer.Argument(help="The folder of the authority and its certificates.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(
        help="Replace the authority: begin, change, end, and copy all folders after each.",
        no_args_is_help=True,
    )
    group.command("begin")(begin)
    group.command("change")(change)
    group.command("end")(end)
    app.add_typer(group, name="authority")


def begin(folder: Folder) -> None:
    """Make a new authority beside the old one: ca.crt of every process then has both.

    Copy ca.crt to every process and client. Then go on with change.
    """
    _check(folder, old=False, new=False)
    try:
        begin_change(folder)
    except TlsError as error:
        bad_input(str(error), "make an authority with dledger tls init")
    note(
        f"copy {AUTHORITY} of each folder to its process, to all; then dledger tls authority change"
    )


def change(
    folder: Folder,
    days: Annotated[int, typer.Option(min=1, max=DAYS_MAX, help="Of the certificates.")] = DAYS,
    as_json: JsonFlag = False,
) -> None:
    """Make all certificates again by the new authority, with the names and hosts they have.

    Copy every folder to its process. Then go on with end. The command may be repeated.
    """
    if (folder / NEW_FOLDER).exists():
        change_authority(folder)
    _check(folder, old=True, new=False)
    wanted = [
        Wanted(each.name, said.names, said.hosts)
        for each in processes(folder)
        for said in (held(each),)
    ]
    issue_all(Authority.load(folder), folder, wanted, days, as_json=as_json)
    note("copy each folder to its process; then dledger tls authority end")


def end(folder: Folder) -> None:
    """Forget the old authority: its certificates no longer count once ca.crt is copied.

    Copy ca.crt to every process and client.
    """
    _check(folder, old=True, new=False)
    end_change(folder)
    note(f"copy {AUTHORITY} of each folder to its process")


def _check(folder: Path, *, old: bool, new: bool) -> None:
    """End the command when it is not its turn."""
    found = [(folder / name).exists() for name in (OLD_FOLDER, NEW_FOLDER)]
    if found == [old, new] and (folder / AUTHORITY_FOLDER).exists():
        return
    if not any(found):
        _not_now("no change of the authority is under way", "begin")
    _not_now("a change of the authority is under way", "change" if found[1] else "end")


def _not_now(what: str, step: str) -> NoReturn:
    raise CommandFailed(what, f"the next step is dledger tls authority {step}")
