"""A producer's epoch in one group: needed, asked for, granted. Pure.

Owns: the state of registration, which epoch is asked for and when, which answer is still of
interest. Not: what a new epoch does to batches (`Lane.new_epoch`), the call.

A life of the producer asks for epoch 0 first. If its name is new in the group, the group grants an
epoch. If another life holds the name, the group tells that life's epoch, and this life takes over
by asking for the next one. From then on it asks for the epoch above its own. A late copy of such a
call does no harm, for the group tells lives apart (`state/producers/registration.py`).
"""

import enum
import random

from dledger_client._core.retry import backoff


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
        """The newest one of this life; 0: none yet."""
        self.ask_at = 0.0
        self.answer_until = 0.0
        self.asks = 0
        """Number of the newest registration that was sent."""
        self._taken = 0
        self._tries = 0

    @property
    def wanted(self) -> int:
        """The epoch to ask for; 0: the first."""
        newest = self.number or self._taken
        return newest + 1 if newest else 0

    def may_ask(self, now: float) -> bool:
        """Return whether a registration may be sent."""
        return self.state is EpochState.NEEDED and now >= self.ask_at

    def ask(self, now: float, timeout: float) -> int:
        """Note that a registration is sent; return its number.

        No answer within `timeout` seconds is a failure.
        """
        self.state = EpochState.ASKED
        self.answer_until = now + timeout
        self.asks += 1
        return self.asks

    def is_awaited(self, ask: int) -> bool:
        """Return whether an answer to this registration is of interest; a late one is not."""
        return self.state is EpochState.ASKED and ask == self.asks

    def grant(self, number: int) -> bool:
        """Note the new epoch; return whether it follows the one before, which is now fenced."""
        follows = self.number > 0 and number == self.number + 1
        self.number = number
        self.state = EpochState.GRANTED
        self._taken = 0
        self._tries = 0
        return follows

    def taken(self, number: int, now: float) -> None:
        """Note which epoch another life holds, to take over from it at once."""
        self.state = EpochState.NEEDED
        self._taken = number
        self.ask_at = now

    def stale(self, now: float, generator: random.Random) -> bool:
        """Note STALE_EPOCH; return whether another life has taken over from this one.

        A life that was about to take over may have come too late. It asks again whom it follows.
        """
        if self.number or not self._taken:
            return True
        self._taken = 0
        self.fail(now, generator)
        return False

    def fail(self, now: float, generator: random.Random) -> None:
        """Note that a registration failed, or may have."""
        self.state = EpochState.NEEDED
        self._tries += 1
        self.ask_at = now + backoff(self._tries, generator)

    def invalidate(self) -> None:
        """Ask for another epoch."""
        if self.state is EpochState.GRANTED:
            self.state = EpochState.NEEDED

    def next_check(self) -> float | None:
        """Return when time alone changes something."""
        if self.state is EpochState.ASKED:
            return self.answer_until
        return self.ask_at if self.state is EpochState.NEEDED else None
