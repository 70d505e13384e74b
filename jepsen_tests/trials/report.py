"""The table of the trials of known bugs, as Markdown: a part of `RESULTS.md`."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from jepsen_tests.exit_codes import EXIT_INVALID, EXIT_VALID
from jepsen_tests.suite.results import markdown_table
from jepsen_tests.trials.runner import TrialOutcome

CAUGHT: Final = Path(__file__).parents[2] / "tests" / "mutants" / "caught.json"
"""Which script or seed of the simulation catches each known bug."""


def caught_in_simulation(path: Path = CAUGHT) -> dict[str, str]:
    """Return by bug the script or seed of the simulation that catches it."""
    return {each["mutant"]: each["by"] for each in json.loads(path.read_text())}


def strength_table(outcomes: Sequence[TrialOutcome], simulated: Mapping[str, str]) -> str:
    """Return a table of the bugs that were caught, and one of the others with the reason."""
    caught = [each for each in outcomes if each.is_caught]
    missed = [each for each in outcomes if not each.is_caught]
    lines = [f"{len(outcomes)} known bugs, {len(caught)} caught in the black box"]
    if caught:
        median = statistics.median(each.bug.after for each in caught)
        lines[0] += f", the median after {median:.1f} s"
    lines[0] += ". The same run without the bug is valid unless the table says otherwise."
    lines += ["", *markdown_table(
        ("bug", "workload", "faults", "seed", "caught by", "after s"),
        ((o.trial.mutant, o.trial.workload, o.trial.faults, o.seed, ", ".join(o.bug.found),
          f"{o.bug.after:.1f}") for o in caught),
    )]  # fmt: skip
    if missed:
        lines += ["", "Not caught:", "", *markdown_table(
            ("bug", "workload", "faults", "seed", "with it", "without", "the simulation", "why"),
            ((o.trial.mutant, o.trial.workload, o.trial.faults, o.seed, o.bug.verdict,
              o.sound.verdict, simulated.get(o.trial.mutant, "-"), _why(o)) for o in missed),
        )]  # fmt: skip
    return "\n".join(lines) + "\n"


def _why(outcome: TrialOutcome) -> str:
    if outcome.sound.code != EXIT_VALID:
        return "the sound run was not valid: this proves nothing"
    if outcome.bug.code == EXIT_INVALID:
        return f"the bug does not cause {', '.join(outcome.bug.found)}"
    return outcome.trial.hidden or "a checker should have caught the bug"
