"""A producer's epoch in one group: needed, asked for, granted. Pure.

Owns: the state of registration and when to ask again. Not: what a new epoch does to batches
(`Lane.new_epoch`), the call.
"""

import enum
import math
import random
from typing import Final

from dledger_client._retry import backoff

CONTESTED_SECONDS: Final = 60.0
"""Long after this no registration is on its way any more; what fences us then is another life."""


class EpochState(enum.Enum):
    """Does the group know this producer?"""

    NEEDED = "needed"
    ASKED = "asked"
    GRANTED = "granted"


class Epoch:
    """The epoch of one group."""

    def __init__(self) -> None:
        self.state = EpochState.NEEDED
        self.number = 0
        self.ask_at = 0.0
        self.answer_until = 0.0
        self._contested_until = -math.inf
        self._takes_any = False
        self._tries = 0

    @property
    def wanted(self) -> int:
        """The epoch to ask for; 0: any."""
        return 0 if self._takes_any or self.number == 0 else self.number + 1

    def is_contested(self, now: float) -> bool:
        """Return whether a first registration of ours, of unknown outcome, may still fence us.

        Later ones name the epoch that is ours to take, and change nothing when they come late.
        """
        return now < self._contested_until

    def may_ask(self, now: float) -> bool:
        """Return whether a registration may be sent."""
        return self.state is EpochState.NEEDED and now >= self.ask_at

    def ask(self, now: float, timeout: float) -> None:
        """Note that a registration is sent; no answer within `timeout` seconds is a failure."""
        self.state = EpochState.ASKED
        self.answer_until = now + timeout

    def grant(self, number: int) -> bool:
        """Note the new epoch; return whether it follows the one before, which is now fenced."""
        follows = self.number > 0 and number == self.number + 1
        self.number = number
        self.state = EpochState.GRANTED
        self._takes_any = False
        self._tries = 0
        return follows

    def fail(self, now: float, generator: random.Random, *, definite: bool) -> None:
        """Note that a registration failed, or may have."""
        self.state = EpochState.NEEDED
        if not definite and not self.wanted:
            self._contested_until = now + CONTESTED_SECONDS
        self._tries += 1
        self.ask_at = now + backoff(self._tries, generator)

    def take_any(self) -> None:
        """Ask for whatever is next: what we wanted is taken, by a registration of our own."""
        self._takes_any = True
        self._contested_until = -math.inf

    def invalidate(self) -> None:
        """Ask for another epoch."""
        if self.state is EpochState.GRANTED:
            self.state = EpochState.NEEDED

    def next_check(self) -> float | None:
        """Return when time alone changes something."""
        if self.state is EpochState.ASKED:
            return self.answer_until
        return self.ask_at if self.state is EpochState.NEEDED else None
