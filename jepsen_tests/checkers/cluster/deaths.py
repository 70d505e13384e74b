"""Which members ended by themselves without a fault that explains their end.

- A fault excuses only members that it hit, only as many deaths as it explains, and only ends of the
  kind that it causes.
- A fault that lasts (a full or hanging disk, too little memory) may end each life of the process
  while it is in force. A fault that happens once (a sync that fails) may end one life.
- The harness finds a death at its next look: the heal, or the heal after that. So a healed fault
  excuses one more death, of the life that it troubled and not of a later life.
- Damage stays in a folder until the member reads it, however long that takes. Each damage explains
  one death, as long as the member lives in that folder. The damage is gone when the member shows
  another life than that of the damage (its folder was set aside or wiped, or the damage made it
  forget a promise, so that it began a new life in the same folder), when the member ended because
  it found the damage, and when an examination found nothing or repaired the folder.
- Damage explains only ends that say so: damaged data, a failed storage, data of a newer version.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from jepsen_tests.checkers.shared.view import View, grouped
from jepsen_tests.history.events import EXAMINE, HEAL, Kind, Op, Row
from jepsen_tests.history.faults import FaultInForce

FAILED: Final = "exit 74"
"""A member ends so when its storage fails."""
KILLED: Final = "exit -9"
"""The kernel ends a member so when it asks for more memory than there is."""
FOUND: Final = "exit 65"
"""A member ends so when it finds damage. Healing sets its folder aside."""
LASTS: Final = {"hung-sync": FAILED, "full-disk": FAILED, "starve": KILLED}
"""Faults that may end each life of a member while they are in force, and how the member ends."""
HAPPENS: Final = {"failing-sync": FAILED, "power-cut-before-sync": FAILED}
"""Faults that may end one life. A power cut is not among them: the harness ends that life."""
DAMAGES: Final = ("bit-flips", "truncation", "deletion", "stale-blocks")
"""Names of faults that leave damage begin so. The member may find it at any later time."""
OF_DAMAGE: Final = (FOUND, FAILED, "exit 76")
"""A member that reads damage ends so: the data look damaged, unreadable, or newer."""
REPLACES: Final = (*DAMAGES, "wipe", "next-quorum-wiped", "old-copy", EXAMINE)
"""Names of faults after which the member may live in another folder begin so."""
ENDS: Final = (
    *DAMAGES, "kill", "crash-loop", "restart", "power-cut", "wipe", "old-copy", "late-first",
    "next-quorum", EXAMINE,
)  # fmt: skip
"""Names of faults that end the processes of the members they name begin so."""
_EXAMINED: Final = re.compile(r"([\w.-]+) (?:sound|repaired)\b")
"""The member whose folder has no damage after an examination."""
_ENDS_SO: Final = {**LASTS, **HAPPENS}
_FORGETFUL: Final = re.compile(r"([\w.-]+) forgot\b")
"""The member whose disk a next-quorum hit. The others of its targets stood still."""
_ENDED: Final = re.compile(r"([\w.-]+) (?:killed|wiped)\b")
"""The member whose process a fault ended. The others of its targets were slow or cut off."""


def unexcused_deaths(view: View) -> Iterator[Row]:
    """Yield the rows of members that ended without a fault that explains their end."""
    statuses = grouped(view.statuses, lambda op: op.node)
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
        # Lasting faults come first: while in force they excuse any number of deaths.
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
        """Rows of faults that explain no further death."""
        self._examined = [fault.start for fault in hits if fault.name == EXAMINE]
        self._whole_at = [
            fault.done
            for fault in hits
            if fault.name == EXAMINE and _EXAMINED.search(fault.targets)
        ]
        """When an examination removed the damage before it."""
        self._found_at = -1
        """When the member last found damage that a fault explains. -1: never."""

    def excuses(self, row: Row, healed: int) -> bool:
        """Say whether a fault explains this death and was not used up by an earlier one."""
        died = row.t
        # First the faults that cannot explain a later death.
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
            # Faults start the member again in the folder that it refuses, until it is repaired.
            is_found_again = self._found_at >= 0 and not any(
                self._found_at < repaired < died for repaired in (healed, *self._examined)
            )
            damages = [fault for fault in self._damages if fault.start < died]
            if damages and (found is not None or is_found_again):
                self._found_at = died
                found = found or damages[0]
            # What a fault does later is not what the member found.
            self._used |= {fault.row for fault in damages if fault is found or fault.done < died}
        self._deaths.append(died)
        return found is not None

    def _first(
        self, faults: list[FaultInForce], explains: Callable[[FaultInForce], bool]
    ) -> FaultInForce | None:
        left = (fault for fault in faults if fault.row not in self._used)
        return next((fault for fault in left if explains(fault)), None)

    def _troubles(self, fault: FaultInForce, died: int, healed: int) -> bool:
        """Say whether a fault was in force, or the last heal ended it in the same life."""
        if fault.start >= died or fault.end < healed:
            return False
        return fault.end >= died or not any(
            fault.end < other < died for other in (*self._deaths, *self._ended)
        )

    def _lies_there(self, fault: FaultInForce, died: int) -> bool:
        """Say whether damage may still lie in the folder: nobody saw two lives since the damage.

        The life that was last seen before the damage counts too, unless a fault or a death may have
        given the member another folder in between.
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


def _ends(fault: FaultInForce, node: str) -> bool:
    """Say whether a fault certainly ended this member's process."""
    ended = _ENDED.search(fault.targets)
    named = {ended[1]} if ended else set(re.findall(r"[\w.-]+", fault.targets))
    return fault.name.startswith(ENDS) and node in named


def _may_replace(fault: FaultInForce, since: int, until: int) -> bool:
    """Say whether a fault may replace the folder between two moments, as found damage does."""
    lasts = fault.end > since or fault.name.startswith(DAMAGES)
    return fault.start < until and lasts
