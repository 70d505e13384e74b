"""Known bugs of time: what entries are stamped with, whose clock counts, when producers expire."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import Edit

CLOCKS: Final = "dledger.raft.leadership.clocks:GroupClock"
PURE: Final = "unit.raft.test_clocks"
GROUPS: Final = "unit.raft.test_clock_scripts"
PRODUCERS: Final = "unit.state.test_producers"

CLOCK_BUGS: Final[Sequence[Mutant]] = (
    Mutant(
        "stamp-is-the-clock",
        "a leader stamps entries with its own clock, whatever was stamped before (D8)",
        [
            Edit(
                f"{CLOCKS}.stamp_ms",
                "max(last_ms, min(max(own_ms, earliest), latest))",
                "own_ms",
            )
        ],
    ),
    Mutant(
        "stamp-not-bounded",
        "a leader stamps its own clock, however far that is from the majority's",
        [
            Edit(
                f"{CLOCKS}.stamp_ms",
                "max(last_ms, min(max(own_ms, earliest), latest))",
                "max(last_ms, own_ms)",
            )
        ],
        [f"{GROUPS}.test_d8_a_leaders_clock_that_jumps_ahead_is_not_stamped"],
    ),
    Mutant(
        "clocks-against-the-own",
        "a leader keeps how far others' clocks are from its own, which may jump after that",
        [
            Edit(
                f"{CLOCKS}.reading",
                "base = wall_ms - self._monotonic_ms()",
                "base = wall_ms - self._clock.wall_ms()",
            ),
            Edit(
                f"{CLOCKS}._agree",
                "*self._bases.values()",
                "*(self._own_base() + each for each in self._bases.values())",
            ),
        ],
        [f"{GROUPS}.test_d8_a_leaders_clock_that_jumps_ahead_is_not_stamped"],
    ),
    Mutant(
        "median-not-carried-on",
        "the group's time stands still from when it was heard",
        [
            Edit(
                f"{CLOCKS}.leader_says",
                "self._was_told, self._jump_at, self.jump_ms = True, None, jump_ms",
                "self._was_told, self._jump_at, self.jump_ms = True, None, jump_ms; "
                "self._at = self._monotonic_ms()",
            ),
            Edit(
                f"{CLOCKS}.group_ms",
                "self._base + self._monotonic_ms()",
                "self._base + (self._monotonic_ms() if self._heard else "
                "getattr(self, '_at', self._monotonic_ms()))",
            ),
        ],
        [f"{GROUPS}.test_d8_who_leads_after_a_long_silence_goes_on_with_the_time_it_was_told"],
    ),
    Mutant(
        "first-entries-by-the-own-clock",
        "a leader that has not heard a majority's clocks stamps its own",
        [Edit(f"{CLOCKS}.stamp_ms", "return last_ms", "return self._clock.wall_ms()")],
        [f"{GROUPS}.test_d8_a_leader_that_never_heard_a_clock_makes_no_entries_before_it_has"],
    ),
    Mutant(
        "late-clock-sets-time-back",
        "an answer that was read late counts like one that came at once",
        [Edit(f"{CLOCKS}.reading", "if timely or", "if True or")],
        [f"{PURE}.test_a_late_reading_of_a_majority_is_not_its_time"],
    ),
    Mutant(
        "jump-followed-at-once",
        "a jump ahead of the majority is stamped, though it may be taken back",
        [
            Edit(
                f"{CLOCKS}._agree",
                "abs(median - self._base) <= JUMP_MAX_MS",
                "True",
            )
        ],
        [f"{GROUPS}.test_d8_a_majority_that_jumps_and_comes_back_leaves_nothing"],
    ),
    Mutant(
        "jump-back-followed-at-once",
        "one clock that is behind sets time back while another is away, and the way up then waits",
        [
            Edit(
                f"{CLOCKS}._agree",
                "abs(median - self._base) <= JUMP_MAX_MS",
                "median - self._base <= JUMP_MAX_MS",
            )
        ],
        [f"{PURE}.test_one_clock_that_is_behind_while_another_is_away_holds_no_time_up"],
    ),
    Mutant(
        "jump-that-grew-followed",
        "clocks that were an hour ahead for ten minutes let a day ahead be followed at once",
        [
            Edit(
                f"{CLOCKS}._wait",
                "(min if jump_ms > 0 else max)(self._lasted, median)",
                "median",
            )
        ],
        [f"{PURE}.test_of_a_jump_that_grows_as_much_is_followed_as_has_lasted"],
    ),
    Mutant(
        "odd-leader-stays",
        "a leader whose clock is off leads on, though another could",
        [
            Edit(
                "dledger.raft.leadership.transfer:Transfer.begin_if_clock_is_odd",
                "if right:",
                "if False:",
            )
        ],
        [f"{GROUPS}.test_d8_a_leader_whose_clock_is_off_hands_over_once"],
    ),
    Mutant(
        "odd-leaders-flap",
        "clocks that go to and fro move leadership each time",
        [
            Edit(
                "dledger.raft.leadership.transfer:Transfer.begin_if_clock_is_odd",
                "context.now + CLOCK_RETRY_SECONDS",
                "context.now",
            )
        ],
        [f"{GROUPS}.test_d8_clocks_that_go_to_and_fro_move_leadership_once_a_minute_at_most"],
    ),
    Mutant(
        "odd-hands-to-odd",
        "a leader whose clock is off hands over to whoever holds most",
        [
            Edit(
                "dledger.raft.leadership.transfer:Transfer.begin_if_clock_is_odd",
                "if self._clocks.agrees(peer)",
                "if True",
            )
        ],
        [f"{GROUPS}.test_d8_a_leader_goes_on_while_no_other_clock_is_right"],
    ),
    Mutant(
        "producers-expire-by-stamps",
        "a producer expires when stamps say so, which a jump of the clocks makes them",
        [
            Edit(
                "dledger.state.producers.expiry:ExpireProducers.apply",
                "state.time.count(self.elapsed_ms)",
                "setattr(state.time, '_ms', entry.time_ms)",
            ),
        ],
        [f"{PRODUCERS}.test_no_clock_of_a_wall_lets_a_producer_expire"],
    ),
    Mutant(
        "counts-what-others-led",
        "a leader counts time in which another one led, and counted it, too",
        [
            Edit(
                "dledger_broker.group.expiry:ProducerExpiry.due",
                "leads_term is None or leads_term != self._term",
                "leads_term is None",
            )
        ],
        ["unit.broker.test_expiry.test_the_time_of_another_reign_is_not_counted"],
    ),
    Mutant(
        "counts-all-at-once",
        "time that a leader tells late counts in full, also against writes that came meanwhile",
        [
            Edit(
                "dledger.state.counted_time:CountedTime.count",
                "min(max(elapsed_ms, 0), COUNTED_AT_ONCE_MAX_MS)",
                "elapsed_ms",
            )
        ],
        [f"{PRODUCERS}.test_a_command_counts_no_more_than_a_step"],
    ),
    Mutant(
        "waiting-jump-makes-everybody-odd",
        "while a jump of the majority waits all clocks are off, and a dead leader's place is empty",
        [
            Edit(
                "dledger.raft.leadership.clocks:GroupClock._off_ms",
                "min(offset_ms, offset_ms - self.jump_ms, key=abs)",
                "offset_ms",
            )
        ],
        ["unit.raft.test_clock_scripts.test_d8_a_jump_is_waited_for_across_leaders"],
    ),
)
