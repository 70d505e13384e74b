"""`make sim SEEDS=n [SEED=x]` and `make mutants`: many seeds, one seed, or every known bug.

    python -m tests.sim.run sim --seeds 1000 --jobs 2 [--first 0] [--json]
    python -m tests.sim.run sim --seed 42 [--lines 80]        one seed; a failure shows its trace
    python -m tests.sim.run mutants [--only name] [--seeds 60]

The whole trace of a seed that failed is kept in `out/sim-failures/`.

A run fails when a seed breaks an invariant or does not converge, or when the seeds together did
less than the floors below: a simulation that hardly does anything proves nothing.
"""

import argparse
import json
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.mutants import alone
from tests.sim.faults.nemesis import FAULTS
from tests.sim.invariants.violation import Violation
from tests.sim.world.plan import draw_plan
from tests.sim.world.probes import IDLE, UNDER_LOAD
from tests.sim.world.world import Report, World

FLOOR_SEEDS: Final = 1_000
FLOORS: Final = {
    "leader changes": 3_000,
    "truncated suffixes": 500,
    "acknowledged batches": 200_000,
}
FLOOR_PER_FAULT: Final = 100
EFFECTS: Final = (
    "network lost",
    "network repeated",
    "network reordered",
    "network cut",
    "network held",
    "network broken",
    "power cuts that took something",
    "crashes in recovery",
    "storage failures",
    "state failures",
    "state saves refused",
    "refused DISK_FULL",
    "event disk_hangs",
    "damage found",
    "sectors found unreadable",
    "event quarantine_ended",
    "event forgotten",
    "batches fenced",
    "batches repeated",
    "batches too old to know",
    "commits refused as behind",
    "long polls woken",
    "trims held",
    "key index merges",
    "looked up by key",
    "looked up by id",
    "looked up by time",
    "looked up by offset",
    *(f"probe {name}" for name in (*UNDER_LOAD, *IDLE)),
)
"""What faults and clients must have brought about, not only attempted: each as often as a fault."""
"""Floors are for FLOOR_SEEDS seeds; smaller runs are held to their share, from 100 seeds on."""
FLOORS_FROM: Final = 100
FAILURES: Final = Path("out/sim-failures")


@dataclass(frozen=True, slots=True)
class Result:
    """One seed's outcome; `failure` is empty when it passed."""

    seed: int
    plan: str
    failure: str
    lines: Sequence[str]
    report: Report | None
    cpu_seconds: float


def run_seed(seed: int, lines: int = 60) -> Result:
    """Run one seed; a violation, or any exception, is its failure."""
    plan = draw_plan(seed)
    began = time.process_time()
    world = World(plan)
    failure, report = "", None
    try:
        report = world.run()
    except Violation as violation:
        failure = str(violation)
    except Exception:  # a crash of product or harness is a failed seed, with its evidence
        failure = traceback.format_exc()
    last = list(world.lines)[-lines:] if failure else []
    faults = f"; faults {', '.join(world.nemesis.kinds)}"
    return Result(
        seed, plan.describe() + faults, failure, last, report, time.process_time() - began
    )


def show_failure(console: Console, result: Result) -> None:
    """Print what is needed to replay and to understand a failed seed."""
    console.print(f"\n[red]seed {result.seed} failed[/red]", highlight=False)
    console.print(result.plan, highlight=False, markup=False)
    console.print(result.failure, highlight=False, markup=False)
    for line in result.lines:
        console.print(f"    {line}", highlight=False, markup=False, overflow="ignore")
    console.print(f"replay: make sim SEED={result.seed}", highlight=False)
    FAILURES.mkdir(parents=True, exist_ok=True)
    kept = FAILURES / f"seed-{result.seed}.txt"
    kept.write_text("\n".join([result.plan, result.failure, *result.lines, ""]))


def run_many(seeds: Sequence[int], jobs: int, console: Console) -> list[Result]:
    """Run seeds in processes of their own, with a progress bar."""
    results: list[Result] = []
    columns = (TextColumn("sim"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    context = multiprocessing.get_context("fork")
    with Progress(*columns, console=console) as progress, context.Pool(jobs) as pool:
        task = progress.add_task("sim", total=len(seeds))
        for result in pool.imap_unordered(run_seed, seeds, chunksize=1):
            results.append(result)
            progress.advance(task)
            if result.failure:
                show_failure(console, result)
    return sorted(results, key=lambda result: result.seed)


def totals_of(results: Sequence[Result]) -> tuple[Counter[str], Counter[str]]:
    """Return summed counts and summed faults."""
    counts: Counter[str] = Counter()
    faults: Counter[str] = Counter(dict.fromkeys(FAULTS, 0))
    for result in results:
        if result.report is not None:
            counts.update(result.report.counts)
            faults.update(result.report.faults)
    return counts, faults


def missed_floors(results: Sequence[Result]) -> list[str]:
    """Return a sentence for each floor that the run did not reach."""
    if len(results) < FLOORS_FROM:
        return []
    counts, faults = totals_of(results)
    share = min(1.0, len(results) / FLOOR_SEEDS)
    missed = [
        f"{name}: {counts[name]}, at least {int(floor * share)}"
        for name, floor in FLOORS.items()
        if counts[name] < int(floor * share)
    ]
    missed += [
        f"fault {kind}: {faults[kind]} times, at least {int(FLOOR_PER_FAULT * share)}"
        for kind in FAULTS
        if faults[kind] < int(FLOOR_PER_FAULT * share)
    ]
    missed += [
        f"{name}: {counts[name]}, at least {int(FLOOR_PER_FAULT * share)}"
        for name in EFFECTS
        if counts[name] < int(FLOOR_PER_FAULT * share)
    ]
    return missed


def show_summary(console: Console, results: Sequence[Result], seconds: float) -> None:
    """Print the tables that `make sim` ends with."""
    counts, faults = totals_of(results)
    passed = [result.report for result in results if result.report is not None]
    table = Table(title=f"{len(results)} seeds in {seconds:.0f} s", show_header=False)
    table.add_row("violations or crashes", str(sum(bool(result.failure) for result in results)))
    table.add_row("converged", str(len(passed)))
    if passed:
        slowest = max(report.converged_after for report in passed)
        table.add_row("slowest convergence, virtual s", f"{slowest:.1f}")
        table.add_row("virtual seconds", f"{sum(r.virtual_seconds for r in passed):.0f}")
        table.add_row("steps", f"{sum(r.steps for r in passed):,}")
    cpu = [result.cpu_seconds for result in results]
    table.add_row(
        "CPU seconds per seed, mean / worst", f"{sum(cpu) / len(cpu):.1f} / {max(cpu):.1f}"
    )
    for name in (*FLOORS, *sorted(set(counts) - set(FLOORS))):
        if not name.startswith(("event ", "fail ")):
            table.add_row(name, f"{counts[name]:,}")
    console.print(table)
    done = Table(title="faults")
    done.add_column("kind")
    done.add_column("times", justify="right")
    for kind in sorted(faults):
        done.add_row(kind, f"{faults[kind]:,}")
    console.print(done)


def simulate(arguments: argparse.Namespace) -> int:
    """Run `sim`."""
    console = Console(stderr=arguments.json, soft_wrap=True)
    if arguments.seed is not None:
        result = run_seed(arguments.seed, arguments.lines)
        console.print(result.plan, highlight=False, markup=False)
        if result.failure:
            show_failure(console, result)
            return 1
        assert result.report is not None
        console.print_json(json.dumps(asdict(result.report)))
        return 0
    began = time.monotonic()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    results = run_many(seeds, arguments.jobs, console)
    show_summary(console, results, time.monotonic() - began)
    missed = missed_floors(results)
    for sentence in missed:
        console.print(f"[red]below the floor[/red] {sentence}")
    failed = [result.seed for result in results if result.failure]
    for seed in failed:
        console.print(f"failed: make sim SEED={seed}")
    if arguments.json:
        counts, faults = totals_of(results)
        summary = {"seeds": len(results), "failed": failed, "missed_floors": missed}
        print(json.dumps(summary | {"counts": dict(counts), "faults": dict(faults)}))
    return 1 if failed or missed else 0


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="tests.sim.run")
    commands = parser.add_subparsers(required=True, dest="command")
    sim = commands.add_parser("sim", help="run seeds")
    sim.add_argument("--seeds", type=int, default=100)
    sim.add_argument("--first", type=int, default=0)
    sim.add_argument("--seed", type=int, help="replay one seed")
    sim.add_argument("--jobs", type=int, default=2)
    sim.add_argument("--lines", type=int, default=60, help="trace lines shown of a failed seed")
    sim.add_argument("--json", action="store_true")
    mutants = commands.add_parser("mutants", help="every known bug must be caught")
    mutants.add_argument("--only", default="", help="one mutant by name")
    mutants.add_argument("--seeds", type=int, default=60, help="seeds tried per mutant")
    mutants.add_argument(
        "--alone-seeds", type=int, help=f"tried without any script; {alone.SEEDS}, with --only 0"
    )
    mutants.add_argument(
        "--alone-seconds", type=float, default=alone.CPU_SECONDS, help="per mutant"
    )
    mutants.add_argument("--jobs", type=int, default=2)
    mutants.add_argument("--json", action="store_true")
    return parser.parse_args(given)


def main() -> int:
    """Run the command line."""
    arguments = parse_arguments()
    if arguments.command == "sim":
        return simulate(arguments)
    from tests.mutants.hunt import hunt

    return hunt(arguments)


if __name__ == "__main__":
    sys.exit(main())
