"""What a replicated command declares: one class, beside the table that it changes.

A command is a frozen dataclass that inherits `Command[its result]`. The class is all there is to
it: the bytes, the line of `describe` and the decoding for `dledger inspect` follow from the fields
(`codec.py`). `registry.py` lists the commands.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from dledger.state.results import Refused
from dledger.types import Entry

if TYPE_CHECKING:
    from dledger.state.state import State

R_co = TypeVar("R_co", covariant=True)


class Command(ABC, Generic[R_co]):
    """A change of the state; `R_co` is the result when it is not refused."""

    __slots__ = ()

    NUMBER: ClassVar[int]
    """Its first byte in the log. No number is ever given to another command."""
    WIRE_ORDER: ClassVar[tuple[str, ...]] = ()
    """Names of the fields in the order of their bytes; empty: in the order of the class."""
    FREES_SPACE: ClassVar[bool] = False
    ROWS_READ_MAX: ClassVar[int] = 1
    HOLDS_BATCHES: ClassVar[bool] = False
    """True: `apply` gets an entry whose only payload is the command, to see where its bytes lie."""

    @property
    def frees_space(self) -> bool:
        """True: the command lets stored data go; a leader takes it although the disk is low."""
        return self.FREES_SPACE

    @property
    def rows_read_max(self) -> int:
        """About how many rows `apply` reads, at most."""
        return self.ROWS_READ_MAX

    @abstractmethod
    def apply(self, state: "State", entry: Entry) -> R_co | Refused:
        """Change the state; of the entry a command needs the index and the leader's stamp.

        A `DledgerError` is a refusal too. It is raised before the first write.
        """
