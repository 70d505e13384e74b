"""What time a group has, by its members' clocks: the median, carried on, jumps, who is off (D8)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dledger.raft.leadership.clocks import (
    CLOCK_OFFSET_MAX_MS,
    JUMP_MAX_MS,
    JUMP_REST_SECONDS,
    ODD_SECONDS,
    GroupClock,
)
from dledger.types import MemberId
from tests.list_trace import ListTrace

B, C, D, E = (MemberId(name) for name in "bcde")
BEGAN_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LAST_MS = 17
"""The newest stamp of the log when a member starts: long ago."""


class Watches:
    """True time, and this member's wall clock."""

    def __init__(self) -> None:
        self.now = 50.0
        self.own_ms = 0
        """What the own wall clock is off."""

    @property
    def true_ms(self) -> int:
        return BEGAN_MS + int(self.now * 1_000)

    def monotonic(self) -> float:
        return self.now + 7_000

    def wall_ms(self) -> int:
        return self.true_ms + self.own_ms


class Bench:
    """One member's knowledge of its group's time, in numbers off the true time."""

    def __init__(self, members: int = 3) -> None:
        self.watches = Watches()
        self.trace = ListTrace()
        self.clock = GroupClock(self.watches, members, self.trace)

    def read(self, *offsets: tuple[MemberId, int], late: float = 0.0) -> None:
        """Hear others' clocks, off by so many milliseconds, `late` seconds after they were read."""
        for member, offset in offsets:
            wall_ms = self.watches.true_ms + offset - int(late * 1_000)
            self.clock.reading(member, wall_ms, timely=late <= 1.0)
        self.clock.watch()

    def wait(self, seconds: float) -> None:
        self.watches.now += seconds
        self.clock.watch()

    @property
    def stamp(self) -> int:
        """What an entry is stamped with, less the true time."""
        return self.clock.stamp_ms(LAST_MS) - self.watches.true_ms

    @property
    def group(self) -> int | None:
        group_ms = self.clock.group_ms()
        return None if group_ms is None else group_ms - self.watches.true_ms

    def events(self) -> list[str]:
        return [name for name, _ in self.trace.events]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("own_ms", "stamp"),
    [(0, 0), (900, 900), (-900, -900), (HOUR_MS, 1_000), (-HOUR_MS, -1_000)],
)
def test_a_stamp_is_the_own_clock_near_the_median(own_ms: int, stamp: int) -> None:
    bench = Bench()
    bench.watches.own_ms = own_ms
    bench.read((B, 0), (C, 0))
    assert bench.stamp == stamp


def test_stamps_never_go_back(bench: Bench) -> None:
    bench.read((B, 0), (C, 0))
    ahead = bench.watches.true_ms + HOUR_MS
    assert bench.clock.stamp_ms(ahead) == ahead


def test_a_median_that_was_heard_long_ago_is_carried_on(bench: Bench) -> None:
    """The others are silent, and the own clock is off: time neither stands still nor runs away."""
    bench.watches.own_ms = -HOUR_MS
    bench.read((B, 0), (C, 0))
    bench.wait(86_400)
    assert (bench.group, bench.stamp) == (0, -1_000)
    bench.watches.own_ms = HOUR_MS
    assert (bench.group, bench.stamp) == (0, 1_000)


def test_the_own_clock_is_looked_at_when_it_counts(bench: Bench) -> None:
    """It jumps after the last answer: what others showed is not measured against it."""
    bench.read((B, 0), (C, 0))
    bench.watches.own_ms = HOUR_MS
    assert bench.stamp == 1_000


def test_who_heard_no_majority_and_no_leader_lets_time_stand_still() -> None:
    bench = Bench(5)
    assert (bench.clock.is_known, bench.group) == (False, None)
    assert bench.clock.stamp_ms(LAST_MS) == LAST_MS
    bench.read((B, 0))
    assert not bench.clock.is_known
    bench.read((C, 0))
    assert (bench.clock.is_known, bench.stamp) == (True, 0)


def test_who_begins_to_lead_goes_on_with_what_it_was_told(bench: Bench) -> None:
    bench.clock.leader_says(bench.watches.true_ms)
    bench.watches.own_ms = HOUR_MS
    bench.wait(30)
    assert bench.stamp == 1_000
    bench.clock.leader_says(0)
    assert bench.stamp == 1_000, "a leader that knows nothing yet takes nothing away"


def test_of_two_the_earlier_counts() -> None:
    """Nobody can tell which is right; so holds last too long rather than too short."""
    bench = Bench(2)
    assert not bench.clock.is_known
    bench.read((B, -HOUR_MS))
    assert bench.stamp == 1_000 - HOUR_MS
    bench = Bench(2)
    bench.read((B, HOUR_MS))
    assert bench.stamp == 0


def test_a_majority_of_right_clocks_is_enough_whoever_is_heard_first() -> None:
    """Two of five are ahead, and a majority of which they are is all that is known."""
    bench = Bench(5)
    bench.watches.own_ms = HOUR_MS
    bench.read((B, HOUR_MS), (C, 0))
    assert bench.stamp == 1_000
    bench.read((D, 0), (E, 0))
    assert bench.stamp == 1_000


def test_clocks_that_are_heard_later_are_no_jump() -> None:
    """A leader that nobody told the time may hear the one other clock that is off first."""
    bench = Bench()
    bench.read((B, -HOUR_MS))
    assert bench.stamp == 1_000 - HOUR_MS
    bench.read((C, 0))
    assert bench.stamp == 0


def test_a_group_of_one_has_its_own_clock() -> None:
    bench = Bench(1)
    bench.watches.own_ms = 5
    assert (bench.clock.is_known, bench.stamp) == (True, 5)


def test_a_late_reading_of_a_majority_is_not_its_time() -> None:
    """A leader that was paused reads what came meanwhile."""
    bench = Bench()
    bench.read((B, 0), (C, 0))
    bench.wait(1)
    bench.read((B, 0), (C, 0), late=20.0)
    assert bench.group == 0
    bench.read((B, -20_000), (C, -20_000))
    assert bench.group == -20_000, "in time, it is what their clocks say"
    bench.read((B, 0), (C, 0), late=8.0)
    assert bench.group == -8_000, "too low, and nearer to the truth than what is known"


def test_a_late_reading_is_better_than_none(bench: Bench) -> None:
    bench.watches.own_ms = HOUR_MS
    bench.read((B, 0), (C, 0), late=20.0)
    assert bench.group == -20_000


def test_a_majority_that_jumps_ahead_is_followed_when_that_lasted(bench: Bench) -> None:
    bench.read((B, 0), (C, 0))
    bench.read((B, HOUR_MS), (C, HOUR_MS))
    assert (bench.group, bench.stamp) == (0, 0)
    bench.wait(JUMP_REST_SECONDS - 1)
    assert bench.stamp == 0
    assert any("without the jump" in said for said in bench.clock.describe(LAST_MS))
    bench.wait(1)
    assert (bench.group, bench.stamp) == (HOUR_MS, HOUR_MS - 1_000)
    assert bench.events()[:2] == ["clock_jumped", "clock_followed"]


def test_a_jump_that_is_taken_back_leaves_nothing(bench: Bench) -> None:
    bench.read((B, 0), (C, 0))
    for _ in range(3):  # each anew has to last
        bench.read((B, HOUR_MS), (C, HOUR_MS))
        bench.wait(JUMP_REST_SECONDS - 1)
        bench.read((B, 0), (C, 0))
        assert bench.stamp == 0
        bench.wait(2)
    assert "clock_followed" not in bench.events()
    assert bench.clock.describe(LAST_MS) == []


def test_small_steps_of_a_majority_are_followed_at_once(bench: Bench) -> None:
    bench.read((B, 0), (C, 0))
    for step in (JUMP_MAX_MS, 0, -JUMP_MAX_MS):
        bench.read((B, step), (C, step))
        assert bench.group == step
    assert bench.events() == []


def test_one_clock_that_is_behind_while_another_is_away_holds_no_time_up() -> None:
    """Of two known clocks of three the lower counts; the time that was told goes on all the same.

    The leader's clock is right: it has nothing to hand over for.
    """
    bench = Bench()
    bench.clock.leader_says(bench.watches.true_ms)
    for _ in range(6):
        bench.read((B, -HOUR_MS))
        bench.wait(JUMP_REST_SECONDS / 7)
        assert (bench.group, bench.stamp, bench.clock.is_off) == (0, 0, False)
    assert any("jumped back by 3600000 ms" in said for said in bench.clock.describe(LAST_MS))
    bench.read((C, 0))
    bench.wait(1)
    assert (bench.group, bench.stamp) == (0, 0), "there is no way back to wait for"
    assert bench.clock.describe(LAST_MS) == []
    assert bench.events() == ["clock_jumped"]


def test_a_majority_that_stays_behind_is_followed_when_that_lasted(bench: Bench) -> None:
    bench.read((B, 0), (C, 0))
    bench.read((B, -HOUR_MS), (C, -HOUR_MS))
    bench.wait(JUMP_REST_SECONDS - 1)
    assert (bench.group, bench.stamp) == (0, 0)
    bench.wait(1)
    assert (bench.group, bench.stamp) == (-HOUR_MS, 1_000 - HOUR_MS)
    assert bench.events()[:2] == ["clock_jumped", "clock_followed"]
    assert bench.trace.events[1][1]["jump_ms"] == -HOUR_MS
    bench.read((B, 0), (C, 0))
    bench.wait(JUMP_REST_SECONDS - 1)
    assert bench.group == -HOUR_MS, "nobody knows that this was the time before"
    bench.wait(1)
    assert bench.group == 0


def test_a_jump_that_turns_waits_anew() -> None:
    bench = Bench()
    bench.read((B, 0), (C, 0))
    for offset in (-HOUR_MS, DAY_MS, -DAY_MS):
        bench.read((B, offset), (C, offset))
        bench.wait(JUMP_REST_SECONDS - 1)
        assert bench.group == 0
    bench.wait(1)
    assert bench.group == -DAY_MS


def test_of_a_jump_that_grows_as_much_is_followed_as_has_lasted() -> None:
    """Else a majority that is an hour ahead lets a day ahead be stamped at once."""
    for way in (1, -1):
        bench = Bench()
        bench.read((B, 0), (C, 0))
        bench.read((B, way * HOUR_MS), (C, way * HOUR_MS))
        bench.wait(JUMP_REST_SECONDS - 1)
        bench.read((B, way * DAY_MS), (C, way * DAY_MS))
        bench.wait(1)
        assert bench.group == way * HOUR_MS
        bench.wait(JUMP_REST_SECONDS - 1)
        assert bench.group == way * HOUR_MS
        bench.wait(1)
        assert bench.group == way * DAY_MS


def test_a_jump_that_lasted_ends_at_the_clocks_of_now(bench: Bench) -> None:
    """A drift of less than a minute is a small step: it has not to last once more."""
    bench.read((B, 0), (C, 0))
    bench.read((B, HOUR_MS), (C, HOUR_MS))
    bench.wait(JUMP_REST_SECONDS / 2)
    bench.read((B, HOUR_MS + 40_000), (C, HOUR_MS + 40_000))
    bench.wait(JUMP_REST_SECONDS / 2)
    assert bench.group == HOUR_MS + 40_000


SMALL = (-25_000, 0, 25_000)
BACK = (-DAY_MS, -HOUR_MS, *SMALL)
LONG = st.floats(0.1, 3 * JUMP_REST_SECONDS)


@given(
    before=st.lists(st.tuples(st.sampled_from(BACK), LONG), max_size=8),
    walk=st.lists(
        st.tuples(st.sampled_from((*BACK, HOUR_MS, DAY_MS)), st.floats(0.1, 300)), max_size=8
    ),
    reigns=st.sets(st.integers(0, 16)),
)
@example([(-HOUR_MS, JUMP_REST_SECONDS), (0, 1.0)], [(DAY_MS, 599.0)], set())
@example([(0, 1.0), (-HOUR_MS, 599.0)], [(DAY_MS, 1.0)], set())
@example([(0, 1.0)], [(HOUR_MS, 299.0), (DAY_MS, 299.0)], {1})
def test_what_has_not_lasted_is_never_stamped(
    before: list[tuple[int, float]], walk: list[tuple[int, float]], reigns: set[int]
) -> None:
    """However clocks went before: ahead by an hour, a day, for less than ten minutes in all."""
    bench = Bench()
    bench.read((B, 0), (C, 0))
    left = JUMP_REST_SECONDS - 0.01
    for turn, (offset, seconds) in enumerate([*before, *walk]):
        bench.read((B, offset), (C, offset))
        bench.watches.own_ms = offset
        if turn >= len(before):
            seconds = min(seconds, left)
            left -= seconds
        for _ in range(3):
            bench.wait(seconds / 3)
            assert bench.stamp <= JUMP_MAX_MS + CLOCK_OFFSET_MAX_MS
        if turn in reigns and bench.group is not None:
            told_ms, jump_ms = bench.watches.true_ms + bench.group, bench.clock.jump_ms
            bench.clock.end_reign()
            bench.clock.leader_says(told_ms, jump_ms)


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_while_a_jump_waits_both_times_are_right_to_a_follower(bench: Bench, jump_ms: int) -> None:
    for own_ms, is_off in ((0, False), (jump_ms, False), (-jump_ms, True), (jump_ms // 2, True)):
        bench.watches.own_ms = own_ms
        bench.clock.leader_says(bench.watches.true_ms, jump_ms)
        assert bench.clock.is_off is is_off, own_ms
    assert bench.group == 0
    assert bench.stamp == (CLOCK_OFFSET_MAX_MS if jump_ms > 0 else -CLOCK_OFFSET_MAX_MS)


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_while_a_jump_waits_both_times_are_right_to_a_leader(bench: Bench, jump_ms: int) -> None:
    bench.read((B, 0), (C, 0))
    bench.watches.own_ms = jump_ms
    bench.read((B, jump_ms), (C, 0))
    assert [bench.clock.agrees(member) for member in (B, C)] == [True, True]
    assert bench.clock.jump_ms == jump_ms
    bench.read((C, -jump_ms))
    assert not bench.clock.agrees(C)
    bench.wait(ODD_SECONDS + 1)
    assert not bench.clock.is_odd


def test_a_new_leader_goes_on_waiting(bench: Bench) -> None:
    """It was told the time as it was before the jump; how long that has lasted it does not know."""
    bench.clock.leader_says(bench.watches.true_ms)
    bench.read((B, HOUR_MS), (C, HOUR_MS))
    bench.wait(JUMP_REST_SECONDS / 2)
    bench.clock.end_reign()
    bench.clock.leader_says(bench.watches.true_ms)
    bench.clock.end_reign()
    bench.read((B, HOUR_MS), (C, HOUR_MS))
    bench.wait(JUMP_REST_SECONDS - 1)
    assert bench.stamp == 0


def test_stamps_that_are_ahead_are_told(bench: Bench) -> None:
    bench.read((B, 0), (C, 0))
    (said,) = bench.clock.describe(bench.watches.true_ms + HOUR_MS)
    assert said.startswith(f"the newest stamp is {HOUR_MS} ms ahead of the majority's clock")
    assert bench.clock.describe(None) == [], "who follows does not stamp"


def test_who_is_off_says_so_once_and_when_it_ends(bench: Bench) -> None:
    bench.read((B, 0), (C, 0))
    bench.watches.own_ms = CLOCK_OFFSET_MAX_MS + 1
    bench.wait(0.1)
    assert (bench.clock.is_off, bench.clock.is_odd) == (True, False)
    assert bench.clock.describe(None) == [
        f"this member's clock is {bench.watches.own_ms} ms off the majority's clock"
    ]
    for _ in range(20):
        bench.wait(ODD_SECONDS / 10)
        bench.watches.own_ms = 1_600 - bench.watches.own_ms  # about the limit: no new edge
    assert bench.clock.is_odd
    bench.watches.own_ms = 0
    bench.wait(0.1)
    assert not bench.clock.is_off
    assert bench.events() == ["clock_off", "clock_agrees"]


def test_what_is_off_for_a_moment_is_not_odd(bench: Bench) -> None:
    bench.clock.leader_says(bench.watches.true_ms - 8_000)
    assert bench.clock.is_off, "a message that was held up looks the same"
    bench.wait(ODD_SECONDS - 1)
    bench.clock.leader_says(bench.watches.true_ms)
    bench.wait(ODD_SECONDS)
    assert bench.events() == []


def test_whose_clock_is_right(bench: Bench) -> None:
    bench.watches.own_ms = HOUR_MS
    bench.read((B, 400), (C, -400))
    assert bench.clock.offset_ms(B) == 0, "the median"
    assert [bench.clock.agrees(member) for member in (B, C, D)] == [True, False, False]
    assert bench.clock.offset_ms() == HOUR_MS - 400
    assert bench.clock.offset_ms(E) is None
