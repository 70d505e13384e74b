"""Which members ended by themselves without a fault that may rightly end them.

A fault excuses the members that it hit, and no more deaths than it explains, nor any that end in
another way than it ends somebody. What lasts (a full or hanging disk, too little memory) may end
every life of the process while it is in force. What happens once (a sync that fails) may end one. A
death is found at the next look, which is the heal, or, where it was under way then, the one after:
so a fault that was healed excuses one more, of the life that it troubled, not of a later one.
Damage lies in a folder until somebody reads it, however long that takes; one death comes of each
damage, as far as the member lived in that folder: it is gone when the member is seen in another
life than that of the damage (its folder was set aside, or wiped, or it began a new life in the same
folder, because the damage had made it forget a promise), when it ended because it found it, and
when an examination found nothing, or mended it. It explains only ends that say so: damaged data, a
storage that failed, data that look newer.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import EXAMINE, HEAL, Kind, Op, Row
from jepsen_tests.history.faults import FaultInForce

FAILED: Final = "exit 74"
"""How one ends whose storage failed."""
KILLED: Final = "exit -9"
"""How one ends that asked for more memory than there is."""
FOUND: Final = "exit 65"
"""How one ends that found damage; its folder is set aside."""
LASTS: Final = {"hung-sync": FAILED, "full-disk": FAILED, "starve": KILLED}
"""The faults that may rightly end each life of a member that they trouble, and how it then ends."""
HAPPENS: Final = {"failing-sync": FAILED, "power-cut-before-sync": FAILED}
"""The same of those that do so once. A power cut ends nobody: it begins a new life."""
DAMAGES: Final = ("bit-flips", "truncation", "deletion", "stale-blocks")
"""How faults begin that leave something in its folder which it may find at any later time."""
OF_DAMAGE: Final = (FOUND, FAILED, "exit 76")
"""How one may end that reads what was damaged: it looks damaged, unreadable, or as if newer."""
REPLACES: Final = (*DAMAGES, "wipe", "next-quorum-wiped", EXAMINE)
"""How faults begin after which the member may live in another folder."""
ENDS: Final = (
    *DAMAGES, "kill", "crash-loop", "restart", "power-cut", "wipe", "late-first",
    "next-quorum", EXAMINE,
)  # fmt: skip
"""How faults begin that end the processes of those whom they name: a new life begins."""
_EXAMINED: Final = re.compile(r"([\w.-]+) (?:sound|repaired)\b")
"""Whose folder an examination found, or left, without damage."""
_ENDS_SO: Final = {**LASTS, **HAPPENS}
_FORGETFUL: Final = re.compile(r"([\w.-]+) forgot\b")
"""Whom of several a next-quorum hit in its disk; the others stood still."""
_ENDED: Final = re.compile(r"([\w.-]+) (?:killed|wiped)\b")
"""Whose process of several a fault ended; the others were slow, or alone with it."""


def unexcused_deaths(view: View) -> Iterator[Row]:
    """Yield the rows of members that ended, and had no reason to."""
    statuses: defaultdict[str, list[Op]] = defaultdict(list)
    for op in view.ops("status"):
        if op.is_ok:
            statuses[op.node].append(op)
    members: dict[str, _Member] = {}
    healed = 0
    for row in view.history.faults:
        if row.type is not Kind.OK:
            continue
        if row.f == HEAL:
            healed = row.t
        elif row.f == "died":
            member = members.get(row.k)
            if member is None:
                member = members[row.k] = _Member(view, row.k, statuses[row.k])
            if not member.excuses(row, healed):
                yield row


class _Member:
    """The faults that hit a member, and how many of its deaths they have explained."""

    def __init__(self, view: View, node: str, statuses: list[Op]) -> None:
        hits = [fault for fault in view.faults if _hit(fault, node, view)]
        # What lasts comes first: while it does it is not used up.
        self._faults = [
            fault for kinds in (LASTS, HAPPENS) for fault in hits if fault.name in kinds
        ]
        self._damages = [
            fault for fault in hits if fault.name.startswith(DAMAGES) and not fault.is_broken_off
        ]
        self._replaced = [fault for fault in hits if fault.name.startswith(REPLACES)]
        self._ended = [fault.start for fault in hits if _ends(fault, node)]
        self._statuses = statuses
        self._deaths: list[int] = []
        self._used: set[int] = set()
        """Rows of faults that explain no more."""
        self._examined = [fault.start for fault in hits if fault.name == EXAMINE]
        self._whole_at = [
            fault.done for fault in hits if fault.name == EXAMINE and _left_none(fault)
        ]
        """When an examination left nothing of the damage before it."""
        self._found_at = -1
        """When it last found damage that a fault explains; -1: never."""

    def excuses(self, row: Row, healed: int) -> bool:
        """Say whether something explains a death that nothing before it had to explain."""
        died = row.t
        # Those first that would not serve for a later one.
        how = row.err.partition(",")[0]
        found = self._first(
            self._faults,
            lambda fault: _ENDS_SO[fault.name] == how and self._troubles(fault, died, healed),
        )
        if how in OF_DAMAGE:
            found = found or self._first(self._damages, lambda fault: self._lies_there(fault, died))
        if found is not None and not (found.name in LASTS and found.end >= died):
            self._used.add(found.row)
        if how == FOUND:
            # Faults start it again and again in the folder that it refuses, until it is repaired.
            is_found_again = self._found_at >= 0 and not any(
                self._found_at < repaired < died for repaired in (healed, *self._examined)
            )
            damages = [fault for fault in self._damages if fault.start < died]
            if damages and (found is not None or is_found_again):
                self._found_at = died
                found = found or damages[0]
            self._used |= {fault.row for fault in damages}
        self._deaths.append(died)
        return found is not None

    def _first(
        self, faults: list[FaultInForce], explains: Callable[[FaultInForce], bool]
    ) -> FaultInForce | None:
        left = (fault for fault in faults if fault.row not in self._used)
        return next((fault for fault in left if explains(fault)), None)

    def _troubles(self, fault: FaultInForce, died: int, healed: int) -> bool:
        """Say whether a fault was in force, or healed by the last heal and the life is the same."""
        if fault.start >= died or fault.end < healed:
            return False
        return fault.end >= died or not any(
            fault.end < other < died for other in (*self._deaths, *self._ended)
        )

    def _lies_there(self, fault: FaultInForce, died: int) -> bool:
        """Say whether damage may lie in the folder still: no two lives of it were seen.

        The last life that was seen before was not that of the damage, perhaps, when a fault or a
        death since then may have given the member another folder and nobody looked.
        """
        start = fault.start
        if start >= died or any(start < whole < died for whole in self._whole_at):
            return False
        lives = {
            op.result["incarnation"] for op in self._statuses if start < op.began < op.ended < died
        }
        before = next((op for op in reversed(self._statuses) if op.ended <= start), None)
        if before is not None and not (
            any(before.began < death < start for death in self._deaths)
            or any(_may_replace(other, before.began, start) for other in self._replaced)
        ):
            lives.add(before.result["incarnation"])
        return len(lives) <= 1


def _hit(fault: FaultInForce, node: str, view: View) -> bool:
    forgetful = _FORGETFUL.search(fault.targets)
    return node == forgetful[1] if forgetful else fault.hits(node, view.header.nodes)


def _left_none(fault: FaultInForce) -> bool:
    """Say whether an examination came to its end: the folder is sound, or was repaired."""
    return _EXAMINED.search(fault.targets) is not None


def _ends(fault: FaultInForce, node: str) -> bool:
    """Say whether a fault certainly ended this member's process."""
    ended = _ENDED.search(fault.targets)
    named = {ended[1]} if ended else set(re.findall(r"[\w.-]+", fault.targets))
    return fault.name.startswith(ENDS) and node in named


def _may_replace(fault: FaultInForce, since: int, until: int) -> bool:
    """Say whether a fault may replace the folder between two moments: damage does when found."""
    lasts = fault.end > since or fault.name.startswith(DAMAGES)
    return fault.start < until and lasts
