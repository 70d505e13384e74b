"""Suites: several runs, each a process of its own, and one verdict.

Owns the closed lists of runs. `smoke` meets every fault of the process backend once, in minutes;
`nightly` mixes all of them on all backends for forty minutes, three times with other seeds. What a
run was to do and did not is named. A run that told nothing (unknown, or incomplete) is repeated
once, alone, when the others are over; both are shown, and the second counts. One that is invalid,
or in which the harness failed, never is.
"""

import json
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

from jepsen_tests.child import Children
from jepsen_tests.endings import EXIT_FAILED, EXIT_UNKNOWN, EXIT_VALID, WORST_FIRST
from jepsen_tests.errors import unknown_name
from jepsen_tests.nemeses import FAULTS, LOSING
from jepsen_tests.nemeses.fault import CANNOT


@dataclass(frozen=True, slots=True)
class Entry:
    """One run of a suite."""

    workload: str
    faults: tuple[str, ...]
    seconds: int
    backend: str = "process"
    nodes: int = 3


def _all_but(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(FAULTS) - set(names)))


SMOKE: Final = (
    Entry("log", ("kill", "crash-loop", "pause", "isolate", "delay", "slices"), 50),
    Entry("fifo", ("kill-leader", "pause-leaders", "isolate-leader", "flap", "transfer"), 45),
    Entry("retry", ("kill-all", "partition", "one-way", "bandwidth", "failing-sync", "reset"), 50),
    Entry("offsets", ("pause-majority", "partition-all", "bridge", "hung-sync", "slow-sync"), 45),
    Entry("metadata", ("kill-majority", "heal-at-timeout", "kill-while-cut", "clock"), 40),
    Entry("retention", ("power-cut", "power-cut-all", "full-disk", "next-quorum", "restart"), 45),
    Entry("retry", ("power-cut-before-sync",), 12),
    Entry("log", ("wipe", "bit-flips", "truncation", "deletion", "stale-blocks"), 55),
    Entry("fifo", ("wipe-cut-off", "starve", "next-quorum-wiped"), 40),
    Entry("log", ("ring", "split-vote"), 22, nodes=5),
    Entry("offsets", ("kill-while-slow", "cut-while-slow", "late-first", "leader-unheard"), 50),
    Entry("fifo", ("split-vote", "clients-cut", "client-reset", "power-cut-but-one"), 45),
)  # fmt: skip
NIGHTLY: Final = (
    Entry("log", _all_but(()), 720, nodes=5),
    Entry("fifo", _all_but(()), 480, backend="netns"),
    Entry("log", _all_but(()), 300, backend="compose"),
    Entry("retry", _all_but(()), 300, backend="toxiproxy"),
    Entry("offsets", _all_but(()), 240),
    Entry("metadata", _all_but(()), 180),
    Entry("retention", _all_but(LOSING), 180),
)
SUITES: Final[Mapping[str, tuple[Entry, ...]]] = {"smoke": SMOKE, "nightly": NIGHTLY}


def run_suite(name: str, seed: int, rounds: int, jobs: int, out: Path, console: Console) -> int:
    """Run a suite so many times, `jobs` runs at once; print a table; return the worst exit code.

    A signal ends the runs that go on in order, and no other one begins: never valid.
    """
    if name not in SUITES:
        raise unknown_name("suite", name, SUITES)
    entries = SUITES[name] * rounds
    children = Children()
    with (
        children.listening(),
        ThreadPoolExecutor(jobs) as pool,
        Progress(console=console) as progress,
    ):
        task = progress.add_task(name, total=len(entries))

        def run(number: int, folder: str) -> Done:
            done = _run(entries[number], seed + number, out / name / folder, children)
            done.show(console)
            progress.advance(task)
            return done

        folders = [f"{number + 1:02}" for number in range(len(entries))]
        first = list(pool.map(run, range(len(entries)), folders))
        outcomes = repeated(first, lambda number: run(number, f"{number + 1:02}-again"))
    console.print(_table(name, outcomes))
    return next(code for code in WORST_FIRST if code in {last.code for *_, last in outcomes})


def repeated(first: Sequence["Done"], again: Callable[[int], "Done"]) -> list[tuple["Done", ...]]:
    """Return the attempts at each entry: those that told nothing are made once more, in turn."""
    return [
        (done, again(number)) if done.code == EXIT_UNKNOWN and not done.was_broken_off else (done,)
        for number, done in enumerate(first)
    ]


def _table(name: str, outcomes: Iterable[tuple["Done", ...]]) -> Table:
    table = Table("workload", "backend", "seed", "verdict", "operations", "ok", "fail", "info",
                  "faults", "not done", title=f"suite {name}")  # fmt: skip
    for attempts in outcomes:
        for number, done in enumerate(attempts):
            table.add_row(*map(Text, done.row()), style="dim" if number + 1 < len(attempts) else "")
    return table


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one run."""

    entry: Entry
    seed: int
    code: int
    said: str
    results: Mapping[str, Any]
    was_broken_off: bool = False
    """Before it ended, or began; by a signal."""

    @property
    def verdict(self) -> str:
        """What is said of it in a word or two."""
        if self.code == EXIT_FAILED:
            return "harness failed"
        verdict = str(self.results.get("verdict", "unknown"))
        if self.was_broken_off:
            return f"{verdict}, broken off"
        if self.code == EXIT_UNKNOWN and missed(self.entry, self.results):
            return f"{verdict}, incomplete"
        return verdict

    def row(self) -> list[str]:
        """Return it as a line of the table."""
        entry, results = self.entry, self.results
        faults = results.get("faults", {})
        return [
            entry.workload, f"{entry.backend}, {entry.nodes}", str(self.seed), self.verdict,
            *(str(results.get(key, "")) for key in ("operations", "ok", "fail", "info")),
            ", ".join(f"{fault} {times}" for fault, times in faults.items()),
            ", ".join(sorted(set(entry.faults) - set(faults))),
        ]  # fmt: skip

    def show(self, console: Console) -> None:
        """Say how it ended; all that it said when that was not well."""
        if self.code != EXIT_VALID:
            console.print(self.said, markup=False, highlight=False)
        entry = self.entry
        console.print(f"{entry.workload} on {entry.backend}, seed {self.seed}: {self.verdict}")
        for fault, why in () if self.was_broken_off else missed(entry, self.results).items():
            console.print(f"{fault} was not done: {why}", style="yellow", markup=False)


def missed(entry: Entry, results: Mapping[str, Any]) -> dict[str, str]:
    """Return which faults were not done although they could have been, and why."""
    done, skipped = results.get("faults", {}), results.get("skipped", {})
    why = {name: skipped.get(name, "no time") for name in entry.faults if name not in done}
    return {name: each for name, each in why.items() if not each.startswith(CANNOT)}


def _run(entry: Entry, seed: int, out: Path, children: Children) -> Done:
    shutil.rmtree(out, ignore_errors=True)
    ran = children.run(
        [
            "run", "--workload", entry.workload, "--nemesis", ",".join(entry.faults),
            "--time", str(entry.seconds), "--seed", str(seed), "--backend", entry.backend,
            "--nodes", str(entry.nodes), "--out", str(out),
        ]
    )  # fmt: skip
    if ran is None:
        return Done(entry, seed, EXIT_UNKNOWN, "", {}, was_broken_off=True)
    found = list(out.glob("*/results.json"))
    if ran.code not in WORST_FIRST or (not found and ran.code != EXIT_UNKNOWN):
        return Done(entry, seed, EXIT_FAILED, ran.said, {})
    results: dict[str, Any] = json.loads(found[0].read_text()) if found else {}
    # A run that left out what it was to do has shown nothing of it.
    is_incomplete = ran.code == EXIT_VALID and missed(entry, results)
    code = EXIT_UNKNOWN if is_incomplete else ran.code
    return Done(entry, seed, code, ran.said, results, was_broken_off=children.asked > 0)
