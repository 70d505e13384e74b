"""Whether it pays to wait for callers: tried for a moment, then kept for a while. Pure.

Owns: the course of a trial, its verdict, and how long a verdict holds. Callers tell of each entry
with `Trial.entry` and read `Trial.waits`, nothing else.

Where processors are scarce, waiting pays: larger entries carry more payloads in the same time.
Where they are not, or where callers send by a clock of their own, waiting costs time. A trial finds
out which holds. It runs eight halves, four without waiting and four with it, and counts payloads
per second in each. The leader waits from then on if two conditions hold: the median gain of the
four pairs is above `GAIN_MIN`, and the gain is more than chance explains.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple

# Which load is tried. A pause is a time without any entry: across it nothing can be compared.
PAUSE_SECONDS: Final = 0.1
"""So long a time without an entry is a pause. The pair of halves in which it falls begins anew."""
STEADY_SECONDS: Final = 0.5
"""A load is tried once it has gone on so long without a pause."""

# The course of a trial.
HALVES: Final = (False, True, True, False, True, False, False, True)
"""True: a half with waiting. In this order a load that grows favours neither."""
HALF_SECONDS: Final = 0.2
"""A half lasts so long at least."""
WARM_UP_ENTRIES: Final = 3
"""So many entries at the start of a half do not count: the callers have not adapted yet."""
TRIAL_SECONDS_MAX: Final = 6.0
"""A trial that pauses keep from its end ends here: the leader does not wait."""

# The verdict.
HALF_TIME: Final = 4
"""After so many halves the trial ends if no pair has gained `GAIN_HALFWAY_MIN`."""
GAIN_HALFWAY_MIN: Final = 1.05
GAIN_MIN: Final = 1.1
"""The least gain for which the leader waits: payloads per second with waiting, over without."""
DEVIATIONS_MIN: Final = 4.0
"""The gain in payloads must exceed so many standard deviations of callers that come at random."""

# How long a verdict holds: the least time when it is new, twice as long each time it is confirmed.
REST_SECONDS_MIN: Final = 4.0
KEPT_SECONDS_MAX: Final = 16.0
"""The longest rest after a verdict to wait."""
LEFT_SECONDS_MAX: Final = 64.0
"""The longest rest after a verdict not to wait."""


class Trial:
    """Says whether the leader waits for callers now, in a trial or by its verdict."""

    def __init__(self) -> None:
        self.waits = False
        self._verdict = False
        self._rest_seconds = REST_SECONDS_MIN / 2
        self._rests_until = -math.inf
        self._runs = False
        self._halves: list[_Half] = []
        self._entries = self._payloads = 0
        self._began = self._half_began = self._counted_since = 0.0
        self._last_at = self._steady_since = -math.inf

    def entry(self, payloads: int, now: float, *, alone: bool) -> None:
        """Learn of a new entry of so many payloads.

        `alone`: it holds one proposal, and no other proposal is outstanding.
        """
        paused = now - self._last_at >= PAUSE_SECONDS
        self._last_at = now
        if paused:
            self._steady_since = now
        if not self._runs:
            if now >= self._rests_until:
                self._try_again(now, alone=alone, paused=paused)
        elif now - self._began >= TRIAL_SECONDS_MAX:
            self._end(now, verdict=False)
        elif paused:
            del self._halves[len(self._halves) // 2 * 2 :]
            self._begin_half(now)
        else:
            self._count(payloads, now)

    def _try_again(self, now: float, *, alone: bool, paused: bool) -> None:
        if paused:
            # The verdict was about a load that has probably ended.
            self.waits = self._verdict = False
        if not alone and now - self._steady_since >= STEADY_SECONDS:
            self._runs = True
            self._began = now
            self._halves = []
            self._begin_half(now)

    def _count(self, payloads: int, now: float) -> None:
        self._entries += 1
        if self._entries <= WARM_UP_ENTRIES:
            self._counted_since = now
            return
        self._payloads += payloads
        if now - self._half_began >= HALF_SECONDS and now > self._counted_since:
            self._halves.append(_Half(self._payloads, now - self._counted_since))
            self._half_over(now)

    def _begin_half(self, now: float) -> None:
        self.waits = HALVES[len(self._halves)]
        self._entries = self._payloads = 0
        self._half_began = self._counted_since = now

    def _half_over(self, now: float) -> None:
        pairs = _pairs(self._halves)
        gains = [pair.gain for pair in pairs]
        if len(self._halves) == len(HALVES):
            pays = statistics.median(gains) > GAIN_MIN and _is_more_than_chance(pairs)
            self._end(now, verdict=pays)
        elif len(self._halves) == HALF_TIME and max(gains) < GAIN_HALFWAY_MIN:
            self._end(now, verdict=False)
        else:
            self._begin_half(now)

    def _end(self, now: float, *, verdict: bool) -> None:
        """End the trial. The verdict holds longer each time that a trial confirms it."""
        longest = KEPT_SECONDS_MAX if verdict else LEFT_SECONDS_MAX
        is_confirmed = verdict == self._verdict
        self._rest_seconds = (
            min(2 * self._rest_seconds, longest) if is_confirmed else REST_SECONDS_MIN
        )
        self._rests_until = now + self._rest_seconds
        self._runs = False
        self.waits = self._verdict = verdict


class _Half(NamedTuple):
    payloads: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.payloads / self.seconds


class _Pair(NamedTuple):
    """A half without waiting and its neighbour with it.

    Only neighbours are compared, because the speed of a machine changes.
    """

    without: _Half
    with_it: _Half

    @property
    def gain(self) -> float:
        return self.with_it.rate / self.without.rate


def _pairs(halves: Sequence[_Half]) -> list[_Pair]:
    orders = HALVES[::2]
    return [
        _Pair(second, first) if waits_first else _Pair(first, second)
        for waits_first, first, second in zip(orders, halves[::2], halves[1::2], strict=False)
    ]


def _is_more_than_chance(pairs: Sequence[_Pair]) -> bool:
    without = sum(pair.without.payloads for pair in pairs)
    with_it = sum(pair.with_it.rate * pair.without.seconds for pair in pairs)
    return with_it - without > DEVIATIONS_MIN * math.sqrt(with_it + without)
