"""Members that apply nothing while others do: found by comparing looks. Pure.

A member stood still when it led or followed all the time and applied nothing, though another one
had applied more at the start already, and went on. Whether something excuses it is for the checkers
to say: they know the faults.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from jepsen_tests.history.events import WHOLE

STILL_SECONDS: Final = 15.0
"""Longer than a new connection, an election and a look take."""


class Seen(NamedTuple):
    """What a member said of itself; times in ns."""

    asked: int
    answered: int
    role: str
    applied: int


class Standstill(NamedTuple):
    """One that applied nothing for a time, and those that did: at its start and at its end."""

    node: str
    ns: int
    applied: int
    others: dict[str, list[int]]


Look = Mapping[str, Seen]


class Looks:
    """The looks of the last while."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque()

    def add(self, look: Look) -> list[Standstill]:
        """Take in a look; return who stood still up to it."""
        found = [
            still for node in look if (still := self._standstill(node, look)) is not None
        ]  # fmt: skip
        self._looks.append(look)
        asked = min((seen.asked for seen in look.values()), default=0)
        while len(self._looks) > 1 and _is_long(self._end(self._looks[1]), asked):
            self._looks.popleft()
        return found

    def _standstill(self, node: str, look: Look) -> Standstill | None:
        """Compare with the newest look that is old enough; all between must say the same."""
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
