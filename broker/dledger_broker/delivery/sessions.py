"""The sessions of one consumer group: who is connected, who is silent, whose session is over. Pure.

Owns the times. Sessions are not in the log: their leader measures them by its monotonic clock, and
a new leader gives every consumer its whole time again (D20). Not: what ends a session in the log
(`dledger.state.consumers.membership`), streams (`session_stream.py`).

    a consumer                                      has so long to speak, or to come back
    ----------------------------------------------  -------------------------------------
    that is connected, since it spoke last          `session_ms`
    whose stream closed                             GRACE_SECONDS
    ... and that is static (it has an instance)     `session_ms`
    that a new leader finds in the state            `session_ms`

Time in which this process did not run is nobody's silence: when a look comes late, all have their
whole time again, as from a new leader.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dledger.state.consumers.membership import Session
from dledger.state.consumers.table import Consumer

GRACE_SECONDS: Final = 0.5
LATE_SECONDS: Final = 1.0
"""A look that comes so much later than it should: the process did not run."""


@dataclass(slots=True)
class _Times:
    joined: int
    heard: float
    until: float
    connected: bool


class Sessions:
    """The sessions of one consumer group at one leader, in one term."""

    def __init__(self, now: float) -> None:
        self._of: dict[str, _Times] = {}
        self.look_by = now
        """When to look again, at the latest."""

    def opened(self, name: str, joined: int, now: float, seconds: float) -> None:
        """A consumer has joined by a stream of this leader."""
        self._of[name] = _Times(joined, now, now + seconds, connected=True)

    def spoke(self, name: str, joined: int, now: float, seconds: float) -> None:
        """A connected consumer said something."""
        times = self._of.get(name)
        if times is not None and times.joined == joined:
            times.heard, times.until = now, now + seconds

    def closed(self, name: str, joined: int, now: float, seconds: float) -> None:
        """The stream of a session closed; it has so many seconds to come back."""
        times = self._of.get(name)
        if times is not None and times.joined == joined:
            times.connected, times.until = False, min(times.until, now + seconds)

    def over(self, consumers: Mapping[str, Consumer], now: float, seconds: float) -> list[Session]:
        """Return the sessions that are over, of those that the state holds."""
        late = now - self.look_by
        if late > LATE_SECONDS:
            for times in self._of.values():
                times.until = max(times.until, now + seconds)
        for name in self._of.keys() - consumers.keys():
            del self._of[name]
        found: list[Session] = []
        for name, consumer in sorted(consumers.items()):
            if name not in self._of or self._of[name].joined != consumer.joined:
                # Its Join is from another leader, or from a stream that broke meanwhile.
                self._of[name] = _Times(consumer.joined, now, now + seconds, connected=False)
            if self._of[name].until <= now:
                found.append(Session(name, consumer.joined))
        waiting = (times.until for times in self._of.values() if times.until > now)
        self.look_by = min(waiting, default=now + seconds)
        return found

    def status(self, name: str, now: float) -> tuple[bool, float]:
        """Return whether a consumer is connected, and for how many seconds it said nothing."""
        times = self._of.get(name)
        return (False, 0.0) if times is None else (times.connected, max(0.0, now - times.heard))
