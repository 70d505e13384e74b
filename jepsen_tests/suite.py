"""Suites: several runs one after the other, each a process of its own, and one verdict.

Owns the closed lists of runs. `smoke` meets every fault of the process backend once, in minutes;
`nightly` mixes all of them on all backends for forty minutes, three times with other seeds. What a
run was to do and did not is named.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from jepsen_tests.errors import BadRequest
from jepsen_tests.nemeses import FAULTS, LOSING
from jepsen_tests.nemeses.fault import CANNOT

EXIT_VALID, EXIT_INVALID, EXIT_UNKNOWN, EXIT_FAILED = range(4)
_WORST_FIRST: Final = (EXIT_FAILED, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID)


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
    Entry("log", ("wipe", "bit-flips", "truncation", "deletion", "stale-blocks"), 55),
    Entry("fifo", ("wipe-cut-off", "starve"), 25),
    Entry("log", ("ring",), 12, nodes=5),
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


def run_suite(name: str, seed: int, rounds: int, out: Path, console: Console) -> int:
    """Run a suite so many times; print a table; return the worst exit code."""
    if name not in SUITES:
        raise BadRequest(f"no suite {name!r}; there are {', '.join(SUITES)}")
    table = Table("workload", "backend", "seed", "verdict", "operations", "ok", "fail", "info",
                  "faults", "not done", title=f"suite {name}")  # fmt: skip
    codes: list[int] = []
    for number, entry in enumerate(SUITES[name] * rounds):
        code, results = _run(entry, seed + number, out / name)
        missed = _missed(entry, results)
        if code == EXIT_VALID and missed:
            code = EXIT_UNKNOWN
        codes.append(code)
        table.add_row(
            entry.workload, f"{entry.backend}, {entry.nodes}", str(seed + number),
            str(results.get("verdict", "harness failed")),
            *(str(results.get(key, "")) for key in ("operations", "ok", "fail", "info")),
            ", ".join(f"{fault} {times}" for fault, times in results.get("faults", {}).items()),
            ", ".join(sorted(set(entry.faults) - set(results.get("faults", {})))),
        )  # fmt: skip
        for fault, why in missed.items():
            console.print(f"{fault} was not done: {why}", style="yellow", markup=False)
    console.print(table)
    return next(code for code in _WORST_FIRST if code in codes)


def _missed(entry: Entry, results: Mapping[str, Any]) -> dict[str, str]:
    """Return which faults were not done although they could have been, and why."""
    done, skipped = results.get("faults", {}), results.get("skipped", {})
    why = {name: skipped.get(name, "no time") for name in entry.faults if name not in done}
    return {name: each for name, each in why.items() if not each.startswith(CANNOT)}


def _run(entry: Entry, seed: int, out: Path) -> tuple[int, dict[str, Any]]:
    out.mkdir(parents=True, exist_ok=True)
    before = set(out.iterdir())
    code = subprocess.run(
        [
            sys.executable, "-m", "jepsen_tests", "run", "--workload", entry.workload,
            "--nemesis", ",".join(entry.faults), "--time", str(entry.seconds),
            "--seed", str(seed), "--backend", entry.backend, "--nodes", str(entry.nodes),
            "--out", str(out),
        ],
        check=False,
    ).returncode  # fmt: skip
    made = [folder / "results.json" for folder in set(out.iterdir()) - before]
    found = [path for path in made if path.exists()]
    if code not in _WORST_FIRST or not found:
        return EXIT_FAILED, {}
    return code, json.loads(found[0].read_text())
