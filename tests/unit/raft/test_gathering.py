"""Group commit that waits for those who come back; virtual callers, virtual time."""

import math
from itertools import pairwise

from dledger.raft.gathering import (
    GATHER_SECONDS,
    SKIPPED_MAX,
    STRIKES_MAX,
    Gathering,
)


class Callers:
    """Callers who send one thing after the other; entries are on their way for `flight` of them.

    Of those answered `quick` are back while the next entry is on its way, if it does not wait.
    """

    def __init__(self, count: int, quick: int) -> None:
        self.gathering = Gathering()
        self.count = count
        self.quick = quick
        self.waiting = 1
        self.away = count - 1
        self.now = 0.0
        self.sizes: list[int] = []

    def entry(self) -> None:
        """Make one entry as soon as it is complete, and commit it."""
        while not self.gathering.is_complete(self.waiting):
            assert self.away, "waits for somebody who is not there"
            self._arrive(1)
        size, self.waiting = self.waiting, 0
        self.sizes.append(size)
        self.gathering.cut(size)
        self._arrive(self.quick)
        self.now += 0.001
        self.gathering.all_committed(self.waiting, self.now)
        self.away += size

    def _arrive(self, count: int) -> None:
        count = min(count, self.away)
        self.waiting += count
        self.away -= count


def test_a_lone_caller_never_waits() -> None:
    callers = Callers(1, quick=0)
    for _ in range(100):
        callers.waiting, callers.away = 1, 0
        assert callers.gathering.is_complete(1)
        callers.entry()
        assert callers.gathering.deadline == math.inf
    assert set(callers.sizes) == {1}


def test_callers_who_come_back_are_soon_all_in_one_entry() -> None:
    for count in (2, 5, 16, 64, 500):
        callers = Callers(count, quick=max(count // 5, 1))
        for _ in range(40):
            callers.entry()
        assert callers.sizes[-1] == count, f"{count}: {callers.sizes}"
        assert callers.sizes.index(count) <= STRIKES_MAX, f"{count}: {callers.sizes}"


def test_one_who_stays_away_is_waited_for_once() -> None:
    callers = Callers(8, quick=2)
    for _ in range(20):
        callers.entry()
    gathering = callers.gathering
    gathering.tick(callers.now)
    assert not gathering.is_complete(7), "it is not too late yet"
    assert gathering.deadline == callers.now + GATHER_SECONDS
    gathering.tick(gathering.deadline)
    assert gathering.is_complete(7), "the seven go without it"
    assert gathering.deadline == math.inf, "no timer is left"
    callers.count, callers.waiting, callers.away = 7, 7, 0
    for _ in range(20):
        callers.entry()
    assert callers.sizes[-1] == 7


def test_callers_with_a_clock_of_their_own_hardly_wait() -> None:
    """A steady stream from many senders: nobody waits for an answer to send the next."""
    gathering = Gathering()
    per_flight, waited, entries = 6, 0, 20_000
    waiting, now = per_flight, 0.0
    for _ in range(entries):
        while not gathering.is_complete(waiting):
            waited += 1
            waiting += 1
            now += 0.003 / per_flight
            gathering.tick(now)
        gathering.cut(waiting)
        now += 0.003
        waiting = per_flight
        gathering.all_committed(waiting, now)
    seconds = waited * 0.003 / per_flight
    assert 0 < seconds < 0.05 * entries * 0.003, f"{seconds} s of {entries * 0.003} were waited"


def test_after_many_misses_it_is_still_tried_again() -> None:
    gathering = Gathering()
    tried_at = []
    for number in range(4 * SKIPPED_MAX):
        gathering.cut(2)
        gathering.all_committed(0, 0.0)
        if gathering.deadline < math.inf:
            tried_at.append(number)
            gathering.tick(gathering.deadline)
    gaps = [after - before for before, after in pairwise(tried_at)]
    assert gaps[:3] == [3, 5, 9]
    assert max(gaps) == SKIPPED_MAX + 1


def test_a_large_entry_does_not_wait_and_teaches_nothing() -> None:
    gathering = Gathering()
    gathering.cut(4)
    gathering.all_committed(4, 0.0)
    assert not gathering.is_complete(7)
    gathering.cut(6)  # by its bytes
    gathering.cut(2)
    gathering.all_committed(0, 0.001)
    assert not gathering.is_complete(7), "all eight were under way together"
    assert gathering.is_complete(8)


def test_who_lost_leadership_expects_nobody() -> None:
    gathering = Gathering()
    gathering.cut(4)
    gathering.all_committed(4, 0.0)
    gathering.forget()
    assert gathering.is_complete(1)
    assert gathering.deadline == math.inf
