"""Group commit that waits for those who come back; virtual callers, virtual time."""

import heapq
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random

import pytest

from dledger.raft.commit.gathering import GATHER_SECONDS, Gathering
from dledger.raft.commit.trial import (
    HALF_SECONDS,
    HALF_TIME,
    KEPT_SECONDS_MAX,
    LEFT_SECONDS_MAX,
    PAUSE_SECONDS,
    REST_SECONDS_MIN,
    Trial,
)
from tests.sim.member.convinced import Convinced

FLIGHT = 0.003
Think = Callable[[], float]


class Hasty(Gathering):
    """Never waits: what it is compared with."""

    def is_complete(self, waiting: int) -> bool:
        return True


class Model:
    """Callers, each of whom thinks when answered; one entry under way at a time.

    `receive`: seconds of the leader's processor for each call. On a busy machine an entry needs
    that processor, too, for its whole flight. `ramp`: seconds until the last caller has come.
    """

    def __init__(
        self,
        gathering: Gathering,
        thinks: Sequence[Think],
        *,
        busy: bool,
        receive: float = 0.0,
        ramp: float = 0.001,
    ) -> None:
        self.gathering = gathering
        self.thinks = thinks
        self.receive = receive
        self.busy = busy
        self.now = self.processor_free = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.made = 0
        self.waiting: list[tuple[int, float]] = []
        self.under_way: list[tuple[int, float]] = []
        self.answered = [0] * len(thinks)
        self.seconds_waited = 0.0
        self.entries: list[int] = []
        for caller in range(len(thinks)):
            self.at(ramp * caller / len(thinks), self.call, caller)

    def at(self, when: float, step: Callable[..., None], *arguments: object) -> None:
        self.made += 1
        heapq.heappush(self.events, (when, self.made, lambda: step(*arguments)))

    def run(self, seconds: float) -> "Model":
        until = self.now + seconds
        while self.events and self.events[0][0] <= until:
            self.now, _, step = heapq.heappop(self.events)
            step()
        return self

    def use_processor(self, seconds: float) -> float:
        self.processor_free = max(self.now, self.processor_free) + seconds
        return self.processor_free

    def call(self, caller: int) -> None:
        self.at(self.use_processor(self.receive), self.taken, caller, self.now)

    def taken(self, caller: int, called_at: float) -> None:
        self.waiting.append((caller, called_at))
        self.cut()

    def cut(self) -> None:
        gathering = self.gathering
        if self.under_way or not self.waiting or not gathering.is_complete(len(self.waiting)):
            return
        self.under_way, self.waiting = self.waiting, []
        self.entries.append(len(self.under_way))
        size = len(self.under_way)
        gathering.cut(len(self.entries), size, size, self.now)
        self.at(self.use_processor(FLIGHT) if self.busy else self.now + FLIGHT, self.commit)

    def commit(self) -> None:
        done, self.under_way = self.under_way, []
        self.gathering.committed(len(self.entries), len(self.waiting), self.now)
        for caller, called_at in done:
            self.answered[caller] += 1
            self.seconds_waited += self.now - called_at
            self.at(self.now + self.thinks[caller](), self.call, caller)
        if self.gathering.deadline < math.inf:
            self.at(self.gathering.deadline, self.tick)
        self.cut()

    def tick(self) -> None:
        self.gathering.tick(self.now)
        self.cut()

    @property
    def latency(self) -> float:
        return self.seconds_waited / sum(self.answered)


def quick() -> float:
    return 0.0


def thinking(seconds: float) -> Think:
    return lambda: seconds


def by_clock(rate: float, random: Random) -> Think:
    """About as many calls per second, whenever the last one was answered."""
    return lambda: random.expovariate(rate)


def test_a_lone_caller_never_waits() -> None:
    model = Model(Gathering(), [quick], busy=True)
    for _ in range(1000):
        model.run(0.01)
        assert model.gathering.deadline == math.inf
        assert not model.gathering._trial.waits, "nor is it tried"
    assert set(model.entries) == {1}


@pytest.mark.parametrize(("count", "gain"), [(8, 1.4), (24, 1.25)])
def test_where_processors_are_scarce_all_come_back_into_one_entry(count: int, gain: float) -> None:
    callers = [quick] * count
    waited = Model(Gathering(), callers, receive=0.000_25, busy=True).run(30)
    hasty = Model(Hasty(), callers, receive=0.000_25, busy=True).run(30)
    assert sum(waited.answered) > gain * sum(hasty.answered), "it carries far more"
    assert sorted(waited.entries)[len(waited.entries) // 2] > 0.9 * count
    assert max(waited.answered) - min(waited.answered) <= 0.05 * max(waited.answered), "all alike"


def _mixes() -> dict[str, list[Think]]:
    random = Random(5)
    return {
        "one quick, one slow": [quick, thinking(0.015)],
        "four quick, one slow": [quick] * 4 + [thinking(0.012)],
        "sixteen quick, one slow": [quick] * 16 + [thinking(0.012)],
        "all slow": [thinking(0.008)] * 10,
        "one quick, one by the clock": [quick, by_clock(100, random)],
        "ten by the clock": [by_clock(20, random) for _ in range(10)],
        "two hundred by the clock": [by_clock(10, random) for _ in range(200)],
    }


@pytest.mark.parametrize("mix", list(_mixes()))
def test_where_they_are_not_scarce_nobody_loses_by_it(mix: str) -> None:
    waited = Model(Gathering(), _mixes()[mix], busy=False).run(120)
    hasty = Model(Hasty(), _mixes()[mix], busy=False).run(120)
    assert sum(waited.answered) > 0.95 * sum(hasty.answered)
    assert waited.latency < 1.05 * hasty.latency


def test_one_who_leaves_is_waited_for_no_longer_than_the_bound() -> None:
    model = Model(Gathering(), [quick] * 8, receive=0.000_25, busy=True).run(4)
    assert model.gathering._trial.waits
    model.thinks = [quick] * 7 + [thinking(1e9)]
    model.run(KEPT_SECONDS_MAX)
    before, entries = sum(model.answered), len(model.entries)
    model.run(1)
    assert sum(model.answered) - before > 0.8 * 7 * (len(model.entries) - entries)
    assert model.entries[-1] == 7, "the seven are all that is expected"


def test_waiting_is_left_when_the_load_has_changed() -> None:
    model = Model(Gathering(), [quick] * 16, receive=0.000_25, busy=True).run(4)
    assert model.gathering._trial.waits
    model.thinks = [quick, thinking(0.015)] + [thinking(1e9)] * 14
    model.busy, model.receive = False, 0.0
    model.run(KEPT_SECONDS_MAX + 3)
    before = model.answered[0]
    model.run(10)
    assert model.answered[0] - before > 0.9 * 10 / FLIGHT / 2


def test_who_was_answered_is_not_expected_twice() -> None:
    """Entries that overlap: of two the first is committed, and its callers are back already."""
    gathering = Gathering(Convinced())
    gathering.cut(1, 6, 6, 0.0)
    gathering.cut(2, 2, 2, 0.0)
    gathering.committed(1, 0, 0.001)
    assert gathering.is_complete(1), "one is under way still: it is not for the wait to decide"
    gathering.committed(2, 6, 0.002)
    assert not gathering.is_complete(7)
    assert gathering.is_complete(8)
    assert gathering.deadline == 0.002 + GATHER_SECONDS


def test_the_wait_ends_and_leaves_no_timer() -> None:
    gathering = Gathering(Convinced())
    gathering.cut(1, 2, 2, 0.0)
    gathering.committed(1, 0, 0.001)
    gathering.tick(0.001 + GATHER_SECONDS / 2)
    assert not gathering.is_complete(1), "it is not too late yet"
    gathering.tick(0.001 + GATHER_SECONDS)
    assert gathering.is_complete(1)
    assert gathering.deadline == math.inf


def test_who_lost_leadership_expects_nobody() -> None:
    gathering = Gathering(Convinced())
    gathering.cut(1, 4, 4, 0.0)
    gathering.committed(1, 4, 0.001)
    assert not gathering.is_complete(7)
    gathering.forget()
    assert gathering.is_complete(1)
    assert gathering.deadline == math.inf
    gathering.cut(1, 1, 1, 0.003)
    gathering.committed(1, 0, 0.004)
    assert gathering.is_complete(1), "nor those of entries that were cut then"


def test_trials_in_vain_become_rare_and_never_end() -> None:
    trial = Trial()
    began: list[float] = []
    waits = False
    for step in range(400_000):
        trial.entry(10, step * 0.003, alone=False)  # no more with than without
        if trial.waits and not waits:
            began.append(step * 0.003)
        waits = trial.waits
    gaps = [after - before for before, after in pairwise(began)]
    trial_seconds = HALF_TIME * HALF_SECONDS
    assert REST_SECONDS_MIN < gaps[0] < REST_SECONDS_MIN + 1.1 * trial_seconds
    assert LEFT_SECONDS_MAX < gaps[-1] < LEFT_SECONDS_MAX + 1.1 * trial_seconds


def test_a_verdict_that_is_confirmed_holds_longer_and_not_for_ever() -> None:
    """While waiting pays it is tried against not waiting again and again, ever more rarely."""
    trial = Trial()
    now = 0.0
    rests: list[float] = []
    left_since = waits_since = 0.0
    while now < 100:
        now += 0.02 if trial.waits else 0.01
        waits = trial.waits
        trial.entry(40 if waits else 10, now, alone=False)
        if waits and not trial.waits:
            rests.append(now - waits_since)
            left_since = now
        elif trial.waits and not waits:
            waits_since = now
            assert not left_since or now - left_since < 3 * HALF_SECONDS, "only to compare"
    kept = [rest for rest in rests if rest > REST_SECONDS_MIN]
    assert kept[0] < REST_SECONDS_MIN + 1
    assert KEPT_SECONDS_MAX < kept[-1] < KEPT_SECONDS_MAX + 1


def bursts(on: float, off: float, length: float, seconds: float) -> list[float]:
    """Return the times of entries, `length` apart, of a load that comes and goes."""
    times: list[float] = []
    now = 0.0
    while now < seconds:
        times += [now + step * length for step in range(int(on / length))]
        now += on + off
    return times


@pytest.mark.parametrize(("on", "off"), [(0.3, 0.2), (0.5, 5.0)])
def test_bursts_too_short_for_a_trial_are_left_alone(on: float, off: float) -> None:
    trial = Trial()
    waited = 0
    times = bursts(on, off, 0.003, 1_000)
    for at in times:
        trial.entry(10, at, alone=False)
        waited += trial.waits
    assert waited < 0.08 * len(times)


def test_what_was_kept_does_not_outlast_the_load() -> None:
    """Bursts after a steady load, too short to compare anything: waiting is left, to be safe."""
    trial = Trial()
    now = 0.0
    while now < 60:
        now += 0.02 if trial.waits else 0.01
        trial.entry(40 if trial.waits else 10, now, alone=False)
    times = bursts(0.3, 0.2, 0.003, 60)
    waited = 0
    for time in times:
        trial.entry(10, now + time, alone=False)
        waited += trial.waits and time > KEPT_SECONDS_MAX + 2
    assert waited < 0.1 * len(times)


def test_a_pause_begins_a_pair_anew() -> None:
    trial = Trial()
    now = 0.0
    while not trial.waits:
        now += 0.003
        trial.entry(10, now, alone=False)
    trial.entry(10, now + PAUSE_SECONDS + 0.001, alone=False)
    assert not trial.waits, "its first half is without waiting"


def test_a_half_in_which_no_time_passed_is_not_compared() -> None:
    """Two entries at one reading of the clock: payloads per second would divide by zero."""
    trial, began = Trial(), 0.0
    while not trial._runs:
        began += 0.05
        trial.entry(4, began, alone=False)
    for after in (0.08, 0.16, 0.21, 0.21, 0.25, 0.33, 0.41, 0.46, 0.46, 0.5, 0.55):
        trial.entry(4, began + after, alone=False)
    assert [half.seconds > 0 for half in trial._halves] == [True, True]


def offer(
    trial: Trial, seconds: float, *, gain: float, length: float = 0.01, stall_every: float = 1e9
) -> float:
    """Entries twice as long while it waits, with `gain` times the payloads; the time it waited."""
    now = trial._last_at if trial._last_at > 0 else 0.0
    end, stall_at = now + seconds, now + stall_every
    waited = 0.0
    while now < end:
        took = length * (2 if trial.waits else 1)
        if now >= stall_at:
            took += 0.12
            stall_at += stall_every
        now += took
        waited += took if trial.waits else 0.0
        trial.entry(round(100 * (2 * gain if trial.waits else 1)), now, alone=False)
    return waited / seconds


def test_what_is_worth_it_is_kept_and_what_is_not_is_left() -> None:
    assert offer(Trial(), 60, gain=1.3) > 0.75
    assert offer(Trial(), 60, gain=1.07) < 0.15


def test_slow_entries_are_tried_too() -> None:
    """On a slow disk waiting pays most; a half of two entries would say nothing."""
    assert offer(Trial(), 120, gain=2.0, length=0.045) > 0.6


@pytest.mark.parametrize("stall_every", [1.0, 1.5, 3.0])
def test_stalls_do_not_keep_a_gain_from_being_found(stall_every: float) -> None:
    assert offer(Trial(), 120, gain=2.0, stall_every=stall_every) > 0.6


def test_a_load_after_sparse_calls_is_tried_soon() -> None:
    """Calls that are not steady are no load to be tried, and leave nothing behind."""
    trial = Trial()
    for second in range(200):
        trial.entry(2, float(second), alone=False)
        assert not trial.waits
    assert offer(trial, 10, gain=2.0) > 0.6


def test_a_verdict_that_changes_is_new_again() -> None:
    trial = Trial()
    offer(trial, 300, gain=0.9)
    assert trial._rest_seconds == LEFT_SECONDS_MAX
    while not trial._verdict:
        offer(trial, 1, gain=2.0)
    assert trial._rest_seconds == REST_SECONDS_MIN


def test_the_first_entries_of_a_half_do_not_count() -> None:
    """Those who were kept waiting come all at once: that is not what a half carries."""
    trial = Trial()
    now, waited, since = 0.0, 0, 0
    waits = False
    for _ in range(20_000):
        now += 0.01
        since = 0 if trial.waits and not waits else since + 1
        waits = trial.waits
        waited += waits
        trial.entry(60 if waits and since < 3 else 10, now, alone=False)
    assert waited < 0.1 * 20_000


def test_a_trial_that_pauses_keep_from_its_end_is_over() -> None:
    trial = Trial()
    steady = bursts(0.6, 0.2, 0.003, 0.1)
    times = [*steady, *(0.8 + time for time in bursts(0.3, 0.2, 0.003, 60))]
    waited = 0
    for time in times:
        trial.entry(10, time, alone=False)
        waited += trial.waits
    assert 0 < waited < 0.1 * len(times)


def test_callers_who_are_few_and_come_at_random_are_no_evidence() -> None:
    """Ten calls a half: more with waiting than without is luck as often as not."""
    random = Random(3)
    trial = Trial()
    now, waited = 0.0, 0.0
    while now < 2_000:
        gap = random.expovariate(50)
        waited += gap if trial.waits else 0.0
        now += gap
        trial.entry(1, now, alone=False)
    assert waited < 0.05 * now


@pytest.mark.parametrize("at_once", [12, 40, 65])
def test_entries_of_one_moment_say_nothing_alone(at_once: int) -> None:
    """Batches and commands in turn become an entry each, all in one go."""
    trial = Trial()
    waited = 0
    for step in range(20_000):
        for _ in range(at_once):
            trial.entry(1, 0.005 * step, alone=False)
        waited += trial.waits
    assert waited < 0.05 * 20_000


@pytest.mark.parametrize("ramp", [0.2, 0.5])
@pytest.mark.parametrize("mix", ["all slow", "two hundred by the clock", "sixteen quick, one slow"])
def test_callers_who_join_one_by_one_are_not_taken_for_a_gain(mix: str, ramp: float) -> None:
    waited, hasty = (
        Model(each, _mixes()[mix], busy=False, ramp=ramp).run(10) for each in (Gathering(), Hasty())
    )
    assert sum(waited.answered) > 0.93 * sum(hasty.answered)
    assert waited.latency < 1.25 * hasty.latency
