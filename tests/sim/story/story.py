"""What happened in a world, as rows in bounded memory.

Owns: the rows, and which of them are kept to the end: faults, roles, the lives of processes, cut
logs. Of the rest (messages, commits, what clients ask and are answered) the newest are kept; what
came before is still counted. A row holds what it is about, not its words: most are never shown.

Who tells: the observer through `watcher`, the nemesis, the oracle, and `World.trace`. A line of
the trace that begins with a word of `PROCESS_LINES` or `PHASE_LINES` is about a process or a phase.
"""

import enum
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.sim.world.clock import Scheduler

if TYPE_CHECKING:
    from tests.sim.clients.oracle import Send
    from tests.sim.faults.fault import Strike

KEPT_MAX: Final = 20_000
RECENT_MAX: Final = 4_000
TROUBLES_MAX: Final = 200
"""Sends that failed or stayed unknown."""

PROCESS_LINES: Final = {
    "start": 1,
    "kill": 1,
    "power": 2,
    "stop": 1,
    "stopped": 1,
    "pause": 1,
    "resume": 1,
    "wipe": 1,
    "trusted": 1,
    "damage": 2,
    "storage": 1,
    "state": 1,
}
"""First words of lines of the trace about a process, and which word names its member."""
PHASE_LINES: Final = frozenset({"faults", "probe"})
TOLD_ELSEWHERE: Final = frozenset({"role", "fault"})
EVENTS_TOLD_ELSEWHERE: Final = ("commit ", "role ")
"""Events of the product after "event" and the member."""


class Kind(enum.Enum):
    """What a row is about."""

    ROLE = enum.auto()
    FAULT = enum.auto()
    FAULT_END = enum.auto()
    PROCESS = enum.auto()
    CUT_OFF = enum.auto()
    """Entries that a member removed from its log."""
    PHASE = enum.auto()
    COMMIT = enum.auto()
    CLIENT = enum.auto()
    TRACE = enum.auto()
    """A line of the trace that is none of the above."""


class Marks(NamedTuple):
    """How far the world had come at a row."""

    committed: int
    ok: int
    unknown: int
    failed: int


class Row(NamedTuple):
    """One thing that happened."""

    number: int
    time: float
    kind: Kind
    who: str
    """A member or a client; empty when it is about neither."""
    what: tuple[object, ...]
    """What it is about; `words` says it."""
    marks: Marks | None = None
    """Of kept rows only."""


class Story:
    """The rows of one world."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._numbers = count()
        self.kept: deque[Row] = deque(maxlen=KEPT_MAX)
        self.recent: deque[Row] = deque(maxlen=RECENT_MAX)
        self.troubles: deque[Row] = deque(maxlen=TROUBLES_MAX)
        self.committed = 0
        self.ok = self.unknown = self.failed = 0
        """Answers to sends."""

    # What is told.

    def traced(self, line: str) -> None:
        """Take a line of the trace."""
        word = line.partition(" ")[0]
        if word in PROCESS_LINES:
            self._keep(Kind.PROCESS, line.split(" ")[PROCESS_LINES[word]], (line,))
        elif word in PHASE_LINES:
            self._keep(Kind.PHASE, "", (line,))
        elif word == "event" and line.split(" ", 2)[2].startswith(EVENTS_TOLD_ELSEWHERE):
            return
        elif word not in TOLD_ELSEWHERE:
            self._add(Kind.TRACE, "", (line,))

    def role(self, member: str, role: str, term: int) -> None:
        """Take a member's new role or term."""
        self._keep(Kind.ROLE, member, (role, term))

    def cut_off(self, member: str, first: int, last: int) -> None:
        """Take entries that a member removed from the end of its log."""
        self._keep(Kind.CUT_OFF, member, (first, last))

    def commit(self, member: str, first: int, last: int, term: int) -> None:
        """Take entries that are committed for the first time anywhere."""
        self.committed = max(self.committed, last)
        self._add(Kind.COMMIT, member, (first, last, term))

    def fault_begins(self, strike: "Strike") -> None:
        """Take a fault that has begun."""
        self._keep(Kind.FAULT, "", (strike,))

    def fault_ends(self, strike: "Strike") -> None:
        """Take one of the ends of a fault; the last is kept."""
        (self._add if strike.open_ends else self._keep)(Kind.FAULT_END, "", (strike,))

    def client(self, who: str, *what: object) -> None:
        """Take what a client asks, reads or concludes."""
        self._add(Kind.CLIENT, who, what)

    def sent(self, who: str, outcome: str, send: "Send", *how: object) -> None:
        """Take the end of a send: ok, fail or info. Nobody waits for one-way sends: not counted."""
        one_way = outcome == "info" and send.invoked == self._scheduler.now
        if one_way:
            return
        if outcome == "ok":
            self.ok += 1
        elif outcome == "info":
            self.unknown += 1
        else:
            self.failed += 1
        row = Row(
            next(self._numbers),
            self._scheduler.now,
            Kind.CLIENT,
            who,
            ("sent", outcome, send, *how),
        )
        self.recent.append(row)
        if outcome != "ok":
            self.troubles.append(row)

    def _add(self, kind: Kind, who: str, what: tuple[object, ...]) -> None:
        self.recent.append(Row(next(self._numbers), self._scheduler.now, kind, who, what))

    def _keep(self, kind: Kind, who: str, what: tuple[object, ...]) -> None:
        now, marks = self._scheduler.now, self.marks
        self.kept.append(Row(next(self._numbers), now, kind, who, what, marks))

    # What is read.

    @property
    def marks(self) -> Marks:
        """Return how far the world has come."""
        return Marks(self.committed, self.ok, self.unknown, self.failed)

    def rows(self) -> list[Row]:
        """Return every row that is left, in order."""
        return sorted((*self.kept, *self.recent), key=lambda row: row.number)
