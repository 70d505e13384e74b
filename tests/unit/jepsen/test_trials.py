"""Trials of known bugs: a catch counts only beside a sound run that is valid; and their table."""

from typing import Any

import pytest

from jepsen_tests.checkers import CHECKERS
from jepsen_tests.exit_codes import EXIT_FAILED, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID
from jepsen_tests.history.events import NEMESIS, Kind
from jepsen_tests.nemeses import FAULTS
from jepsen_tests.trials.catalogue import TRIALS, Trial
from jepsen_tests.trials.report import caught_in_simulation, strength_table
from jepsen_tests.trials.runner import TrialOutcome, TrialRun, _after, described, exit_code
from jepsen_tests.workloads import WORKLOADS
from tests.mutants.catalogue import by_name
from tests.unit.jepsen.stories import Story

CLASSES = {kind for checker in CHECKERS for kind in checker.kinds}
VALID, UNKNOWN = TrialRun(EXIT_VALID, "valid"), TrialRun(EXIT_UNKNOWN, "unknown")
FAILED = TrialRun(EXIT_FAILED, "harness failed")
CAUGHT = TrialRun(EXIT_INVALID, "invalid", ("C1 lost",), fits=True, after=7.25)
OTHER = TrialRun(EXIT_INVALID, "invalid", ("C18 not-converged",))
OPEN = Trial("dedup-off", "retry", "kill-leader", ("lost",))
HIDDEN = Trial("no-commit-clamp", "log", "flap", ("lost",), hidden="too rare")


def outcome(trial: Trial, bug: TrialRun, sound: TrialRun = VALID) -> TrialOutcome:
    return TrialOutcome(trial, 1, bug, sound)


@pytest.mark.parametrize(
    ("trial", "bug", "sound", "code"),
    [
        (OPEN, CAUGHT, VALID, EXIT_VALID),
        (OPEN, VALID, VALID, EXIT_INVALID),
        (OPEN, UNKNOWN, VALID, EXIT_INVALID),
        (OPEN, OTHER, VALID, EXIT_INVALID),
        (HIDDEN, OTHER, VALID, EXIT_INVALID),
        (OPEN, CAUGHT, CAUGHT, EXIT_INVALID),
        (OPEN, CAUGHT, UNKNOWN, EXIT_INVALID),
        (OPEN, FAILED, VALID, EXIT_FAILED),
        (OPEN, CAUGHT, FAILED, EXIT_FAILED),
        (HIDDEN, VALID, VALID, EXIT_VALID),
        (HIDDEN, CAUGHT, VALID, EXIT_VALID),
        (HIDDEN, VALID, CAUGHT, EXIT_INVALID),
    ],
)
def test_a_catch_counts_beside_a_valid_sound_run(
    trial: Trial, bug: TrialRun, sound: TrialRun, code: int
) -> None:
    assert exit_code([outcome(trial, bug, sound)], 1) == code


def test_trials_that_were_broken_off_prove_nothing() -> None:
    assert exit_code([outcome(OPEN, CAUGHT)], 2) == EXIT_UNKNOWN
    assert exit_code([], 1) == EXIT_UNKNOWN


def test_each_outcome_is_described() -> None:
    assert described(outcome(OPEN, CAUGHT)) == "caught after 7.2 s by C1 lost"
    assert (
        described(outcome(OPEN, CAUGHT, CAUGHT)) == "this proves nothing: the sound run is invalid"
    )
    assert described(outcome(OPEN, VALID)) == "not caught (valid)"
    said = described(outcome(OPEN, OTHER))
    assert said == "not caught: the bug does not cause C18 not-converged"
    assert described(outcome(OPEN, FAILED)) == "the harness failed"


def test_the_table_says_who_catches_the_rest_and_why() -> None:
    text = strength_table(
        [outcome(OPEN, CAUGHT), outcome(HIDDEN, VALID), outcome(OPEN, CAUGHT, UNKNOWN)],
        {"no-commit-clamp": "seed 5"},
    )
    assert "3 known bugs, 1 caught in the black box, the median after 7.2 s." in text
    assert "| dedup-off | retry | kill-leader | 1 | C1 lost | 7.2 |" in text
    assert "| no-commit-clamp | log | flap | 1 | valid | valid | seed 5 | too rare |" in text
    assert "| invalid | unknown | - | the sound run was not valid: this proves nothing |" in text
    other = strength_table([outcome(OPEN, OTHER)], {})
    assert "| invalid | valid | - | the bug does not cause C18 not-converged |" in other
    assert "0 caught in the black box. " in strength_table([outcome(OPEN, VALID)], {})


def test_the_list_names_what_there_is_and_the_simulation_catches_what_is_hidden() -> None:
    simulated = caught_in_simulation()
    assert len({trial.mutant for trial in TRIALS}) == len(TRIALS) >= 20
    assert sum(not trial.hidden for trial in TRIALS) >= 16
    for trial in TRIALS:
        assert trial.mutant in by_name()
        assert trial.workload in WORKLOADS
        assert set(trial.faults.split(",")) <= set(FAULTS)
        assert not trial.hidden or trial.mutant in simulated
        assert trial.shows
        assert set(trial.shows) <= CLASSES


def test_what_is_complete_is_answered_and_what_is_missing_was_looked_for_to_the_end() -> None:
    story = Story()
    story.row(NEMESIS, Kind.OK, "phase", "faults")
    began = story.rows[0].t
    story.begin_send(1, "1-1").wait(100).end(1, [0, 1]).wait(100)
    story.begin_send(2, "2-1").wait(50).end(2, kind=Kind.INFO, err="DEADLINE")
    story.begin_send(3, "3-1").wait(500)
    history = story.history()
    rows = [history.ops[0].i]
    assert _after(history, [finding("wrong-reply", rows)]) == (history.ops[0].ended - began) / 1e9
    for unknown in history.ops[1:]:
        found = finding("duplicate", [*rows, unknown.i, unknown.done or unknown.i])
        assert _after(history, [found]) == (unknown.began - began) / 1e9
    whole = (history.ended - began) / 1e9
    assert _after(history, [finding("lost", rows)]) == whole
    assert _after(history, [finding("not-converged", [])]) == whole
    both = [finding("lost", rows), finding("wrong-reply", rows)]
    assert _after(history, both) < whole


def finding(kind: str, rows: list[int]) -> dict[str, Any]:
    return {"kind": kind, "rows": rows}
