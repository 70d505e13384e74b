"""Where each reading process stood, and how it went on.

The position of a process in a place is where its last ok poll there ended, or what its last
`assign` says. A crash forgets all positions. An assign forgets the positions in places that it does
not name. A failed poll moves nothing. This module passes each run of values to the log view, with
the offsets that the run covers.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from jepsen_tests.checkers.shared.log_view import DRAINED, FINAL, FOUND, POLLED, LogView
from jepsen_tests.history.events import Op

LOOKUPS: Final = ("lookup", "lookup-key", "lookup-id")
FINDING: Final = (*LOOKUPS, "export")
"""Functions that show values without a reader that goes on from a position."""


class Jump(msgspec.Struct):
    """A run that does not begin where the reader stood."""

    op: Op
    before: int
    """Row of the poll or assign that set the position."""
    place: str
    expected: int
    offset: int
    internal: bool
    """Between two runs of one poll."""


class Readers:
    """Follows all processes through a history; takes operations in order of invocation."""

    def __init__(self, log: LogView) -> None:
        self.jumps: list[Jump] = []
        self.runs = 0
        self._log = log
        self._positions: dict[int, dict[str, tuple[int, int]]] = {}
        """Per process and place: the offset that comes next, and the row that says so."""

    def take(self, op: Op) -> None:
        """Take in a poll, drain, assign, crash, lookup or export."""
        if op.f in FINDING:
            if op.is_ok:
                self._found(op)
        elif op.f == "poll":
            if op.is_ok:
                self._polled(op)
        elif op.f == "drain":
            if op.is_ok:
                self._drained(op)
        elif op.f == "crash":
            self._positions.pop(op.p, None)
        elif op.is_ok:
            self._positions[op.p] = {
                place: (offset, op.done) for place, offset in op.asked.items() if offset is not None
            }

    def _found(self, op: Op) -> None:
        """Take in single records, or rows of files: they cover no more than they show."""
        rows = op.result["rows"] if op.f == "export" else op.result
        for name, offset, what, *_ in rows:
            values = [what] if isinstance(what, str) else what
            self._log.take_run((name, offset, values), op.done, FOUND)

    def _polled(self, op: Op) -> None:
        means = POLLED | FINAL if self._is_final(op) else POLLED
        positions = self._positions.setdefault(op.p, {})
        for run in op.result:
            name, offset, values = run
            end = offset + len(values)
            expected, before = positions.get(name, (offset, 0))
            if offset != expected:
                internal = before == op.done
                self.jumps.append(Jump(op, before, name, expected, offset, internal))
            self._log.take_run(run, op.done, means)
            self._log.places[name].cover(min(offset, expected), end, op.done, means)
            positions[name] = end, op.done
        self.runs += len(op.result)
        if means & FINAL:
            self._finally_asked(positions, op)

    def _finally_asked(self, names: Iterable[str], op: Op) -> None:
        """A place that gave no value was still asked: its final read counts, and was empty."""
        for name in names:
            place = self._log.places[name]
            place.finally_asked = place.finally_asked or op.i
            place.finally_over = max(place.finally_over, op.done)

    def _drained(self, op: Op) -> None:
        means = DRAINED | FINAL if self._is_final(op) else DRAINED
        position = self._log.places[op.k].floor_at(op.done)
        for run in op.result:
            name, offset, values = run
            end = offset + len(values)
            self._log.take_run(run, op.done, means)
            self._log.places[name].cover(min(offset, position), end, op.done, means)
            position = max(position, end)
        self.runs += len(op.result)
        if means & FINAL:
            self._finally_asked([op.k], op)

    def _is_final(self, op: Op) -> bool:
        return self._log.final_row is not None and op.i > self._log.final_row
