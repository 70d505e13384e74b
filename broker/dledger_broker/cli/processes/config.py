"""`dledger config`: check a member's configuration, list its keys."""

import os
from pathlib import Path
from typing import Annotated

import typer

from dledger_broker.cli.output import JsonFlag, print_rows
from dledger_broker.config.load import environment_name, known_keys, load_config, type_name


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(help="Check a member's configuration, list its keys.", no_args_is_help=True)
    for command in (check, keys):
        group.command()(command)
    app.add_typer(group, name="config")


def check(
    file: Annotated[
        Path | None,
        typer.Argument(help="TOML file; default: read only the environment."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the values that a member would run with, each with its source.

    Precedence: environment (DLEDGER_...) over file over default.
    """
    rows = [
        {
            "key": value.key,
            "value": value.typed if as_json else value.value,
            "source": value.source,
        }
        for value in load_config(file, os.environ).effective_values()
    ]
    print_rows(rows, ("key", "value", "source"), as_json=as_json)


def keys(as_json: JsonFlag = False) -> None:
    """List every key of a configuration file, with the variable that overrides it."""
    rows = [
        {"key": key, "variable": environment_name(key), "holds": type_name(kind)}
        for key, kind in known_keys().items()
    ]
    print_rows(rows, ("key", "variable", "holds"), as_json=as_json)
