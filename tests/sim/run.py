"""`make sim SEEDS=n [SEED=x]` and `make mutants`: many seeds, one seed, or every known bug.

    python -m tests.sim.run sim --seeds 1000 --jobs 2 [--first 0] [--json]
    python -m tests.sim.run sim --seed 42 [--story] [--until 12.4] [--keep 3,7]     one seed
    python -m tests.sim.run shrink --seed 42 [--runs 60]    a smaller part of it that fails the same
    python -m tests.sim.run mutants [--only name] [--seeds 60]

The story of a seed that failed is kept in `out/sim-failures/`, as a page, with its trace beside it.
docs/simulation.md says how to read the page.

A run fails when a seed breaks an invariant or does not converge, or when the seeds together did
less than the floors below: a simulation that hardly does anything proves nothing.
"""

import argparse
import contextlib
import json
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.mutants import alone
from tests.mutants.rewrite import applied
from tests.sim.faults.nemesis import FAULTS
from tests.sim.invariants.violation import Violation
from tests.sim.story.page import page_of
from tests.sim.story.replay import WHOLE, Replay, add_options, from_arguments
from tests.sim.story.shrink import RUNS_MAX, Ran, ran, shrink
from tests.sim.world.plan import draw_plan
from tests.sim.world.probes import IDLE, UNDER_LOAD
from tests.sim.world.world import TRACE_LINES_KEPT, Report, Stopped, World

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
    "damage mended",
    "sectors found unreadable",
    "event quarantine_ended",
    "event forgotten",
    "batches fenced",
    "batches repeated",
    "batches too old to know",
    "commits refused as behind",
    "long polls woken",
    "trims held",
    "records expired",
    "key index merges",
    "looked up by key",
    "looked up by id",
    "looked up by time",
    "looked up by offset",
    "group consumers: kill",
    "group consumers: close",
    "group consumers: pause",
    "group commits by hand",
    "records handled",
    "failures stored",
    "retries delivered",
    "dead letters",
    "dead letters sent again",
    "timers fired",
    "scheduled messages",
    "delayed records recalled",
    "resets",
    "commits fenced",
    "claims LEASED",
    "uses of consumer groups",
    "consumer groups expired",
    *(f"probe {name}" for name in (*UNDER_LOAD, *IDLE)),
)
"""What faults and clients must have brought about, not only attempted: each as often as a fault."""
"""Floors are for FLOOR_SEEDS seeds; smaller runs are held to their share, from 100 seeds on."""
FLOORS_FROM: Final = 100
LOST_SECONDS: Final = 600.0
"""No seed takes so long: its process was killed, as by a library that aborts."""
SHOWN_MAX: Final = 10
SEEDS_PER_PROCESS: Final = 20
"""Then a new process runs the next ones: what worlds have cached does not add up."""
FAILURES: Final = Path("out/sim-failures")
SHOWN_LINES: Final = 20
"""Of the trace of a seed that failed; its page shows more."""


@dataclass(frozen=True, slots=True)
class Result:
    """One seed's outcome; `failure` is empty when it passed."""

    seed: int
    plan: str
    failure: str
    lines: Sequence[str]
    """The end of the trace, of a seed that failed."""
    report: Report | None
    cpu_seconds: float
    part: Ran
    replay: Replay = WHOLE
    broken: str = ""
    """The name of the property that is violated, or of the exception that was raised."""
    page: str = ""
    """The story, of a seed that failed or whose story was asked for."""


def run_seed(
    seed: int, lines: int = TRACE_LINES_KEPT, replay: Replay = WHOLE, *, story: bool = False
) -> Result:
    """Run one seed, or a part of it; a violation, or any exception, is its failure."""
    plan = draw_plan(seed)
    began = time.process_time()
    failure, broken, report = "", "", None
    with put_back(replay.bug):
        world = World(plan, replay=replay)
        try:
            report = world.run()
        except Stopped:
            pass
        except Violation as violation:
            failure, broken = str(violation), violation.broken.name
        except Exception as error:  # a crash of product or harness is a failed seed
            failure, broken = traceback.format_exc(), type(error).__name__
    spent = time.process_time() - began
    last = list(world.lines)[-lines:] if failure and lines else []
    page = ""
    if story or (failure and lines):
        page = page_of(world, broken=broken, failure=failure, command=replay.command(seed))
    said = f"{plan.describe()}; faults {', '.join(world.nemesis.kinds)}"
    return Result(seed, said, failure, last, report, spent, ran(world), replay, broken, page)


def put_back(bug: str) -> contextlib.AbstractContextManager[None]:
    """Return a context in which the product has a known bug, or nothing for an empty name."""
    if not bug:
        return contextlib.nullcontext()
    from tests.mutants.catalogue import by_name

    return applied(*by_name()[bug].edits)


def show_failure(console: Console, result: Result) -> None:
    """Print what is needed to replay and to understand a failed seed."""
    console.print(f"\n[red]seed {result.seed} failed[/red]", highlight=False)
    console.print(result.plan, highlight=False, markup=False)
    console.print(result.failure, highlight=False, markup=False)
    for line in result.lines[-SHOWN_LINES:]:
        console.print(f"    {line}", highlight=False, markup=False, overflow="ignore")
    FAILURES.mkdir(parents=True, exist_ok=True)
    page = FAILURES / f"seed-{result.seed}.md"
    page.write_text(result.page)
    page.with_suffix(".trace.txt").write_text("\n".join([*result.lines, ""]))
    console.print(f"story: {page}", highlight=False)
    replay, shrinking = (
        result.replay.command(result.seed),
        result.replay.command(result.seed, "shrink"),
    )
    console.print(f"replay: .venv/bin/{replay} --story", highlight=False)
    console.print(f"shrink: .venv/bin/{shrinking}", highlight=False)


def run_many(seeds: Sequence[int], jobs: int, console: Console) -> list[Result]:
    """Run seeds in processes of their own, with a progress bar."""
    results: list[Result] = []
    columns = (TextColumn("sim"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    context = multiprocessing.get_context("fork")
    with (
        Progress(*columns, console=console) as progress,
        context.Pool(jobs, maxtasksperchild=SEEDS_PER_PROCESS) as pool,
    ):
        task = progress.add_task("sim", total=len(seeds))
        found = pool.imap_unordered(run_seed, seeds, chunksize=1)
        for _ in seeds:
            try:
                result = found.next(timeout=LOST_SECONDS)
            except multiprocessing.TimeoutError:
                lost = sorted({*seeds} - {each.seed for each in results})[:SHOWN_MAX]
                raise SystemExit(f"a process died, and its seed with it: one of {lost}") from None
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


def simulate_one(arguments: argparse.Namespace, console: Console) -> int:
    """Run one seed, or a part of it. A replay that is to stop tells its story."""
    replay = from_arguments(arguments)
    story = arguments.story or replay.until is not None
    result = run_seed(arguments.seed, replay=replay, story=story)
    if story:
        print(result.page)
    else:
        console.print(result.plan, highlight=False, markup=False)
    if result.failure:
        show_failure(console, result)
        return 1
    if result.report is not None and not story:
        console.print_json(json.dumps(asdict(result.report)))
    return 0


def simulate(arguments: argparse.Namespace) -> int:
    """Run `sim`."""
    console = Console(stderr=arguments.json, soft_wrap=True)
    if arguments.seed is not None:
        return simulate_one(arguments, console)
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


def show_shrunk(arguments: argparse.Namespace) -> int:
    """Run `shrink`; print the story of the smallest part that was found, and its command."""
    console = Console(stderr=True, soft_wrap=True)

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False)

    replay = from_arguments(arguments)
    found = shrink(partial(run_seed, arguments.seed, 0), replay, arguments.runs, say)
    if found is None:
        say(f"seed {arguments.seed} does not fail: nothing to shrink")
        return 2
    print(found.result.page)
    say(f"{found.result.broken} after {found.runs} runs, with {found.describe()}")
    say(found.replay.command(arguments.seed))
    return 0


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="tests.sim.run")
    commands = parser.add_subparsers(required=True, dest="command")
    sim = commands.add_parser("sim", help="run seeds")
    sim.add_argument("--seeds", type=int, default=100)
    sim.add_argument("--first", type=int, default=0)
    sim.add_argument("--seed", type=int, help="replay one seed")
    sim.add_argument("--jobs", type=int, default=2)
    sim.add_argument("--json", action="store_true")
    sim.add_argument("--story", action="store_true", help="with --seed: print what happened")
    add_options(sim)
    shrink = commands.add_parser("shrink", help="find a smaller part of a seed that fails the same")
    shrink.add_argument("--seed", type=int, required=True)
    shrink.add_argument("--runs", type=int, default=RUNS_MAX, help="at most so many runs")
    add_options(shrink)
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
    if arguments.command == "shrink":
        return show_shrunk(arguments)
    from tests.mutants.hunt import hunt

    return hunt(arguments)


if __name__ == "__main__":
    sys.exit(main())
