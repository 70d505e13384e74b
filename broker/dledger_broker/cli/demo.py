"""`dledger demo`: the proof on real input. The work is `dledger_broker.demo`'s."""

import typer


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("demo", epilog="Exit codes: 0 nothing lost, doubled or out of order; 1 otherwise.")(
        demo
    )


def demo() -> None:
    """Stream a year of flights into a group while its members are killed, then compare all."""
    # Imported here: plotting and the data set are not worth loading for any other command.
    from dledger_broker.demo import run

    raise typer.Exit(run())
