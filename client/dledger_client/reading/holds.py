"""Where holds begin, which are shared, and how many a queue can come to have of them. Pure.

Owns: the place and the name of a hold, and which hold a stream keeps using. Not: taking and
renewing holds (`planner.py`, `reader.py`).

Spark tells nobody that a job has ended. So a job's holds end when their time is over. A queue has
at most 64 holds, those of exports among them. Two rules keep the number of holds small, whatever
the rate of jobs and the time of a hold:

- *Places.* A hold begins where its job begins, rounded down to a multiple of a power of two. The
  power is such that the queue has at most PLACES such multiples. While a queue grows to double its
  size, two places are new and the others are old. So a queue has at once about

      2 log2(time of a hold / time between two jobs) + 4 holds.
- *Time.* A stream uses the hold that it took for a share of the hold's time. So a stream has at
  most five holds at once, however often it plans.

With sixteen places, and the step in the name, a stream on a young queue had 64 holds within
minutes. `holdOwner` gives a job a hold of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dledger_client.reading.plan import Place, QueueState

PLACES: Final = 4
"""Places of a queue where a shared hold may begin, at most; and the queue's minimum."""
SHARES: Final = 4
"""A stream reuses a hold for one of so many equal parts of the hold's time."""
KEPT_MAX: Final = SHARES + 1
"""Holds of one stream on one queue at once: each is renewed until the next is taken, which is a
share of the time later, and then lasts for its time."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What keeps a queue from being trimmed: by whose name, from where, how long unless renewed."""

    owner: str
    offset: int
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class HoldRequest:
    """Keep what a plan reads: by whose name, and for how long unless renewed."""

    owner: str
    """Empty: shared with whoever else reads from about there."""
    ttl_ms: int
    kept: Mapping[Place, Hold] = field(default_factory=dict[Place, Hold])
    """Shared holds to go on with, where they keep what is read (`KeptHolds`)."""

    def on(self, state: QueueState, start: int) -> Hold:
        """Return the hold for reading a queue from `start`.

        A shared hold is named for its offset, so a renewal is one for all and never moves it. While
        it lasts, nothing from its offset on is trimmed. Nobody releases it.
        """
        if self.owner:
            return Hold(self.owner, start, self.ttl_ms)
        kept = self.kept.get(state.place)
        if kept is not None and state.minimum <= kept.offset <= start:
            return kept
        offset = max(start - start % _step(state), state.minimum)
        return Hold(f"shared-{self.ttl_ms}-{offset}", offset, self.ttl_ms)


def _step(state: QueueState) -> int:
    """Return the power of two of which at most PLACES multiples are between a queue's bounds."""
    return 1 << ((state.maximum - state.minimum) // PLACES).bit_length()


class KeptHolds:
    """The shared holds that one stream took last, queue by queue. Time is given, in seconds."""

    def __init__(self, ttl_ms: int) -> None:
        self._seconds = ttl_ms / 1_000 / SHARES
        self._taken: dict[Place, tuple[Hold, float]] = {}

    def at(self, now: float) -> dict[Place, Hold]:
        """Return the holds to reuse: those taken less than a share of their time ago."""
        return {
            place: hold for place, (hold, at) in self._taken.items() if now - at < self._seconds
        }

    def note(self, holds: Mapping[Place, Hold], now: float) -> None:
        """Remember the holds of a plan; a reused hold keeps the time when it was first taken."""
        for place, hold in holds.items():
            known = self._taken.get(place)
            if known is None or known[0] != hold:
                self._taken[place] = hold, now
