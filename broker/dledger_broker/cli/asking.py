"""Commands that destroy something do it only when a person agrees, or `--yes` was given.

Without a terminal there is nobody to ask: the command ends with bad input and changes nothing.
"""

import sys
from typing import Annotated

import typer

from dledger_broker.cli.output import CommandFailed, bad_input, note
from dledger_proto.names import printable

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Confirm: do not ask.")]


def ask(refusal: str, question: str, *, yes: bool, warning: str = "") -> None:
    """Return when the command may go on; otherwise end it.

    `refusal` says what the command does not do unconfirmed, like "topic t is not deleted".
    `warning` comes before the question.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        bad_input(f"{refusal}: there is no terminal to ask on", "confirm with --yes")
    if warning:
        note(warning)
    # Not `typer.confirm`, which writes a blank to standard output: that holds the answer only.
    sys.stderr.write(f"{printable(question)} [y/N]: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandFailed("not confirmed, nothing was changed")
