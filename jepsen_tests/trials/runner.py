"""Tries known bugs: each is put into the members, and beside it the same run is made without it.

Owns running them and what became of each. A bug counts as caught when the run with it shows an
anomaly that may be its doing, and the sound one, of the same workload, faults and seed, is valid:
else the catch proves nothing.
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
from jepsen_tests.trials.catalogue import ABSENT, TRIALS, Trial


@dataclass(frozen=True, slots=True)
class TrialRun:
    """What came of one run."""

    code: int
    verdict: str
    found: tuple[str, ...] = ()
    """Checker and classes of what was named."""
    fits: bool = False
    """One at least of these classes is one that the trial is to show."""
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
        """What it does was named, and nothing is when it is not there."""
        is_named = self.bug.code == EXIT_INVALID and self.bug.fits
        return is_named and self.sound.code == EXIT_VALID

    @property
    def is_as_expected(self) -> bool:
        """The sound run is valid, and the bug is caught unless it is one that may stay hidden."""
        may_be_missed = bool(self.trial.hidden) and self.bug.code in (EXIT_VALID, EXIT_UNKNOWN)
        return self.is_caught or (may_be_missed and self.sound.code == EXIT_VALID)


def prove(seed: int, jobs: int, out: Path, only: str, console: Console) -> list[TrialOutcome]:
    """Run the trials, `jobs` runs at once; keep and return the outcome of each that was made."""
    trials = [trial for trial in TRIALS if only in ("", trial.mutant)]
    children = Children()
    with (
        children.listening(),
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
    """Return what is to be said of it in a line."""
    if outcome.sound.code != EXIT_VALID:
        return f"nothing is proven: the sound run is {outcome.sound.verdict}"
    if outcome.is_caught:
        return f"caught after {outcome.bug.after:.1f} s by {', '.join(outcome.bug.found)}"
    if outcome.bug.code == EXIT_FAILED:
        return "the harness failed"
    if outcome.bug.code == EXIT_INVALID:
        return f"not caught: {', '.join(outcome.bug.found)} is not what it does"
    return f"not caught ({outcome.bug.verdict})"


def exit_code(outcomes: Sequence[TrialOutcome], asked: int) -> int:
    """Return 0 when all that should be are caught and every sound run is valid."""
    if any(each.code == EXIT_FAILED for o in outcomes for each in (o.bug, o.sound)):
        return EXIT_FAILED
    if not all(each.is_as_expected for each in outcomes):
        return EXIT_INVALID
    return EXIT_VALID if len(outcomes) == asked else EXIT_UNKNOWN


def _run(trial: Trial, seed: int, mutant: str, out: Path, children: Children) -> TrialRun | None:
    """Make one run; None when we were asked to end."""
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
    """Return when the first anomaly was complete: all that shows it had been answered.

    What has no answer shows it as soon as it begins. What shows that something is missing is every
    read to the end of the history.
    """
    times = {row.i: row.t for row in history.faults}
    for op in history.ops:
        times[op.i] = times[op.done] = op.began if op.ended == NEVER else op.ended
    faults = phase_of(history, "faults")
    assert faults is not None, "what has a verdict came so far"
    complete = (
        history.ended
        if finding["kind"] in ABSENT or not finding["rows"]
        else max(times[row] for row in finding["rows"])
        for finding in findings
    )
    return max(0.0, (min(complete) - faults.t) / 1e9)
