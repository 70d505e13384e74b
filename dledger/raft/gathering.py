"""When what waits becomes an entry: group commit that waits for those who come back. Pure.

Owns: how long small proposals wait although nothing is in their way. Does not own what they are
(`proposals.py`), nor the bounds of an entry.

An entry costs every member a message, a write round and an apply, whatever it holds. While one is
on its way to a majority the next ones gather (as in TCP, RFC 896). When it is committed its callers
are answered, and those who send one thing after the other come back at once: an entry made before
they have would be small, and so would the next. So it waits until as many payloads wait as were
outstanding when the entry was committed (the `commit_siblings` of PostgreSQL, counted), for at most
GATHER_SECONDS. A lone caller never waits.

Callers that send by a clock of their own gain nothing by it and lose time. They are known by this:
either not all come back in time, or others come while everybody expected is in the entry. Then the
next 2, 4, .. SKIPPED_MAX entries do not wait, until a wait is fruitful again.
"""

import math
from typing import Final

GATHER_SECONDS: Final = 0.02
"""A bound, not a delay: it is reached when a caller of many stays away."""
NEWCOMERS_SHARE: Final = 1 / 8
"""Of an entry's payloads: if more come while it is under way, not all callers are in it."""
STRIKES_MAX: Final = 6
"""Entries in a row that newcomers follow before all count as strangers. As many as it takes until
callers of whom a fifth come back while an entry is under way are all in one."""
SKIPPED_MAX: Final = 2048
"""Entries that do not wait, at most, before it is tried again."""


class Gathering:
    """How many payloads are expected, and until when. Times in seconds."""

    def __init__(self) -> None:
        self._under_way = 0
        """Payloads in entries that are not committed."""
        self._expected = 0
        """Payloads that the next entry waits for; 0: it does not wait."""
        self._until = math.inf
        self._all_came = False
        """The newest entry holds everybody who was expected."""
        self._strikes = 0
        self._misses = 0
        self._skips_left = 0

    def is_complete(self, waiting: int) -> bool:
        """Tell whether `waiting` payloads become an entry, now that all before are committed."""
        return waiting >= self._expected

    @property
    def deadline(self) -> float:
        """When the wait is over though not everybody came; infinite when nobody is expected."""
        return self._until

    def tick(self, now: float) -> None:
        """Wait no longer for who did not come in time."""
        if now >= self._until:
            self._expect(0, math.inf)
            self._miss()

    def cut(self, count: int) -> None:
        """An entry of `count` payloads was made; complete, or large enough not to wait."""
        self._under_way += count
        self._all_came = 0 < self._expected <= count
        self._expect(0, math.inf)

    def all_committed(self, waiting: int, now: float) -> None:
        """Every entry is committed, its callers are being answered, and `waiting` came since."""
        outstanding = self._under_way + waiting
        if self._all_came:
            self._judge(waiting)
        self._under_way = 0
        self._all_came = False
        if self._skips_left:
            self._skips_left -= 1
        elif outstanding > 1:
            self._expect(outstanding, now + GATHER_SECONDS)

    def _expect(self, count: int, until: float) -> None:
        self._expected = count
        self._until = until

    def _judge(self, newcomers: int) -> None:
        if newcomers <= self._under_way * NEWCOMERS_SHARE:
            self._strikes = self._misses = 0
            return
        self._strikes += 1
        if self._strikes >= STRIKES_MAX:
            self._miss()

    def _miss(self) -> None:
        """The wait was in vain: wait less often."""
        self._strikes = 0
        self._misses += 1
        self._skips_left = min(2**self._misses, SKIPPED_MAX)

    def forget(self) -> None:
        """Leadership was lost: nobody is expected."""
        self._under_way = 0
        self._all_came = False
        self._expect(0, math.inf)
