"""Finds members that apply nothing while others do, by comparing looks. Pure.

A member stood still if it led or followed all the time and applied nothing, though another member
had applied more at the start already and went on. The checkers know the faults and decide whether a
fault excuses the member.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from jepsen_tests.history.events import WHOLE

STILL_SECONDS: Final = 15.0
"""Longer than a new connection, an election and a look take together."""


class Seen(NamedTuple):
    """What a member said of itself. Times are in ns."""

    asked: int
    answered: int
    role: str
    applied: int


class Standstill(NamedTuple):
    """A member that applied nothing for a time, and what others had applied before and after."""

    node: str
    ns: int
    applied: int
    others: dict[str, list[int]]


Look = Mapping[str, Seen]


class Looks:
    """The latest looks, as far back as they are needed."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque()

    def add(self, look: Look) -> list[Standstill]:
        """Take in a look; return the members that stood still up to it."""
        found = [
            still for node in look if (still := self._standstill(node, look)) is not None
        ]  # fmt: skip
        self._looks.append(look)
        asked = min((seen.asked for seen in look.values()), default=0)
        while len(self._looks) > 1 and _is_long(self._end(self._looks[1]), asked):
            self._looks.popleft()
        return found

    def _standstill(self, node: str, look: Look) -> Standstill | None:
        """Compare with the newest look that is old enough. All looks between must say the same."""
        now, since = look[node], None
        if now.role not in WHOLE:
            return None
        for earlier in reversed(self._looks):
            before = earlier.get(node)
            if before is None or before.role not in WHOLE or before.applied != now.applied:
                return None
            if _is_long(self._end(earlier), now.asked):
                since = earlier
                break
        if since is None:
            return None
        others = dict(_went_on(node, since, look))
        end = self._end(since)
        return Standstill(node, now.asked - end, now.applied, others) if others else None

    @staticmethod
    def _end(look: Look) -> int:
        return max((seen.answered for seen in look.values()), default=0)


def _went_on(node: str, since: Look, look: Look) -> Iterator[tuple[str, list[int]]]:
    applied = look[node].applied
    for other, before in since.items():
        if other in look and other != node and applied < before.applied < look[other].applied:
            yield other, [before.applied, look[other].applied]


def _is_long(start: int, end: int) -> bool:
    return end - start >= STILL_SECONDS * 1e9
