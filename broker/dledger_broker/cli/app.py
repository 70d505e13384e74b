"""The command line as a whole: which commands there are, and how any of them ends.

Only the module of the requested command is imported. So a starting member does not load the client,
and no command waits for imports that it does not use.
"""

import importlib
import inspect
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from typer.models import CommandInfo

from dledger_broker.cli.output import (
    CommandFailed,
    end_streams,
    failure_of,
    prepare_streams,
    print_error,
    print_line,
)
from dledger_broker.config.checks import ConfigError
from dledger_proto import __version__
from dledger_proto.errors import DledgerError
from dledger_proto.exit_codes import Exit, exit_codes_help

COMMANDS: Final = {
    "up": "processes.up",
    "broker": "processes.servers",
    "namesrv": "processes.servers",
    "topic": "cluster.topics",
    "send": "messages.send",
    "tail": "messages.tail",
    "consume": "messages.consume",
    "status": "cluster.status",
    "top": "live.top",
    "scrub": "members.scrub",
    "routes": "cluster.routes",
    "health": "cluster.health",
    "group": "cluster.group_progress",
    "dlq": "cluster.dead_letters",
    "offsets": "cluster.offsets",
    "trim": "cluster.offsets",
    "hold": "cluster.holds",
    "message": "messages.message",
    "timer": "messages.timer",
    "schedule": "messages.schedule",
    "transfer": "cluster.offsets",
    "lift-quarantine": "cluster.offsets",
    "export": "exports.export",
    "snapshot": "backup.snapshots",
    "restore": "backup.restore",
    "inspect": "offline.inspect",
    "repair": "offline.repair",
    "config": "processes.config",
    "tls": "security.tls",
    "acl": "security.acl",
    "bench": "messages.bench",
    "demo": "processes.demo",
}
"""Each command, and the module that has its function; in the order of `dledger --help`."""


def make_app(arguments: Sequence[str] = ()) -> typer.Typer:
    """Return the command with all its groups, or only with the one that the arguments name."""
    app = typer.Typer(
        name="dledger",
        epilog=exit_codes_help(""),
        context_settings={"help_option_names": ["--help", "-h"]},  # of every command below, too
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(dledger)
    asked = arguments[0] if arguments else ""
    for name in [asked] if asked in COMMANDS else COMMANDS:
        _add(app, name)
    _complete_help(app)
    return app


def _add(app: typer.Typer, name: str) -> None:
    """Add a command: its module's function of that name, or a group that the module adds."""
    module = importlib.import_module(f"dledger_broker.cli.{COMMANDS[name]}")
    if hasattr(module, "add_to"):
        module.add_to(app)
    else:
        function = getattr(module, name.replace("-", "_"))
        app.command(name, epilog=getattr(module, "EPILOG", None))(function)


def _complete_help(app: typer.Typer) -> None:
    """Add the exit codes to the help of every command and of every group of commands.

    And join the source lines of each paragraph: the terminal wraps them at its own width.
    """
    for command in app.registered_commands:
        _complete_command(command, _name_of(command))
    _complete_groups(app, "")


def _complete_groups(app: typer.Typer, before: str) -> None:
    for group in app.registered_groups:
        name = f"{before}{group.name}"
        if group.typer_instance is not None:
            for command in group.typer_instance.registered_commands:
                _complete_command(command, f"{name} {_name_of(command)}")
            _complete_groups(group.typer_instance, f"{name} ")
        group.epilog = _with_exit_codes("", name)


def _name_of(command: CommandInfo) -> str:
    return str(command.name or getattr(command.callback, "__name__", ""))


def _complete_command(command: CommandInfo, name: str) -> None:
    paragraphs = (inspect.getdoc(command.callback) or "").split("\n\n")
    command.help = "\n\n".join(" ".join(text.split()) for text in paragraphs)
    command.epilog = _with_exit_codes(command.epilog or "", name)


def _with_exit_codes(epilog: str, name: str) -> str:
    """Return an epilog with the exit codes of a command of `dledger` behind it."""
    codes = exit_codes_help(name)
    return f"{epilog}\n\n{codes}" if epilog else codes


def _print_version(wanted: bool) -> None:
    if wanted:
        print_line(f"dledger {__version__}")
        raise typer.Exit


def dledger(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_print_version,
            is_eager=True,
            help="Print the version and end.",
        ),
    ] = False,
) -> None:
    """A Raft-replicated message log: run a cluster, use it, inspect it."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; see `dledger_broker.cli.main`."""
    prepare_streams()
    try:
        return _run(arguments)
    finally:
        end_streams()


def _run(arguments: Sequence[str] | None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        result: object = make_app(given)(args=given, prog_name="dledger", standalone_mode=False)
    except CommandFailed as failed:
        if failed.what:
            print_error(failed.what, failed.remedy)
        return failed.code
    except ConfigError as error:
        for problem in error.problems:
            print_error(problem.describe())
        return Exit.BAD_INPUT
    except DledgerError as error:
        failure = failure_of(error)
        print_error(failure.what, failure.remedy)
        return failure.code
    except typer.TyperException as error:
        text = error.format_message()
        if text:
            print_error(text.rstrip("."), "see --help")
        return error.exit_code
    except typer.Exit as ended:
        return ended.exit_code
    except UnicodeEncodeError as error:
        print_error(f"an argument is not UTF-8: {error.object!r}")
        return Exit.BAD_INPUT
    except BrokenPipeError:  # whoever read the answer has seen enough
        return Exit.FAILED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print_error(f"{where}{error.strerror or error}")
        return Exit.FAILED
    except (typer.Abort, KeyboardInterrupt):
        print_error("interrupted")
        return Exit.INTERRUPTED
    return result if isinstance(result, int) else Exit.OK
