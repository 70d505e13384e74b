"""When what waits becomes an entry: group commit that waits for those who come back. Pure.

Owns: how long small proposals wait although nothing is in their way. Does not own what they are
(`proposals.py`), nor the bounds of an entry.

An entry costs every member a message, a write round and an apply, whatever it holds. While one is
on its way to a majority the next ones gather (as in TCP, RFC 896). When it is committed its callers
are answered, and of those who send one thing after the other many come back at once: an entry made
before they have would be small, and so would the next. Where processors are scarce it pays to wait
until as many wait as were outstanding when the entry was committed (the `commit_siblings` of
PostgreSQL, counted). Where they are not, or callers send by a clock of their own, or a quick caller
would wait for a slow one, it costs them time. Which it is, is not guessed: both are tried for a
moment, and what carries more in the same time is kept for a while. Nobody waits longer than
GATHER_SECONDS, and a proposal with no other outstanding does not wait.
"""

import math
import statistics
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

GATHER_SECONDS: Final = 0.02
"""The longest wait for those who are expected."""
WORTH: Final = 1.1
"""Waiting must carry so many times what not waiting carries, or it is left."""
PROMISING: Final = 1.05
"""Below this in both pairs at half time a trial is over: waiting is left."""
SURE: Final = 4.0
"""So many standard deviations (callers who come at random, Poisson) are no matter of luck."""
HALVES: Final = (False, True, True, False, True, False, False, True)
"""A trial: without waiting, with it... In this order a load that grows favours neither."""
HALF_TIME: Final = 4
"""After so many halves a trial that promises nothing is over."""
HALF_SECONDS: Final = 0.2
WARM_UP_ENTRIES: Final = 3
"""Entries at the start of a half that do not count, however slow: until the callers follow."""
PAUSE_SECONDS: Final = 0.1
"""When so long no entry was made, nothing can be compared across: a pair begins anew."""
STEADY_SECONDS: Final = 0.5
"""So long a load must have gone on without such a pause before it is tried."""
TRIAL_SECONDS_MAX: Final = 6.0
"""A trial that pauses keep from its end is over: waiting is left."""
REST_SECONDS_MIN: Final = 4.0
"""So long a verdict holds that is new; twice as long each time that the next trial confirms it."""
KEPT_SECONDS_MAX: Final = 16.0
LEFT_SECONDS_MAX: Final = 64.0


class Trial:
    """Finds out whether waiting pays: payloads per second without it and with it, in turn."""

    def __init__(self) -> None:
        self.waits = False
        """What is to be done now, as a trial or for good."""
        self._verdict = False
        self._rest_seconds = REST_SECONDS_MIN / 2
        self._rests_until = -math.inf
        self._runs = False
        self._halves: list[_Half] = []
        self._entries = self._payloads = 0
        self._began = self._half_began = self._counted_since = 0.0
        self._last_at = self._steady_since = -math.inf

    def entry(self, payloads: int, now: float, *, alone: bool) -> None:
        """An entry of so many payloads was made; `alone`: of one proposal, and no other is open."""
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
            # What was kept was found for a load that is over, as far as anybody can tell.
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
            pays = statistics.median(gains) > WORTH and _is_more_than_chance(pairs)
            self._end(now, verdict=pays)
        elif len(self._halves) == HALF_TIME and max(gains) < PROMISING:
            self._end(now, verdict=False)
        else:
            self._begin_half(now)

    def _end(self, now: float, *, verdict: bool) -> None:
        """Hold to the verdict, the longer the oftener it was the same."""
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
    """A half without waiting and its neighbour with it: a machine's speed changes between pairs."""

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
    return with_it - without > SURE * math.sqrt(with_it + without)


class Gathering:
    """How many proposals are expected, and until when. Times in seconds."""

    def __init__(self, trial: Trial | None = None) -> None:
        self._trial = trial or Trial()
        self._entries: deque[tuple[int, int]] = deque()
        """Index and proposals of the entries that are not committed."""
        self._under_way = 0
        """Their proposals together."""
        self._expected = 0
        """Proposals that the next entry waits for; 0: it does not wait."""
        self._until = math.inf

    def is_complete(self, waiting: int) -> bool:
        """Tell whether `waiting` proposals become an entry, now that all before are committed."""
        return waiting >= self._expected

    @property
    def deadline(self) -> float:
        """When the wait is over though not everybody came; infinite when nobody is expected."""
        return self._until

    def tick(self, now: float) -> None:
        """Wait no longer for who did not come in time."""
        if now >= self._until:
            self._expect(0, math.inf)

    def cut(self, index: int, proposals: int, payloads: int, now: float) -> None:
        """The entry at `index` was made of proposals with so many payloads together."""
        self._trial.entry(payloads, now, alone=self._under_way + proposals == 1)
        self._entries.append((index, proposals))
        self._under_way += proposals
        self._expect(0, math.inf)

    def committed(self, index: int, waiting: int, now: float) -> None:
        """Entries up to `index` are committed, their callers answered; `waiting` came since."""
        outstanding = self._under_way + waiting
        entries = self._entries
        while entries and entries[0][0] <= index:
            self._under_way -= entries.popleft()[1]
        if self._trial.waits and outstanding > 1 and not entries:
            self._expect(outstanding, now + GATHER_SECONDS)

    def _expect(self, count: int, until: float) -> None:
        self._expected = count
        self._until = until

    def forget(self) -> None:
        """Leadership was lost: nobody is expected."""
        self._entries.clear()
        self._under_way = 0
        self._expect(0, math.inf)
