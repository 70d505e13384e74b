"""What the keeper of a compacted topic was told, and what contradicts it. Pure.

Owns: the judgement over what members hold and readers saw at the end. Not owned: sending and
reading (`keeper`).
"""

from collections.abc import Mapping, Set
from typing import Final, NamedTuple

from tests.sim.invariants.violation import Property

Kept = tuple[str, bytes]
"""A key and its value; an empty one deletes the key."""
DELETED: Final = b""


class Wrong(NamedTuple):
    """A promise that was broken, and how."""

    broken: Property
    detail: str


def wrong_with(
    acknowledged: Mapping[int, Kept], perhaps: Set[Kept], there: Mapping[int, Kept], end: int
) -> Wrong | None:
    """Return what is wrong with the updates that a member holds below offset `end`.

    `perhaps`: of these nobody knows whether they are stored. A deletion among them may have gone
    already, and what it deleted with it.
    """
    newest = {key: offset for offset, (key, _) in sorted(acknowledged.items())}
    later = {key: offset for offset, (key, _) in sorted(there.items())}
    for offset, (key, value) in acknowledged.items():
        if offset >= end:
            return Wrong(Property.ACKNOWLEDGED_LOST, f"ends at {end}, not {offset}")
        is_superseded = newest[key] > offset or later.get(key, -1) > offset
        if offset in there or is_superseded:
            continue
        if key in later:
            return Wrong(
                Property.ACKNOWLEDGED_LOST, f"{key} at {offset} is gone, and {later[key]} is back"
            )
        if value != DELETED and (key, DELETED) not in perhaps:
            return Wrong(Property.ACKNOWLEDGED_LOST, f"{key} at {offset} is gone")
    return None


class Reading(NamedTuple):
    """What a reader saw that began with the first offset."""

    seen: set[int]
    """In order, so all that it passed over lies below the last."""

    def missed(self, there: Mapping[int, Kept]) -> list[int]:
        """Return offsets that the reader passed over, and that are there even now."""
        last = max(self.seen, default=-1)
        return [offset for offset in there if offset < last and offset not in self.seen]
