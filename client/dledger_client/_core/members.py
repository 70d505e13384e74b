"""Append links of a producer: which member is asked, what is on its way there. Pure.

Owns: the choice of a member, the numbers and tries of one stream. Not: batches and codes
(`_core/producer/core.py`), sockets (`_shell/producer.py`).
"""

import enum
from collections import deque
from typing import Final, NamedTuple

from dledger_client._core.producer.batch import Batch
from dledger_client._core.routes import GroupRoute

PENALTY_MIN: Final = 0.05
PENALTY_MAX: Final = 1.0
"""Seconds for which a member that failed is asked only if all others failed too."""


class LinkState(enum.Enum):
    """How far a link is."""

    CONNECTING = "connecting"
    UP = "up"
    DRAINING = "draining"
    """Nothing new is sent; it is closed when the last try is answered."""


class Try(NamedTuple):
    """One batch on its way over one link."""

    number: int
    batch: Batch
    sent_at: float
    deadline: float


class Link:
    """One append stream to one member of a group."""

    __slots__ = (
        "address",
        "group",
        "id",
        "next_number",
        "opened_at",
        "state",
        "suspect_at",
        "term",
        "tries",
    )

    def __init__(self, identity: int, group: str, address: str, term: int, now: float) -> None:
        self.id = identity
        self.group = group
        self.address = address
        self.term = term
        """Of the leader that was known when the link was chosen."""
        self.state = LinkState.CONNECTING
        self.opened_at = now
        self.suspect_at = 0.0
        """When to ask other members about the leader again, while a try is slow."""
        self.next_number = 0
        self.tries: deque[Try] = deque()

    def describe(self) -> str:
        """Return one stable line for logs and tests."""
        return (
            f"link {self.id} {self.group}@{self.address} term={self.term} {self.state.value}"
            f" next={self.next_number} outstanding={len(self.tries)}"
        )


class MemberChoice:
    """Which member of a group to ask: the leader, unless it just failed or cannot be reached."""

    def __init__(self) -> None:
        self._penalties: dict[str, tuple[float, float]] = {}
        self._ready: dict[str, bool] = {}

    def set_ready(self, address: str, *, is_ready: bool) -> None:
        """Note whether there is a working connection to a member."""
        self._ready[address] = is_ready

    def is_ready(self, address: str) -> bool:
        """Return whether a working connection is known."""
        return self._ready.get(address, False)

    def is_reachable(self, address: str) -> bool:
        """Return False if the last that is known is that no connection stands."""
        return self._ready.get(address, True)

    def failed(self, address: str, now: float) -> None:
        """Avoid a member for a while, longer each time it fails again."""
        until, length = self._penalties.get(address, (0.0, 0.0))
        if now < until:
            return
        length = min(max(PENALTY_MIN, 2 * length), PENALTY_MAX)
        self._penalties[address] = (now + length, length)

    def worked(self, address: str) -> None:
        """Forget that a member ever failed."""
        self._penalties.pop(address, None)

    def is_avoided(self, address: str, now: float) -> bool:
        """Return whether a member failed just now."""
        penalty = self._penalties.get(address)
        return penalty is not None and now < penalty[0]

    def choose(self, route: GroupRoute, now: float) -> str:
        """Return an address, empty when the group has no members.

        In this order: the leader, a member with a working connection, one that did not just fail,
        the one whose penalty ends first.
        """
        leader = route.leader_address
        if leader and not self.is_avoided(leader, now) and self.is_reachable(leader):
            return leader
        addresses = route.addresses()
        if not addresses:
            return leader
        fit = [address for address in addresses if not self.is_avoided(address, now)]
        if fit:
            return next(filter(self.is_ready, fit), fit[0])
        return min(addresses, key=lambda address: self._penalties[address][0])
