"""Members that readers left, and when: they are asked last for a while. Pure; time is given.

Owns: which members were left, and the order in which members are asked. Not: why a reader leaves a
member (`reader.py`).

A member that hangs costs each reader the whole time that the reader waits for an answer. Every
member gives the same records (D9), so nobody needs to ask this member first. Readers ask all
members in the end, so the order loses nothing.
"""

from collections.abc import Iterable
from typing import Final

SECONDS: Final = 30.0
"""Seconds after the first time; each further time in a row lasts twice as long."""
SECONDS_MAX: Final = 240.0


class LeftMembers:
    """The members that one process has left, by address."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}
        """Until when a member is asked last, and how long that lasts."""

    def leave(self, address: str, now: float) -> None:
        """Have a member asked last from now on."""
        _, before = self._left.get(address, (0.0, SECONDS / 2))
        seconds = min(2 * before, SECONDS_MAX)
        self._left[address] = now + seconds, seconds

    def worked(self, address: str) -> None:
        """Forget that a member was ever left."""
        self._left.pop(address, None)

    def in_order(self, addresses: Iterable[str], now: float) -> list[str]:
        """Return all addresses in their order, those that are asked last behind the others."""
        return sorted(addresses, key=lambda each: self._left.get(each, (0.0, 0.0))[0] > now)
