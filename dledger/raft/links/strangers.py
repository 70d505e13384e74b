"""Connections that no member has been accepted on yet: how many, and which one makes room. Pure.

Whoever gets further is counted apart, so those that never do cannot push it out: who says nothing,
who has begun TLS, who has proven a member's name. Among those that are as far, the host with most
of them loses its oldest. So a flood from one host costs the others nothing, and one that says
nothing costs nobody who speaks.
"""

import enum
from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeVar

Who = TypeVar("Who")


class Stage(enum.IntEnum):
    """How far a connection has come."""

    SILENT = 0
    """It stands; what TLS begins with has not come whole."""
    BEGUN = 1
    """TLS is being agreed on."""
    PROVEN = 2
    """TLS stands and names a member, or there is no TLS. Its greeting has not come."""


class Strangers(Generic[Who]):
    """Those that wait, the oldest of each stage first."""

    def __init__(self) -> None:
        self._hosts: dict[Stage, dict[Who, str]] = {stage: {} for stage in Stage}

    def put(self, who: Who, host: str, stage: Stage, most: int) -> Who | None:
        """Note how far somebody is; return who must go, above so many in a stage."""
        self.drop(who)
        waiting = self._hosts[stage]
        waiting[who] = host
        if len(waiting) <= most:
            return None
        counts = Counter(waiting.values())
        busiest = max(counts.values())
        gone = next(each for each, host in waiting.items() if counts[host] == busiest)
        del waiting[gone]
        return gone

    def drop(self, who: Who) -> None:
        """Forget somebody, if known."""
        for waiting in self._hosts.values():
            waiting.pop(who, None)

    def __len__(self) -> int:
        """Return how many wait."""
        return sum(map(len, self._hosts.values()))

    def __iter__(self) -> Iterator[Who]:
        """Yield all that wait."""
        return iter([who for waiting in self._hosts.values() for who in waiting])
