"""Runs each known bug in real members, and beside it the same run without the bug.

A bug counts as caught when its run shows an anomaly that the bug may cause, and the sound run, of
the same workload, faults and seed, is valid. Otherwise the catch proves nothing.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from jepsen_tests.exit_codes import EXIT_FAILED, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID
from jepsen_tests.history.events import NEVER, History
from jepsen_tests.history.faults import phase_of
from jepsen_tests.history.history_file import read_history
from jepsen_tests.processes.child import Children
from jepsen_tests.signals import handled
from jepsen_tests.trials.catalogue import ABSENT, TRIALS, Trial


@dataclass(frozen=True, slots=True)
class TrialRun:
    """The outcome of one run."""

    code: int
    verdict: str
    found: tuple[str, ...] = ()
    """Checkers and names of the anomalies."""
    fits: bool = False
    """At least one of these anomalies is one that the bug may cause."""
    after: float = 0.0
    """Seconds from the beginning of the faults until the first such anomaly was complete."""


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """A bug, and the same run without it."""

    trial: Trial
    seed: int
    bug: TrialRun
    sound: TrialRun

    @property
    def is_caught(self) -> bool:
        """The run with the bug shows a fitting anomaly, and the sound run is valid."""
        is_named = self.bug.code == EXIT_INVALID and self.bug.fits
        return is_named and self.sound.code == EXIT_VALID

    @property
    def is_as_expected(self) -> bool:
        """The sound run is valid, and the bug is caught unless a black box may miss it."""
        may_be_missed = bool(self.trial.hidden) and self.bug.code in (EXIT_VALID, EXIT_UNKNOWN)
        return self.is_caught or (may_be_missed and self.sound.code == EXIT_VALID)


def prove(seed: int, jobs: int, out: Path, only: str, console: Console) -> list[TrialOutcome]:
    """Run the trials, `jobs` runs at once; keep and return the outcome of each that was made."""
    trials = [trial for trial in TRIALS if only in ("", trial.mutant)]
    children = Children()
    with (
        handled(children.hear),
        ThreadPoolExecutor(jobs) as pool,
        Progress(console=console) as progress,
    ):
        task = progress.add_task("bugs", total=len(trials))

        def run(trial: Trial) -> TrialOutcome | None:
            bug = _run(trial, seed, trial.mutant, out / "mutants", children)
            sound = _run(trial, seed, "", out / "mutants", children)
            if bug is None or sound is None:
                return None
            outcome = TrialOutcome(trial, seed, bug, sound)
            console.print(f"{trial.mutant}: {described(outcome)}", markup=False, highlight=False)
            progress.advance(task)
            return outcome

        outcomes = [each for each in pool.map(run, trials) if each is not None]
    out.mkdir(parents=True, exist_ok=True)
    kept = [asdict(each) for each in outcomes]
    (out / "mutants.json").write_text(json.dumps(kept, indent=1) + "\n")
    return outcomes


def described(outcome: TrialOutcome) -> str:
    """Return the outcome of a trial in one line."""
    if outcome.sound.code != EXIT_VALID:
        return f"this proves nothing: the sound run is {outcome.sound.verdict}"
    if outcome.is_caught:
        return f"caught after {outcome.bug.after:.1f} s by {', '.join(outcome.bug.found)}"
    if outcome.bug.code == EXIT_FAILED:
        return "the harness failed"
    if outcome.bug.code == EXIT_INVALID:
        return f"not caught: the bug does not cause {', '.join(outcome.bug.found)}"
    return f"not caught ({outcome.bug.verdict})"


def exit_code(outcomes: Sequence[TrialOutcome], asked: int) -> int:
    """Return 0 if each bug that should be caught is caught and each sound run is valid."""
    if any(each.code == EXIT_FAILED for o in outcomes for each in (o.bug, o.sound)):
        return EXIT_FAILED
    if not all(each.is_as_expected for each in outcomes):
        return EXIT_INVALID
    return EXIT_VALID if len(outcomes) == asked else EXIT_UNKNOWN


def _run(trial: Trial, seed: int, mutant: str, out: Path, children: Children) -> TrialRun | None:
    """Make one run; return None if a signal asked to stop."""
    folder = out / trial.mutant / ("bug" if mutant else "sound")
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.iterdir())
    ran = children.run(
        [
            "run", "--workload", trial.workload, "--nemesis", trial.faults,
            "--time", str(trial.seconds), "--seed", str(seed), "--mutant", mutant,
            "--out", str(folder),
        ]
    )  # fmt: skip
    if ran is None or children.asked:
        return None
    (folder / "said.txt").write_text(ran.said)
    made = [each for each in set(folder.iterdir()) - before if (each / "results.json").exists()]
    if not made or ran.code not in (EXIT_VALID, EXIT_INVALID, EXIT_UNKNOWN):
        return TrialRun(EXIT_FAILED, "harness failed")
    results = json.loads((made[0] / "results.json").read_text())
    wrong = [each for each in results["judgements"] if each["valid"] == "invalid"]
    fitting = [
        finding
        for judgement in wrong for finding in judgement["findings"]
        if finding["kind"] in trial.shows
    ]  # fmt: skip
    after = _after(read_history(made[0] / "history.jsonl"), fitting) if fitting else 0.0
    return TrialRun(
        ran.code, str(results["verdict"]), tuple(map(_named, wrong)), bool(fitting), after
    )


def _named(judgement: Mapping[str, Any]) -> str:
    kinds = sorted({str(finding["kind"]) for finding in judgement["findings"]})
    return f"{judgement['checker']} {'/'.join(kinds)}"


def _after(history: History, findings: Iterable[Mapping[str, Any]]) -> float:
    """Return after how many seconds the history showed the first of these anomalies completely.

    An operation shows an anomaly when it ends, or when it begins if it never ends. That something
    is missing is known only at the end of the history.
    """
    times = {row.i: row.t for row in history.faults}
    for op in history.ops:
        times[op.i] = times[op.done] = op.began if op.ended == NEVER else op.ended
    faults = phase_of(history, "faults")
    assert faults is not None, "a run with a verdict began its faults"
    complete = (
        history.ended
        if finding["kind"] in ABSENT or not finding["rows"]
        else max(times[row] for row in finding["rows"])
        for finding in findings
    )
    return max(0.0, (min(complete) - faults.t) / 1e9)
