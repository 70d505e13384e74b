"""Runs a suite: each run in a process of its own, then one verdict and the coverage.

A run with the verdict unknown is repeated once, alone, when the other runs are over. Both attempts
are shown, and the second counts. A run that is invalid, or in which the harness failed, is never
repeated. When no run did a fault that its backend can do, one more run does the missing faults. If
this run leaves a fault out too, the suite is not valid.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from jepsen_tests.errors import unknown_name
from jepsen_tests.exit_codes import EXIT_FAILED, EXIT_UNKNOWN, EXIT_VALID, WORST_FIRST
from jepsen_tests.processes.child import Children
from jepsen_tests.signals import handled
from jepsen_tests.suite.coverage import (
    BackendCoverage,
    Ran,
    coverage_by_backend,
    coverage_table,
    made_up,
    missed,
)
from jepsen_tests.suite.suites import SUITES, SuiteEntry, planned

COVERAGE: Final = "coverage.md"
"""In a suite's folder: which faults its runs did, by backend."""


def run_suite(name: str, seed: int, rounds: int, jobs: int, out: Path, console: Console) -> int:
    """Run a suite `rounds` times, `jobs` runs at a time; return the worst exit code.

    A signal ends the running runs in order, and no other run begins: the suite is then never valid.
    """
    if name not in SUITES:
        raise unknown_name("suite", name, SUITES)
    folder = out / name
    _clear(folder)
    entries = planned(SUITES[name], rounds, seed)
    children = Children()
    with (
        handled(children.hear),
        ThreadPoolExecutor(jobs) as pool,
        Progress(console=console) as progress,
    ):
        task = progress.add_task(name, total=len(entries))

        def run(entry: SuiteEntry, number: int, ending: str = "") -> FinishedRun:
            done = _run(entry, seed + number, folder / f"{number + 1:02}{ending}", children)
            done.show(console)
            progress.advance(task)
            return done

        first = list(pool.map(run, entries, range(len(entries))))
        outcomes = repeated(first, lambda number: run(entries[number], number, "-again"))
        more = [] if children.asked else made_up(_covered(name, outcomes), _ran(outcomes))
        progress.update(task, total=len(entries) + len(more))

        def make_up(number: int, ending: str = "") -> FinishedRun:
            return run(more[number], len(entries) + number, f"-more{ending}")

        made = [make_up(number) for number in range(len(more))]
        outcomes += repeated(made, lambda number: make_up(number, "-again"))
    found = _covered(name, outcomes)
    console.print(_table(name, outcomes))
    table = "\n".join(coverage_table(found)) + "\n"
    console.print(table, markup=False, highlight=False)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / COVERAGE).write_text(table)
    codes = [attempts[-1].code for attempts in outcomes]
    # A signal after the last run counts, too: the runs for missing faults were not made.
    return suite_code([*codes, EXIT_UNKNOWN if children.asked else EXIT_VALID], found)


def suite_code(codes: Iterable[int], found: Iterable[BackendCoverage]) -> int:
    """Return the worst code; never "valid" if a fault that a backend can do was missed."""
    all_codes = {*codes, EXIT_UNKNOWN if any(each.missed for each in found) else EXIT_VALID}
    return next(code for code in WORST_FIRST if code in all_codes)


def repeated(
    first: Sequence["FinishedRun"], again: Callable[[int], "FinishedRun"]
) -> list[tuple["FinishedRun", ...]]:
    """Return the attempts at each entry. Unknown ones are repeated once, one after the other."""
    return [
        (done, again(number)) if done.code == EXIT_UNKNOWN and not done.was_broken_off else (done,)
        for number, done in enumerate(first)
    ]


def _clear(folder: Path) -> None:
    """Remove the runs of an earlier suite, which would look like runs of this one."""
    for each in folder.glob("*"):
        if re.fullmatch(r"\d\d+(-more)?(-again)?", each.name):
            shutil.rmtree(each)
    (folder / COVERAGE).unlink(missing_ok=True)


def _ran(outcomes: Iterable[Sequence["FinishedRun"]]) -> list[Ran]:
    """Return the attempts that count: the last of each entry."""
    return [(attempts[-1].entry, attempts[-1].results) for attempts in outcomes]


def _covered(name: str, outcomes: Iterable[Sequence["FinishedRun"]]) -> list[BackendCoverage]:
    return coverage_by_backend(SUITES[name], _ran(outcomes))


def _table(name: str, outcomes: Iterable[tuple["FinishedRun", ...]]) -> Table:
    table = Table("workload", "backend", "seed", "verdict", "operations", "ok", "fail", "info",
                  "faults", "not done", title=f"suite {name}")  # fmt: skip
    for attempts in outcomes:
        for number, done in enumerate(attempts):
            table.add_row(*map(Text, done.row()), style="dim" if number + 1 < len(attempts) else "")
    return table


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that ended, or that a signal kept from beginning."""

    entry: SuiteEntry
    seed: int
    code: int
    said: str
    results: Mapping[str, Any]
    was_broken_off: bool = False
    """A signal ended the run, or kept it from beginning."""

    @property
    def verdict(self) -> str:
        """The verdict of the run in a word or two."""
        if self.code == EXIT_FAILED:
            return "harness failed"
        verdict = str(self.results.get("verdict", "unknown"))
        return f"{verdict}, broken off" if self.was_broken_off else verdict

    def row(self) -> list[str]:
        """Return the run as a line of the table."""
        entry, results = self.entry, self.results
        where = f"{entry.backend}, {entry.nodes}{', TLS' * entry.secure}"
        faults = results.get("faults", {})
        return [
            entry.workload, where, str(self.seed), self.verdict,
            *(str(results.get(key, "")) for key in ("operations", "ok", "fail", "info")),
            ", ".join(f"{fault} {times}" for fault, times in faults.items()),
            ", ".join(sorted(set(entry.faults) - set(faults))),
        ]  # fmt: skip

    def show(self, console: Console) -> None:
        """Print the verdict of the run, and everything that it printed if it is not valid."""
        if self.code != EXIT_VALID:
            console.print(self.said, markup=False, highlight=False)
        entry = self.entry
        console.print(f"{entry.workload} on {entry.backend}, seed {self.seed}: {self.verdict}")
        for fault, why in () if self.was_broken_off else missed(entry, self.results).items():
            console.print(f"{fault} was not done: {why}", style="yellow", markup=False)


def _run(entry: SuiteEntry, seed: int, out: Path, children: Children) -> FinishedRun:
    ran = children.run(
        [
            "run", "--workload", entry.workload, "--nemesis", ",".join(entry.faults),
            "--time", str(entry.seconds), "--seed", str(seed), "--backend", entry.backend,
            "--nodes", str(entry.nodes), "--out", str(out), *["--secure"] * entry.secure,
        ]
    )  # fmt: skip
    if ran is None:
        return FinishedRun(entry, seed, EXIT_UNKNOWN, "", {}, was_broken_off=True)
    found = list(out.glob("*/results.json"))
    if ran.code not in WORST_FIRST or (not found and ran.code != EXIT_UNKNOWN):
        return FinishedRun(entry, seed, EXIT_FAILED, ran.said, {})
    results: dict[str, Any] = json.loads(found[0].read_text()) if found else {}
    return FinishedRun(entry, seed, ran.code, ran.said, results, was_broken_off=children.asked > 0)
