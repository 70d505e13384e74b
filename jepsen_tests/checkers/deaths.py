"""Which members ended by themselves without a fault that may rightly end them.

A fault excuses the members that it hit, and no longer than it troubles them. What fails while it is
in force does so until it was healed; a death is found at the next look, which is that heal, or,
where it was under way then, the one after: the excuse of a fault that was healed serves once.
Damage lies in a folder until somebody reads it, however long that takes; it is gone when the member
is seen in another life than that of the damage: its folder was set aside, or wiped, or it began a
new life in the same folder, because the damage had made it forget a promise.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from jepsen_tests.checkers.view import View
from jepsen_tests.history import HEAL, Fault, Kind, Op, Row

MAY_END: Final = (
    "failing-sync", "hung-sync", "full-disk", "power-cut", "next-quorum", "starve",
)  # fmt: skip
"""How faults begin after which a member may rightly end: its disk or memory failed it."""
DAMAGES: Final = ("bit-flips", "truncation", "deletion", "stale-blocks")
"""The same of those that leave something in its folder which it may find at any later time."""
REPLACES: Final = (*DAMAGES, "wipe", "next-quorum-wiped")
"""How faults begin after which the member may live in another folder."""
_FORGETFUL: Final = re.compile(r"([\w.-]+) forgot\b")
"""Whom of several a next-quorum hit in its disk; the others stood still."""


def unexcused_deaths(view: View) -> Iterator[Row]:
    """Yield the rows of members that ended, and had no reason to."""
    statuses: defaultdict[str, list[Op]] = defaultdict(list)
    for op in view.ops("status"):
        if op.is_ok:
            statuses[op.node].append(op)
    faults = [fault for fault in view.faults if fault.name.startswith((*MAY_END, *REPLACES))]
    earlier: defaultdict[str, list[int]] = defaultdict(list)
    healed = 0
    for row in view.history.faults:
        if row.type is not Kind.OK:
            continue
        if row.f == HEAL:
            healed = row.t
        elif row.f == "died":
            hits = [each for each in faults if each.start < row.t and _hit(each, row.k, view)]
            excuses = (
                _lies_there(fault, row.t, statuses[row.k], hits, earlier[row.k])
                if fault.name.startswith(DAMAGES)
                else _troubles(fault, row.t, healed, earlier[row.k])
                for fault in hits
                if fault.name.startswith((*MAY_END, *DAMAGES))
            )
            if not any(excuses):
                yield row
            earlier[row.k].append(row.t)


def _hit(fault: Fault, node: str, view: View) -> bool:
    forgetful = _FORGETFUL.search(fault.targets)
    return node == forgetful[1] if forgetful else fault.hits(node, view.header.nodes)


def _troubles(fault: Fault, died: int, healed: int, earlier: list[int]) -> bool:
    """Say whether a fault was in force, or healed by the last heal and no death found since."""
    return fault.end >= died or (
        fault.end >= healed and not any(fault.end < before for before in earlier)
    )


def _lies_there(
    fault: Fault, died: int, statuses: list[Op], hits: list[Fault], earlier: list[int]
) -> bool:
    """Say whether damage may lie in the folder still: no two lives of it were seen.

    The last life that was seen before was not that of the damage, perhaps, when a fault or a death
    since then may have given the member another folder and nobody looked.
    """
    lives = {
        op.result["incarnation"] for op in statuses if fault.start < op.began and op.ended < died
    }
    before = next((op for op in reversed(statuses) if op.ended <= fault.start), None)
    if before is not None and not (
        any(before.began < death < fault.start for death in earlier)
        or any(_may_replace(other, before.began, fault.start) for other in hits)
    ):
        lives.add(before.result["incarnation"])
    return len(lives) <= 1


def _may_replace(fault: Fault, since: int, until: int) -> bool:
    """Say whether a fault may replace the folder between two moments: damage does when found."""
    lasts = fault.end > since or fault.name.startswith(DAMAGES)
    return fault.name.startswith(REPLACES) and fault.start < until and lasts
