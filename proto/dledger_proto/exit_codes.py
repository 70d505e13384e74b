"""The one table of exit codes: how the processes and the commands of dledger end.

Owns the numbers, and what each of them means to whom. `--help` and `docs/errors.md` say it from
here. Numbers from 64 on are those of sysexits.h. They never change: operators' scripts compare
them.
"""

import enum
from collections.abc import Mapping
from typing import Final


class Exit(enum.IntEnum):
    """How a process ends."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    UNREACHABLE = 3
    UNKNOWN_OUTCOME = 4
    CONFLICT = 5
    DATA_LOSS = 6
    NOTHING_NEW = 7
    DAMAGED = 65
    PORT_TAKEN = 69
    BUG = 70
    FOLDER = 73
    STORAGE = 74
    NEWER_FORMAT = 76
    INTERRUPTED = 130
    """128 + SIGINT."""


_INTERRUPTED: Final = {Exit.INTERRUPTED: "interrupted"}
_FOLDER: Final = {
    Exit.BAD_INPUT: "bad input",
    Exit.UNKNOWN_OUTCOME: "the answer could not be printed",
    **_INTERRUPTED,
}
_COMMAND: Final = {
    Exit.OK: "done",
    Exit.FAILED: "it failed and certainly did not happen",
    Exit.BAD_INPUT: "bad input",
    Exit.UNREACHABLE: "no server could be reached in time, nothing happened",
    Exit.UNKNOWN_OUTCOME: "the outcome is unknown, or the answer could not be printed: "
    "look before you repeat it",
    **_INTERRUPTED,
}

EXIT_CODES: Final[Mapping[str, Mapping[Exit, str]]] = {
    "": _COMMAND,
    "status": {**_COMMAND, Exit.FAILED: "a group has no leader, or a member does not answer"},
    "health": {
        Exit.OK: "the process answers",
        Exit.FAILED: "the process does not answer",
        Exit.BAD_INPUT: "bad input",
    },
    "broker": {
        Exit.OK: "stopped in order by SIGTERM or SIGINT",
        Exit.BAD_INPUT: "the configuration cannot be used",
        Exit.DAMAGED: "the data is damaged: see dledger inspect and dledger repair",
        Exit.PORT_TAKEN: "another process has the port",
        Exit.BUG: "a bug of dledger: the log holds the traceback",
        Exit.FOLDER: "the data folder is in use, or belongs to another member",
        Exit.STORAGE: "the storage failed: an I/O error, a failed sync, or a used-up reserve",
        Exit.NEWER_FORMAT: "a file, the state or a command has a newer format: start the "
        "version that wrote it, or a later one",
    },
    "namesrv": {
        Exit.OK: "stopped by a signal",
        Exit.BAD_INPUT: "bad input",
        Exit.PORT_TAKEN: "another process has the port",
    },
    "up": {
        Exit.OK: "stopped by Ctrl-C or SIGTERM",
        Exit.FAILED: "no member is left, or the folder is in use",
        Exit.BAD_INPUT: "bad input, or another process has a port",
    },
    "demo": {
        Exit.OK: "no row is lost, doubled or out of order",
        Exit.FAILED: "a row is lost, doubled or out of order",
        **_INTERRUPTED,
    },
    "scrub": {
        Exit.OK: "everything was read, and nothing damaged is left",
        Exit.FAILED: "damage is left, or a member did not say how its scrub ended",
        Exit.BAD_INPUT: "bad input",
        Exit.UNREACHABLE: "no server could be reached in time",
        **_INTERRUPTED,
    },
    "export": {
        Exit.OK: "a version was published",
        Exit.FAILED: "it failed, nothing is published",
        Exit.BAD_INPUT: "bad input",
        Exit.UNREACHABLE: "no server could be reached in time",
        Exit.UNKNOWN_OUTCOME: "a hold may keep the log for a while, or the answer could not be "
        "printed: run it again",
        Exit.CONFLICT: "the folder, or a file in it, belongs to another export",
        Exit.DATA_LOSS: "records were trimmed before they were exported, or cannot be decoded",
        Exit.NOTHING_NEW: "there is nothing new",
        Exit.INTERRUPTED: "interrupted, the next run continues",
    },
    "export status": {
        Exit.OK: "done",
        Exit.FAILED: "the folder cannot be read, or holds no export",
        **_FOLDER,
    },
    "export verify": {
        Exit.OK: "the files are sound",
        Exit.FAILED: "a file is damaged, missing or unlike the log, or the folder cannot be read",
        Exit.UNREACHABLE: "no server could be reached in time",
        Exit.CONFLICT: "the folder is of another cluster, topic or log",
        **_FOLDER,
    },
    "export compact": {
        Exit.OK: "a version was published",
        Exit.FAILED: "it failed, nothing is published",
        Exit.CONFLICT: "another run changed the folder",
        Exit.NOTHING_NEW: "there is nothing to merge",
        **_FOLDER,
    },
    "export gc": {
        Exit.OK: "done",
        Exit.FAILED: "it failed; some files may be deleted",
        **_FOLDER,
    },
    "inspect": {
        Exit.OK: "all is sound",
        Exit.FAILED: "something is damaged or missing",
        **_FOLDER,
    },
    "repair": {
        Exit.OK: "the folder was set aside, or --check found no damage",
        Exit.FAILED: "refused, or --check found damage",
        Exit.BAD_INPUT: "bad input",
    },
    "config": {
        Exit.OK: "the configuration can be used",
        Exit.BAD_INPUT: "it cannot be used; each line names one thing that is wrong",
    },
}
"""What each code means: of the named command or group of commands, and under "" of all others."""

assert set().union(*EXIT_CODES.values()) == set(Exit), "every code means something to somebody"


def exit_codes_of(command: str) -> Mapping[Exit, str]:
    """Return the codes of a command in order: its own, those of its group, or those of all."""
    for name in (command, command.split(" ", maxsplit=1)[0]):
        if name in EXIT_CODES:
            return dict(sorted(EXIT_CODES[name].items()))
    return EXIT_CODES[""]


def exit_codes_help(command: str) -> str:
    """Return what `--help` says of the exit codes of a command: a line for each."""
    rows = (f"{code.value}: {meaning}" for code, meaning in exit_codes_of(command).items())
    return "\n".join(("Exit codes:", *rows))
