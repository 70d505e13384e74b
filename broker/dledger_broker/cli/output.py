"""What commands print, and how they end: tables for people, JSON for programs, one error line.

Owns which error ends a command with which exit code. Standard output holds the answer only;
progress, notes and errors go to standard error.
"""

import enum
import json
import os
import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Final, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dledger_broker.cli.tables import Rows
from dledger_proto.errors import MEANINGS, Code, DledgerError
from dledger_proto.exit_codes import Exit
from dledger_proto.names import printable
from dledger_proto.remedies import remedy_of

PIPE_WIDTH: Final = 1_000_000
"""Width of output that is not a terminal: no line is folded there."""
_OBEYED: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that a terminal obeys: control characters, line ends, writing directions; and
surrogates. All other characters of JSON are payload and stay as they are."""

Advance = Callable[[int], None]
"""Moves a progress bar by a count."""
JsonValue = object
"""Any value that `json.dumps` takes; and bytes, which become hex."""

_UNREACHABLE: Final = frozenset(
    {
        Code.UNAVAILABLE,
        Code.NO_LEADER,
        Code.NOT_LEADER,
        Code.NOT_FORMED,
        Code.NOT_PROPOSED,
        Code.SHUTTING_DOWN,
    }
)
_BAD_INPUT: Final = frozenset(
    {
        Code.INVALID_ARGUMENT,
        Code.MESSAGE_ILLEGAL,
        Code.MESSAGE_TOO_LARGE,
        Code.UNIMPLEMENTED,
    }
)
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


class CommandFailed(Exception):
    """An expected failure of a command: one line with problem and remedy, and an exit code."""

    def __init__(self, what: str, remedy: str = "", *, code: int = Exit.FAILED) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.code = int(code)


def bad_input(what: str, remedy: str = "") -> NoReturn:
    """End the command because of its input."""
    raise CommandFailed(what, remedy, code=Exit.BAD_INPUT)


def failure_of(error: DledgerError) -> CommandFailed:
    """Return how a command ends for an error of the cluster."""
    if not error.definite:
        code = Exit.UNKNOWN_OUTCOME
    elif error.code in _UNREACHABLE:
        code = Exit.UNREACHABLE
    elif error.code in _BAD_INPUT:
        code = Exit.BAD_INPUT
    else:
        code = Exit.FAILED
    sentence = error.detail or MEANINGS[error.code].sentence
    remedy = remedy_of(error.code, "--name-servers", "--timeout")
    return CommandFailed(f"{error.code.name}: {sentence}", remedy, code=code)


def prepare_streams() -> None:
    """Make sure that every print finds a stream that takes the text.

    A stream that the caller closed is replaced by one that drops everything. Characters that the
    encoding of standard output lacks become Python's escapes.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    reconfigure: Callable[..., None] | None = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def end_streams() -> None:
    """Drop what a stream could not take: Python would try again when it ends, and exit with 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError), open(os.devnull, "w") as nothing:
                os.dup2(nothing.fileno(), stream.fileno())


@contextmanager
def answering() -> Generator[None]:
    """Print an answer in the block; end the command as UNKNOWN_OUTCOME when printing fails.

    The command may have had its effect, and the caller does not know. Nothing is printed when the
    reader closed the pipe, as `head` does.
    """
    try:
        yield
    except BrokenPipeError as error:
        raise CommandFailed("", code=Exit.UNKNOWN_OUTCOME) from error
    except OSError as error:
        what = f"the answer cannot be printed: {error.strerror}"
        remedy = (
            "the command may have taken effect: look, for example with dledger status, before you "
            "repeat it"
        )
        raise CommandFailed(what, remedy, code=Exit.UNKNOWN_OUTCOME) from error


class _Console(Console):
    """A console that raises BrokenPipeError, where rich ends the process with code 1."""

    def on_broken_pipe(self) -> None:
        """Raise what rich caught."""
        raise BrokenPipeError


def console() -> Console:
    """Return the console of answers. Output that is not a terminal is not folded."""
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return _Console(file=sys.stdout, highlight=False, soft_wrap=True, width=width)


def note(text: str) -> None:
    """Print a line about progress to standard error."""
    _tell(text, style="none")


def print_error(what: str, remedy: str = "") -> None:
    """Print the one line of a failure."""
    line = f"error: {what}" + (f"; {remedy}" if remedy else "")
    _tell(" ".join(line.split()), style="bold red")


def _tell(text: str, style: str) -> None:
    """Print to standard error; ignore it when that fails."""
    with suppress(OSError):
        _Console(file=sys.stderr, highlight=False, soft_wrap=True).print(
            printable(text), style=style, markup=False
        )


def print_json(value: JsonValue) -> None:
    """Print one JSON document on one line, in ASCII where standard output is not UTF-8."""
    is_utf8 = (sys.stdout.encoding or "utf-8").lower() in {"utf-8", "utf8"}
    text = json.dumps(value, default=_plain, ensure_ascii=not is_utf8)
    with answering():
        # They are within strings alone, where JSON has such escapes.
        print(  # noqa: T201
            _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text), flush=True
        )


def print_line(*fields: str) -> None:
    """Print one line of the answer: fields with tabs between them, each in printable characters."""
    with answering():
        print("\t".join(map(printable, fields)), flush=True)  # noqa: T201


def say(text: str) -> None:
    """Print a sentence of the answer."""
    with answering():
        console().print(printable(text), markup=False)


def print_rows(
    rows: Sequence[Mapping[str, JsonValue]],
    columns: Sequence[str],
    *,
    as_json: bool,
    title: str = "",
    empty: str = "nothing",
) -> None:
    """Print rows as a table of these columns, or all their fields as a JSON array."""
    if as_json:
        print_json(list(rows))
    elif not rows:
        say(empty)
    else:
        with answering():
            console().print(Rows(rows, columns, title))


@contextmanager
def progress_bar(what: str, total: int | None, *, show: bool) -> Generator[Advance]:
    """Show a bar on standard error while the block runs; `advance(n)` moves it.

    Nothing is shown when standard error is no terminal, or `show` is false.
    """
    visible = Console(file=sys.stderr)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=visible,
        transient=True,
        disable=not show or not visible.is_terminal,
    )
    with bar:
        task = bar.add_task(printable(what), total=total)

        def advance(count: int) -> None:
            bar.advance(task, count)

        yield advance


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, enum.Enum):
        return value.value
    return str(value)
