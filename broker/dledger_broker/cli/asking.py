"""The one rule for what destroys: it is done when a person agrees to it, or `--yes` was given.

Without a terminal nobody can be asked: then it is bad input, and nothing was changed.
"""

import sys
from typing import Annotated

import typer

from dledger_broker.cli.output import CommandFailed, bad_input, note
from dledger_proto.names import printable

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def ask(refusal: str, question: str, *, yes: bool, warning: str = "") -> None:
    """Return when it may be done; end the command else.

    `refusal` says what is not done unasked, like "topic t is not deleted"; `warning` is shown
    before the question.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        bad_input(f"{refusal} without being asked for", "say --yes")
    if warning:
        note(warning)
    # Not `typer.confirm`, which writes a blank to standard output: that holds the answer only.
    sys.stderr.write(f"{printable(question)} [y/N]: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandFailed("nothing was changed")
