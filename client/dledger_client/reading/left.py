"""Who was left for others, and when: they are asked last for a while. Pure; time is given.

Owns: the memory of it, and the order. Not: why a member is left (`reader.py`).

A member that hangs costs each reader that begins with it the whole silence it is given. It is all
the same who answers (D9), so there is no hurry to begin with it again; and as all are asked, in
whatever order, nothing is lost by not doing so.
"""

from collections.abc import Iterable
from typing import Final

SECONDS: Final = 30.0
"""After the first time; each further time in a row lasts twice as long."""
SECONDS_MAX: Final = 240.0


class LeftMembers:
    """The members that one process has left, by address."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}
        """Until when it is asked last, and for how long that is."""

    def leave(self, address: str, now: float) -> None:
        """Have a member asked last from now on."""
        _, before = self._left.get(address, (0.0, SECONDS / 2))
        seconds = min(2 * before, SECONDS_MAX)
        self._left[address] = now + seconds, seconds

    def worked(self, address: str) -> None:
        """Forget that a member was ever left."""
        self._left.pop(address, None)

    def in_order(self, addresses: Iterable[str], now: float) -> list[str]:
        """Return all addresses as they were, those that are asked last behind the others."""
        return sorted(addresses, key=lambda each: self._left.get(each, (0.0, 0.0))[0] > now)
