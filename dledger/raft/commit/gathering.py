"""How long small proposals wait although nothing is in their way. Pure.

Owns: for how many callers the next entry waits, and for how long. Does not own whether waiting pays
(`trial.py`), what the proposals are (`proposals.py`), nor when entries are made (`cutting.py`).

An entry costs each member a message, a write round and an apply, however little it holds. While an
entry is on its way to a majority, the next proposals gather (as in TCP, RFC 896). When the entry is
committed, its callers are answered, and many of them send again at once. An entry made before they
do would be small, and so would the next one. So the leader waits until as many proposals wait as
were outstanding at that commit (the `commit_siblings` of PostgreSQL, counted). No proposal waits
longer than `GATHER_SECONDS`. A proposal waits for nobody when no other was outstanding.
"""

import math
from collections import deque
from typing import Final

from dledger.raft.commit.trial import Trial

GATHER_SECONDS: Final = 0.02
"""The longest wait for expected callers."""


class Gathering:
    """How many proposals the next entry waits for, and until when. Times in seconds."""

    def __init__(self, trial: Trial | None = None) -> None:
        self._trial = trial or Trial()
        self._entries: deque[tuple[int, int]] = deque()
        """Of each entry that is not committed: its index, and how many proposals it holds."""
        self._under_way = 0
        """How many proposals these entries hold together."""
        self._expected = 0
        """The next entry waits for so many proposals; 0: it does not wait."""
        self._until = math.inf

    def is_complete(self, waiting: int) -> bool:
        """Tell whether so many waiting proposals are enough for an entry.

        Asked when every entry before is committed.
        """
        return waiting >= self._expected

    @property
    def deadline(self) -> float:
        """When the wait ends although callers are missing; infinite when none is expected."""
        return self._until

    def tick(self, now: float) -> None:
        """Stop waiting for callers that did not come in time."""
        if now >= self._until:
            self._expect(0, math.inf)

    def cut(self, index: int, proposals: int, payloads: int, now: float) -> None:
        """Learn that the entry at `index` was made, of so many proposals and payloads."""
        self._trial.entry(payloads, now, alone=self._under_way + proposals == 1)
        self._entries.append((index, proposals))
        self._under_way += proposals
        self._expect(0, math.inf)

    def committed(self, index: int, waiting: int, now: float) -> None:
        """Learn that entries up to `index` are committed and their callers answered.

        `waiting`: how many proposals wait for the next entry.
        """
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
        """Leadership was lost: expect no caller."""
        self._entries.clear()
        self._under_way = 0
        self._expect(0, math.inf)
