"""What the suites hold, what their rounds do together, and what becomes of what is missed."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rich.console import Console

from jepsen_tests.backends import BACKENDS
from jepsen_tests.backends.surface import TroubleKind
from jepsen_tests.backends.troubles.links import LinkProxies
from jepsen_tests.exit_codes import EXIT_FAILED, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID
from jepsen_tests.nemeses import FAULTS, LOSING
from jepsen_tests.nemeses.fault import CANNOT
from jepsen_tests.processes.child import Children
from jepsen_tests.run.schedule import draw_schedule
from jepsen_tests.suite import runner
from jepsen_tests.suite.coverage import (
    NO_RESULTS,
    NO_TIME,
    Ran,
    coverage_by_backend,
    coverage_table,
    made_up,
)
from jepsen_tests.suite.runner import COVERAGE, FinishedRun, _clear, repeated, run_suite, suite_code
from jepsen_tests.suite.suites import NIGHTLY, ROUNDS, SMOKE, SuiteEntry, planned
from jepsen_tests.workloads import WORKLOADS

NOT_BY_PROXIES = {"loss"}
"""What the process backend cannot do to its links."""


def test_smoke_has_every_fault_that_the_process_backend_can_do() -> None:
    assert TroubleKind.LOSS not in LinkProxies.kinds
    assert {fault for entry in SMOKE for fault in entry.faults} == set(FAULTS) - NOT_BY_PROXIES


def test_each_suite_has_runs_with_tls_and_without() -> None:
    for suite in (SMOKE, NIGHTLY):
        assert {entry.secure for entry in suite} == {True, False}
        assert all(BACKENDS[entry.backend].can_be_secure for entry in suite if entry.secure)


def test_every_entry_names_what_there_is() -> None:
    for entry in (*SMOKE, *NIGHTLY):
        assert entry.workload in WORKLOADS
        assert set(entry.faults) <= set(FAULTS)
        assert not (WORKLOADS[entry.workload]().trims and LOSING & set(entry.faults)), entry


def test_both_suites_use_every_workload() -> None:
    assert {entry.workload for entry in SMOKE} == set(WORKLOADS)
    assert {entry.workload for entry in NIGHTLY} == set(WORKLOADS)


NEVER = f"{CANNOT}netns, disks: no root"
NETNS = SuiteEntry("fifo", ("kill", "loss", "wipe"), 60, backend="netns", shares=3)
SMALL = SuiteEntry("offsets", ("kill", "ring"), 60)
LARGE = SuiteEntry("log", ("kill", "ring"), 60, nodes=5)


def results(*done: str, **skipped: str) -> dict[str, Any]:
    """What a run leaves, as far as it matters here."""
    return {"faults": dict.fromkeys(done, 1), "skipped": skipped}


@pytest.mark.parametrize("seed", range(10))
def test_a_nights_rounds_do_every_fault_of_each_backend_and_have_the_time(seed: int) -> None:
    runs = planned(NIGHTLY, ROUNDS, seed)
    for backend in {entry.backend for entry in NIGHTLY}:
        mine = {fault for run in runs if run.backend == backend for fault in run.faults}
        assert mine == set(FAULTS), backend
    for number, run in enumerate(runs):
        kinds = [FAULTS[fault].kind for fault in run.faults]
        assert not draw_schedule(kinds, run.seconds, Random(seed + number)).left_out, run


@pytest.mark.parametrize("seed", range(10))
def test_each_entry_does_all_its_faults_within_a_night(seed: int) -> None:
    runs = planned(NIGHTLY, ROUNDS, seed)
    for number, entry in enumerate(NIGHTLY):
        shares = [run.faults for run in runs[number :: len(NIGHTLY)]]
        assert {fault for share in shares for fault in share} == set(entry.faults)
        assert sum(map(len, shares)) == len(entry.faults) * ROUNDS / entry.shares


def test_smoke_leaves_nothing_for_later_rounds() -> None:
    runs = planned(SMOKE, 1, 1)
    assert [sorted(run.faults) for run in runs] == [sorted(entry.faults) for entry in SMOKE]
    assert not any(each.unplanned for each in coverage_by_backend(SMOKE, [(e, {}) for e in SMOKE]))


def test_fewer_rounds_say_what_has_no_turn_and_may_be_valid() -> None:
    (run,) = planned([NETNS], 1, seed=1)
    (found,) = coverage_by_backend([NETNS], [(run, results(*run.faults))])
    assert sorted((*found.done, *found.unplanned)) == sorted(NETNS.faults)
    assert len(found.unplanned) == 2
    assert suite_code([EXIT_VALID], [found]) == EXIT_VALID


def test_what_one_run_left_out_another_one_has_done() -> None:
    never = f"{CANNOT}process: a ring needs 5"
    ran: list[Ran] = [(SMALL, results("kill", ring=never)), (LARGE, results("ring"))]
    (found,) = coverage_by_backend([SMALL, LARGE], ran)
    assert found.done == {"kill": 1, "ring": 1}
    assert not found.missed
    assert not found.cannot
    assert suite_code([EXIT_VALID, EXIT_VALID], [found]) == EXIT_VALID


def test_what_cannot_be_done_is_no_ones_fault() -> None:
    (found,) = coverage_by_backend([NETNS], [(NETNS, results("kill", "loss", wipe=NEVER))])
    assert found.cannot == {"wipe": NEVER}
    assert not found.missed
    assert not made_up([found], [(NETNS, results("kill", "loss", wipe=NEVER))])


def test_what_no_run_did_is_made_up_for_by_one_that_could_have() -> None:
    never = f"{CANNOT}process: a ring needs 5"
    ran: list[Ran] = [(SMALL, results("kill", ring=never)), (LARGE, results("kill", ring="nobody"))]
    found = coverage_by_backend([SMALL, LARGE], ran)
    assert found[0].missed == {"ring": "nobody"}
    assert suite_code([EXIT_VALID, EXIT_VALID], found) == EXIT_UNKNOWN
    (more,) = made_up(found, ran)
    assert (more.workload, more.nodes, more.faults) == ("log", 5, ("ring",))
    kinds = [FAULTS[fault].kind for fault in more.faults]
    assert not draw_schedule(kinds, more.seconds, Random(1)).left_out
    after = coverage_by_backend([SMALL, LARGE], [*ran, (more, results("ring"))])
    assert suite_code([EXIT_VALID] * 3, after) == EXIT_VALID


def test_who_says_that_it_cannot_be_done_speaks_for_those_that_came_not_so_far() -> None:
    ran: list[Ran] = [
        (NETNS, results("kill", "loss", wipe="nobody leads")),
        (NETNS, results(wipe=NEVER)),
        (NETNS, results("kill")),
    ]
    for order in (ran, ran[::-1]):
        (found,) = coverage_by_backend([NETNS], order)
        assert found.cannot == {"wipe": NEVER}
        assert not made_up([found], order)


def test_no_time_is_missed_and_a_run_without_results_did_nothing() -> None:
    assert coverage_by_backend([SMALL], [(SMALL, results("kill"))])[0].missed == {"ring": NO_TIME}
    nothing = coverage_by_backend([SMALL], [(SMALL, {})])
    assert nothing[0].missed == dict.fromkeys(SMALL.faults, NO_RESULTS)
    assert not made_up(nothing, [(SMALL, {})]), "it would fail again"


def test_the_worst_code_counts() -> None:
    assert suite_code([EXIT_VALID, EXIT_UNKNOWN], []) == EXIT_UNKNOWN
    assert suite_code([EXIT_UNKNOWN, EXIT_INVALID], []) == EXIT_INVALID
    assert suite_code([EXIT_INVALID, EXIT_FAILED], []) == EXIT_FAILED


def test_the_table_tells_each_fault_and_why_not() -> None:
    ran: list[Ran] = [(NETNS, results("kill", wipe=NEVER))]
    lines = coverage_table(coverage_by_backend([NETNS], ran))
    assert lines[-1] == f"| netns | 1: kill 1 | wipe ({NEVER}) | loss ({NO_TIME}) | - |"


def test_a_run_that_was_incomplete_is_not_made_again_as_it_was() -> None:
    done = FinishedRun(SMALL, 1, EXIT_VALID, "", results("kill"))
    assert repeated([done], lambda _: pytest.fail("in vain")) == [(done,)]


Became = Callable[[SuiteEntry, int, Path, Children], FinishedRun]


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Became], int]:
    """Run a suite of one entry; what becomes of each run is told by the argument."""

    def run(became: Became) -> int:
        monkeypatch.setattr(runner, "SUITES", {"tiny": (SMALL,)})
        monkeypatch.setattr(runner, "_run", became)
        return run_suite("tiny", 1, 1, 1, tmp_path, Console(quiet=True))

    return run


def test_a_run_that_makes_up_for_others_and_told_nothing_is_made_once_more(
    suite: Callable[[Became], int],
) -> None:
    folders: list[str] = []

    def became(entry: SuiteEntry, seed: int, out: Path, _: Children) -> FinishedRun:
        folders.append(out.name)
        code = EXIT_UNKNOWN if out.name == "02-more" else EXIT_VALID
        return FinishedRun(entry, seed, code, "", results("kill" if out.name == "01" else "ring"))

    assert suite(became) == EXIT_VALID
    assert folders == ["01", "02-more", "02-more-again"]


def test_a_suite_that_was_asked_to_end_when_all_had_ended_is_not_valid(
    suite: Callable[[Became], int],
) -> None:
    def became(entry: SuiteEntry, seed: int, _: Path, children: Children) -> FinishedRun:
        children.asked += 1  # after this run, which knows nothing of it
        return FinishedRun(entry, seed, EXIT_VALID, "", results(*entry.faults))

    assert suite(became) == EXIT_UNKNOWN


def test_runs_of_an_earlier_suite_are_taken_away_and_nothing_else(tmp_path: Path) -> None:
    for name in ("01", "01-again", "08-more", "08-more-again", "112", "notes", "1", "01-mine"):
        (tmp_path / name).mkdir()
    (tmp_path / COVERAGE).write_text("old")
    _clear(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["01-mine", "1", "notes"]
