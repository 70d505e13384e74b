"""The parts of a history of several broker groups: what each group's members and queues saw.

A part is the history that a cluster of that group alone would have left, with the row numbers of
the whole. So all checkers judge it as they judge any history. What belongs to no group (registers)
is the control group's, the first. Faults of other groups are left out: they excuse nothing here.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

from msgspec.structs import replace

from jepsen_tests.history.events import History, Kind, Op, Row

OF_READERS: Final = ("poll", "assign", "crash")
"""One call of a reader may be about queues of several groups."""
OF_CONTROL: Final = ("set", "get")
"""What only the control group is asked."""


def parts_of(history: History) -> dict[str, History]:
    """Return the part of each broker group; a history of one group is one part without a name."""
    groups = history.header.notes.get("groups")
    if not groups:
        return {"": history}
    control = next(iter(groups))
    elsewhere = {place for group, (_, places) in groups.items() if group != control
                 for place in places}  # fmt: skip
    return {
        group: _part(history, nodes, places, elsewhere if group == control else None)
        for group, (nodes, places) in groups.items()
    }


def _part(
    history: History, nodes: list[str], places: list[str], elsewhere: Collection[str] | None
) -> History:
    """Return one part; `elsewhere`: of the control group, the queues of all other groups."""

    def is_mine(place: str) -> bool:
        return place in places if elsewhere is None else place not in elsewhere

    def of_part(op: Op) -> Op | None:
        if op.node:
            return op if op.node in nodes else None
        if op.f in OF_READERS:
            return _of_reader(op, is_mine)
        return op if is_mine(op.k.rpartition("@")[2]) else None

    notes = history.header.notes
    least_ok = {
        f: least for f, least in notes.get("least_ok", {}).items()
        if elsewhere is not None or f not in OF_CONTROL
    }  # fmt: skip
    header = replace(
        history.header, nodes=tuple(nodes),
        notes={key: each for key, each in notes.items() if key != "groups"}
        | {"least_ok": least_ok},
    )  # fmt: skip
    ops = [mine for op in history.ops if (mine := of_part(op)) is not None]
    others = set(history.header.nodes) - set(nodes)
    faults = list(_faults_of(history.faults, set(nodes), others))
    return History(header, ops, faults, history.ended)


def _of_reader(op: Op, is_mine: Any) -> Op:
    """Return a reader's call without what it says of queues of other groups."""
    if op.f == "assign":
        return replace(op, asked={k: at for k, at in op.asked.items() if is_mine(k)})
    if op.f == "poll" and op.is_ok:
        return replace(op, result=[run for run in op.result if is_mine(run[0])])
    return op


def _faults_of(rows: list[Row], mine: set[str], others: set[str]) -> Iterator[Row]:
    """Yield the rows of the nemesis but those of faults that hit members of other groups alone."""
    dropped: set[int] = set()
    begun: dict[str, Row] = {}
    for row in rows:
        if row.type is Kind.INVOKE:
            begun[row.f] = row
            continue
        first = begun.pop(row.f, None)
        words = set(re.findall(r"[\w.-]+", row.k))
        if words & others and not words & mine:
            dropped |= {row.i} if first is None else {first.i, row.i}
    return (row for row in rows if row.i not in dropped)
