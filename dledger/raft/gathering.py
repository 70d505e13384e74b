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
moment, and what carries more in the same time is kept for a while. A lone caller never waits.
"""

import math
from collections import deque
from typing import Final

GATHER_SECONDS: Final = 0.02
"""The longest wait for those who are expected."""
WORTH: Final = 1.2
"""Waiting must carry so many times what not waiting carries, or it is left."""
ROUNDS: Final = 4
"""Of a trial, each without and with: callers who come at random make one a matter of luck."""
PROMISING: Final = 1.1
"""Below this after any round a trial ends: waiting is left."""
CONVINCING: Final = 1.5
"""Above this after any round a trial ends: waiting is kept."""
WARM_UP_ENTRIES: Final = 5
"""Entries of a half round that do not count: as many as it takes until the callers follow."""
COUNTED_ENTRIES: Final = 24
HALF_SECONDS_MAX: Final = 0.5
"""Half a round ends with so many more entries, or when it has lasted so long."""
KEPT_SECONDS: Final = 8.0
"""So long waiting is kept before it is tried against not waiting again."""
LEFT_SECONDS_MIN: Final = 4.0
LEFT_SECONDS_MAX: Final = 64.0
"""So long it is left after a trial in vain; twice as long after each further one."""
PAUSE_SECONDS: Final = 0.1
"""A trial in which so long no entry was made compares nothing: it begins anew."""
NEW_LOAD_SECONDS: Final = 1.0
"""What comes after such a pause is another load: it is tried at once."""


class Trial:
    """Finds out whether waiting pays: payloads per second without it and with it, in turn."""

    def __init__(self) -> None:
        self.waits = False
        """What is to be done now, as a trial or for good."""
        self._runs = False
        self._rests_until = -math.inf
        self._left_seconds = LEFT_SECONDS_MIN
        self._rounds = 0
        self._carried = {False: _Carried(), True: _Carried()}
        """Without waiting and with it, over the rounds of this trial."""
        self._entries = 0
        self._half_began = self._counted_since = 0.0
        self._payloads = 0
        self._last_at = -math.inf

    def entry(self, payloads: int, now: float, *, alone: bool) -> None:
        """An entry of so many payloads was made; `alone`: for one caller, and no other is there."""
        paused = now - self._last_at
        self._last_at = now
        begins_at = -math.inf if paused >= NEW_LOAD_SECONDS else self._rests_until
        if not self._runs and (alone or now < begins_at):
            return
        if not self._runs or paused >= PAUSE_SECONDS:
            self._begin(now)
            return
        self._entries += 1
        if self._entries <= WARM_UP_ENTRIES:
            self._counted_since = now
            return
        self._payloads += payloads
        is_over = self._entries >= WARM_UP_ENTRIES + COUNTED_ENTRIES
        if is_over or now - self._half_began >= HALF_SECONDS_MAX:
            self._half_over(now)

    def _begin(self, now: float) -> None:
        self._runs = True
        self._rounds = 0
        self._carried = {False: _Carried(), True: _Carried()}
        self._begin_half(now, waits=False)

    def _begin_half(self, now: float, *, waits: bool) -> None:
        self.waits = waits
        self._entries = self._payloads = 0
        self._half_began = self._counted_since = now

    def _half_over(self, now: float) -> None:
        self._carried[self.waits].add(self._payloads, now - self._counted_since)
        if not self.waits:
            self._begin_half(now, waits=True)
            return
        self._rounds += 1
        without, with_it = self._carried[False].rate, self._carried[True].rate
        if self._rounds < ROUNDS and PROMISING * without < with_it < CONVINCING * without:
            self._begin_half(now, waits=False)
            return
        self._runs = False
        self.waits = with_it > WORTH * without
        if self.waits:
            self._left_seconds = LEFT_SECONDS_MIN
            self._rests_until = now + KEPT_SECONDS
        else:
            self._rests_until = now + self._left_seconds
            self._left_seconds = min(2 * self._left_seconds, LEFT_SECONDS_MAX)


class _Carried:
    """Payloads and the seconds they took."""

    def __init__(self) -> None:
        self._payloads = 0
        self._seconds = 0.0

    def add(self, payloads: int, seconds: float) -> None:
        self._payloads += payloads
        self._seconds += seconds

    @property
    def rate(self) -> float:
        return self._payloads / self._seconds if self._seconds else 0.0


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
