"""Whom the hand-made clients of one group follow: each hears who leads, some time later."""

from collections.abc import Sequence
from random import Random
from typing import Final

from tests.sim.world.clock import Scheduler

DELAY_MAX: Final = 0.05
"""A client hears of a leader at most so many virtual seconds after its election."""


class Routes:
    """Tells each client after a delay who leads. A lower term never wins."""

    def __init__(
        self, members: Sequence[str], clients: Sequence[str], scheduler: Scheduler, random: Random
    ) -> None:
        self.members = list(members)
        self._clients = clients
        self._scheduler = scheduler
        self._random = random
        self._known: dict[str, tuple[int, str]] = {}

    def leader(self, client: str) -> tuple[int, str]:
        """See `producer.Router.leader`."""
        return self._known.get(client, (0, ""))

    def announce(self, term: int, member: str) -> None:
        """Let every client hear of a leader, each in its own time."""
        for client in self._clients:
            delay = self._random.uniform(0.001, DELAY_MAX)
            self._scheduler.after(delay, self._hear, client, term, member)

    def _hear(self, client: str, term: int, member: str) -> None:
        if term > self._known.get(client, (0, ""))[0]:
            self._known[client] = (term, member)
