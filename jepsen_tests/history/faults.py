"""When each fault of a history was in force, and when its phases began. Pure."""

import re
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from jepsen_tests.history.events import (
    BROKEN_OFF,
    HEAL,
    INTERRUPTED,
    NEVER,
    STOOD_STILL,
    History,
    Kind,
    Row,
)

NO_FAULTS: Final = ("phase", "died", INTERRUPTED, STOOD_STILL)
"""What the nemesis writes down and does not do."""


class FaultInForce(NamedTuple):
    """A fault: class, targets, from when it was begun until it was healed (ns), and its row."""

    name: str
    targets: str
    start: int
    """Its acts come later: the nemesis may ask first who leads, or wait for a member."""
    done: int
    """When the last of them was over; `start` when nobody knows."""
    end: int
    row: int
    is_broken_off: bool = False
    """It was begun, and not done to its end: whether it came to its main act is not known."""

    def hits(self, node: str, nodes: Collection[str]) -> bool:
        """Say whether it may have touched a node: it names it, or none, or speaks of all."""
        words = set(re.findall(r"[\w.-]+", self.targets))
        return node in words or "all" in words or words.isdisjoint(nodes)


def faults_in_force(history: History, *, unfinished: bool = False) -> Iterator[FaultInForce]:
    """Yield each fault that was done: until the next "heal", or the end.

    With `unfinished` also those that were only begun, as when somebody breaks a run off: something
    may have been done, to whom is not known.
    """
    begun: dict[str, Row] = {}
    in_force: list[FaultInForce] = []
    for row in history.faults:
        if row.f == HEAL:
            if row.type is Kind.OK:
                yield from _until(row.t, in_force, begun, unfinished=unfinished)
        elif row.f not in NO_FAULTS:
            first = begun.pop(row.f, row)
            if row.type is Kind.INVOKE:
                begun[row.f] = row
            elif row.type is Kind.OK:
                broken_off = row.err.startswith(BROKEN_OFF)
                in_force.append(
                    FaultInForce(row.f, row.k, first.t, row.t, NEVER, row.i, broken_off)
                )
    yield from _until(history.ended, in_force, begun, unfinished=unfinished)


def _until(
    end: int, in_force: list[FaultInForce], begun: dict[str, Row], *, unfinished: bool
) -> list[FaultInForce]:
    """Return what ends now, and forget it."""
    ended = [fault._replace(end=end) for fault in in_force]
    if unfinished:
        ended += [FaultInForce(row.f, "", row.t, row.t, end, row.i, True) for row in begun.values()]
    in_force.clear()
    begun.clear()
    return ended


def phase_of(history: History, name: str) -> Row | None:
    """Return the row that began a phase; None when it never began."""
    return next((row for row in history.faults if row.f == "phase" and row.k == name), None)
