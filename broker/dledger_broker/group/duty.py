"""What a duty is: something that the leader of a group does by itself. Pure.

Not owned: which duties there are (`duties`), what drives them (`process.upkeep`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dledger.state.commands.command import Command
from dledger.state.queries import Queries
from dledger_proto.errors import DledgerError

EVERYTHING: Final = (1 << 64) - 1
"""What the control group knows without a gap: its decisions are in its own log."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a duty looks at."""

    leads_term: int | None
    """The term in which this member leads; None while it does not."""
    known_index: int
    """Up to this index the member knows all decisions of the control group."""
    state: Queries
    now: float
    """Monotonic seconds (D11)."""
    time_ms: int | None = None
    """The group's time (D8); None while it is not known."""
    low_below: int | None = None
    """While this member's disk is low: the end of the oldest segment of its log, which would make
    room; None: there is room, or only the newest segment is left."""


class Duty(ABC):
    """One duty of one member. Its driver asks `due` at least once in each `period`."""

    name: str
    """What is done, for log lines."""

    def __init__(self, period: float) -> None:
        self.period = period
        """Seconds from one proposal to the next."""

    @abstractmethod
    def due(self, look: Look) -> Command[object] | None:
        """Return what to propose now; None: nothing is due, or this member does not lead."""

    @abstractmethod
    def rest(self, result: object) -> Command[object] | None:
        """Return what to propose after this result of the last proposal; None: all is done."""

    def refused(self, _error: DledgerError) -> Command[object] | None:
        """Return what to propose although the last proposal was refused; None: nothing now."""
        return None

    def says(self) -> Sequence[str]:
        """Return what people should know of now, in sentences, for `dledger status`."""
        return ()

    @abstractmethod
    def count(self, result: object) -> int:
        """Return how much a proposal did, for log lines."""
