"""The format level: which commands and rows a group may write (D6).

    01 "level"                      -> format_level u32; absent: 1

The level only rises. A member that knows less stops at the command that raises the level, or when
it opens such a state. All commands of today belong to level 1, so nothing compares a command with
the level yet.
"""

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from dledger.state.commands.codec import Body, Number
from dledger.state.commands.command import Command
from dledger.state.results import FormatLevelSet, Refused
from dledger.state.tables import PREFIX, Table, Writer
from dledger.store.store import StateStore
from dledger.types import Entry
from dledger_proto.errors import Code

if TYPE_CHECKING:
    from dledger.state.state import State

FORMAT_LEVEL_MAX: Final = 1
"""The newest format level that this code understands."""
_LEVEL_KEY: Final = PREFIX[Table.META] + b"level"
LEVEL_VALUE: Final = struct.Struct("<I")


class _KnownLevel(Number):
    """A level; reading one that is not known is an error."""

    def read(self, body: Body) -> int:
        level = super().read(body)
        if level > FORMAT_LEVEL_MAX:
            raise ValueError(f"format level {level}, {FORMAT_LEVEL_MAX} is known here")
        return level


def read_level(store: StateStore) -> int:
    """Return the format level of a state."""
    value = store.get(_LEVEL_KEY)
    return 1 if value is None else int(LEVEL_VALUE.unpack(value)[0])


class FormatLevel:
    """The level of one group."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.level = read_level(writer.store)

    def store(self, level: int) -> None:
        """Change it."""
        self.level = level
        self._writer.put(_LEVEL_KEY, LEVEL_VALUE.pack(level))


@dataclass(frozen=True, slots=True)
class SetFormatLevel(Command[FormatLevelSet]):
    """Raise the format level of the group."""

    NUMBER: ClassVar = 11

    level: Annotated[int, _KnownLevel("<I", "u32")]

    def apply(self, state: "State", entry: Entry) -> FormatLevelSet | Refused:
        """Raise the level; it never goes back."""
        known = state.format_level.level
        if self.level < known:
            return Refused(Code.INVALID_ARGUMENT, f"format level {self.level}, it is {known}")
        state.format_level.store(self.level)
        return FormatLevelSet(self.level)
