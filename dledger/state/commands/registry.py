"""The closed list of replicated commands: payload to command and back, and its line in logs.

Owns: the list, and the frame of a command. Not: what a command is and does (each class does). One
payload of a COMMANDS entry is one command:

    number u8, version u8 (1), the fields (`codec.py`)

A number that is not known, another version, or a body that does not fit raises `UnknownCommand`:
such a command is of a newer format level, and the member stops. A member that skipped a command
would have another state than its peers (D6).

Older forms are read and never written (`old_forms.py`): 7 (commits without done ranges), 12 (a
registration without a user), 13, 15 and 49 (topics without a retention), 16 (topics forgotten while
their rows were swept), 17 (an import without the settings of consumer groups), 51 (claims that name
no lease). Gone are the numbers 1 (it registered a producer without its life), 3 to 5 (layouts
without closed queues) and 14 (an import that named no control group). No release has written them.
"""

import struct
from typing import Any, Final

from dledger.state import format_level
from dledger.state.commands.codec import Body, Misfit, Record, shown_fields
from dledger.state.commands.command import Command
from dledger.state.commands.old_forms import OLD_FORMS, OldForm
from dledger.state.consumers import granting, groups, membership
from dledger.state.format_level import FORMAT_LEVEL_MAX
from dledger.state.producers import expiry, registration
from dledger.state.progress import claims, commits, dead_letters, failures, start, wave
from dledger.state.queues import carry, compact, expire, holds, trim
from dledger.state.timers import commands as timers
from dledger.state.timers import schedules
from dledger.state.topics import commands as topics
from dledger.state.users import commands as users
from dledger_proto.errors import Code, DledgerError

COMMAND_VERSION: Final = 1
MODULES: Final = (
    format_level, topics, trim, expire, carry, compact, holds, registration, expiry, commits, start,
    claims, wave, failures, dead_letters, groups, membership, granting, timers, schedules,
    users,
)  # fmt: skip
"""Every command is declared in one of these."""


def _declared() -> list[type[Command[Any]]]:
    found: list[type[Command[Any]]] = [
        each
        for module in MODULES
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__
        if issubclass(each, Command)
    ]
    return sorted(found, key=lambda command: command.NUMBER)


COMMANDS: Final = tuple(_declared())
FORMS: Final = {command: Record(command, command.WIRE_ORDER) for command in COMMANDS}
"""The form of each command's body."""
_HEADS: Final = {command: bytes((command.NUMBER, COMMAND_VERSION)) for command in COMMANDS}
_OLD_BODIES: Final = {bytes((n, COMMAND_VERSION)): Record(old) for n, old in OLD_FORMS.items()}
_BODIES: Final = {head: FORMS[command] for command, head in _HEADS.items()} | _OLD_BODIES

assert len(_BODIES) == len(COMMANDS) + len(OLD_FORMS), "each command has a number of its own"


class UnknownCommand(Exception):
    """A committed command that this code does not know; the member stops."""


def encode(command: Command[Any]) -> bytes:
    """Return the payload of a command; INVALID_ARGUMENT names a field that its form cannot hold."""
    parts = [_HEADS[type(command)]]
    try:
        FORMS[type(command)].write(command, parts)
    except Misfit as misfit:
        raise DledgerError(Code.INVALID_ARGUMENT, str(misfit)) from None
    return b"".join(parts)


def decode(data: bytes | memoryview) -> Command[Any]:
    """Return the command of a payload; `UnknownCommand` when it is none of this list."""
    data = bytes(data)
    head = data[:2]
    form = _BODIES.get(head)
    if form is None:
        raise UnknownCommand(f"command {head.hex()}: not known at format level {FORMAT_LEVEL_MAX}")
    body = Body(data, 2)
    try:
        read: Command[Any] | OldForm = form.read(body)
        body.finish()
    except (ValueError, struct.error) as error:
        raise UnknownCommand(f"command {head.hex()}: {error}") from error
    return read if isinstance(read, Command) else read.now()


def describe(command: Command[Any]) -> str:
    """Return one stable line for logs and tests."""
    return f"{type(command).__name__} {shown_fields(command)}"
