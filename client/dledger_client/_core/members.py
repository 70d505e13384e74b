"""Which member of a group to ask. Pure.

Owns: which members have a working connection, which failed just now. Not: connections themselves
(`_shell/wire.py`).
"""

import random
from typing import Final

from dledger_client._core.routes import GroupRoute

PENALTY_MIN: Final = 0.05
PENALTY_MAX: Final = 1.0
"""Seconds for which a member that failed is asked only if all others failed too."""


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
        """Return False if the connection was broken when it was last heard of."""
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

    def choose_reader(
        self, route: GroupRoute, prefer: str, now: float, generator: random.Random
    ) -> str:
        """Return the address to read from: of the leader, a follower, or the member `prefer` names.

        Every member gives the same records, a follower maybe later (D9). So when no preferred
        member can be asked, any other one is.
        """
        if prefer == "leader":
            return self.choose(route, now)
        fit = [
            member
            for member in route.members
            if (
                member.address != route.leader_address
                if prefer == "follower"
                else member.name == prefer
            )
            and not self.is_avoided(member.address, now)
            and self.is_reachable(member.address)
        ]
        living = [member for member in fit if member.alive] or fit
        if not living:
            return self.choose(route, now)
        ready = [member for member in living if self.is_ready(member.address)] or living
        return generator.choice(ready).address
