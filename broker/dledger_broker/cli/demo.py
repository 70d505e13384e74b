"""`dledger demo`: the proof on real input. The work is `dledger_broker.demo`'s."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(
        "demo",
        epilog="Exit codes: 0 nothing lost, doubled or out of order and all members alike; "
        "1 otherwise; 2 the flights' file is not installed, or the folder holds something else.",
    )(demo)


def demo(
    folder: Annotated[Path, typer.Option(help="Where the cluster lives; emptied first.")] = Path(
        "out/demo"
    ),
    report: Annotated[
        Path, typer.Option(help="Where demo-report.html and demo-report.json are written.")
    ] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Stream a year of flights into a group while its members are killed, then compare all."""
    # Imported here: plotting and the data set are not worth loading for any other command.
    from dledger_broker.demo.flights import InputMissing
    from dledger_broker.demo.run import FolderInUse, NotServing, run

    console = Console(stderr=as_json)
    try:
        code = run(folder, report, console)
    except (FolderInUse, InputMissing) as error:
        typer.echo(f"dledger demo: {error}", err=True)
        raise typer.Exit(2) from error
    except NotServing as error:
        typer.echo(f"dledger demo: {error}; see the logs in {folder}", err=True)
        raise typer.Exit(1) from error
    if as_json:
        typer.echo(json.dumps(json.loads((report / "demo-report.json").read_text())))
    raise typer.Exit(code)
