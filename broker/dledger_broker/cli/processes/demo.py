"""`dledger demo`: the proof on real input. `dledger_broker.demo` does the work."""

from pathlib import Path
from typing import Annotated

import typer

from dledger_broker.cli.output import CommandFailed, console


def demo(
    folder: Annotated[
        Path,
        typer.Option(
            help="Folder for the demo's data. A folder that an earlier demo made is emptied first."
        ),
    ] = Path("data/demo"),
    report: Annotated[
        Path, typer.Option(help="Folder for demo-report.html and demo-report.json.")
    ] = Path(),
) -> None:
    """Stream a year of flights into a group while members are killed, then compare everything."""
    # Imported here: plotting and the data set are not worth loading for any other command.
    try:
        from dledger_broker.demo.run import run
    except ModuleNotFoundError as error:
        raise CommandFailed(
            f"the demo needs {error.name}",
            "install dledger with the extras broker,demo, from a checkout or a wheel",
        ) from None
    raise typer.Exit(run(folder, report, console()))
