"""The schedule of faults: what a seed draws."""

from random import Random

import pytest

from jepsen_tests.nemeses import FAULTS
from jepsen_tests.run.schedule import FaultKind, draw_schedule

KINDS = [FaultKind(name, f"handle-{name[0]}", (1.0, 2.0)) for name in ("a1", "a2", "b1", "c1")]


def test_the_same_seed_draws_the_same() -> None:
    assert draw_schedule(KINDS, 300, Random(1)) == draw_schedule(KINDS, 300, Random(1))
    assert draw_schedule(KINDS, 300, Random(1)) != draw_schedule(KINDS, 300, Random(2))


@pytest.mark.parametrize("seed", range(20))
def test_each_fault_comes_alone_first_then_they_are_mixed(seed: int) -> None:
    schedule = draw_schedule(KINDS, 300, Random(seed))
    alone, mixed = schedule.phases[: len(KINDS)], schedule.phases[len(KINDS) :]
    assert sorted(phase.faults for phase in alone) == [(kind.name,) for kind in KINDS]
    assert any(len(phase.faults) > 1 for phase in mixed)
    assert not schedule.left_out
    ends = [phase.at + phase.seconds for phase in schedule.phases]
    assert schedule.late is not None
    assert ends[-1] <= schedule.late.at
    assert schedule.late.at + schedule.late.seconds == 300
    assert 1 <= len(schedule.late.faults) <= 2
    assert all(end < phase.at for end, phase in zip(ends, schedule.phases[1:], strict=False))


@pytest.mark.parametrize("seed", range(20))
def test_one_handle_is_not_taken_hold_of_twice(seed: int) -> None:
    handles = {kind.name: kind.handle for kind in KINDS}
    schedule = draw_schedule(KINDS, 300, Random(seed))
    for phase in (*schedule.phases, schedule.late):
        assert phase is not None
        held = [handles[name] for name in phase.faults]
        assert len(held) == len(set(held))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_to_be_alone_is_never_mixed(seed: int) -> None:
    alone = FaultKind("d1", "handle-d", (1.0, 2.0), is_alone=True)
    schedule = draw_schedule([*KINDS, alone], 300, Random(seed))
    phases = [phase.faults for phase in (*schedule.phases, schedule.late) if phase is not None]
    assert sum("d1" in faults for faults in phases) > 1
    assert all(faults == ("d1",) for faults in phases if "d1" in faults)


def test_what_finds_no_time_is_named() -> None:
    schedule = draw_schedule(KINDS, 8, Random(1))
    began = {name for phase in schedule.phases for name in phase.faults}
    assert began | set(schedule.left_out) == {kind.name for kind in KINDS}
    assert schedule.left_out
    assert schedule.late is None, "those that come alone come first"


def test_no_faults_is_a_plan_too() -> None:
    assert draw_schedule([], 10, Random(1)).phases == ()


def test_faults_have_a_name_of_their_own_and_say_what_they_need() -> None:
    for name, fault in FAULTS.items():
        assert fault.name == name
        assert fault.handles
        assert 0 < fault.seconds[0] <= fault.seconds[1]
