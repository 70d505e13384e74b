"""Catching every mutant: its scripts first, then seeds. Prints and keeps the table.

Owns: running a mutant in a process of its own, deciding whether it was caught, the table
`caught.json` (mutant -> script or seed, and what it said; what seeds alone find, see `alone.py`).
A mutant that survives fails the run. A share of seeds alone below `SHARE_MIN` is told in red: it
hangs on CPU time, so a slow machine must not fail for it. A seed counts as a catch only when it
passes without the bug; a process that never has a bug finds that out.
"""

import argparse
import gc
import importlib
import json
import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.mutants.alone import (
    SEEDS,
    SHARE_MIN,
    SIMULATED,
    Alone,
    CleanSeeds,
    RunSeed,
    proved,
    search,
    share_of,
    shares,
)
from tests.mutants.catalogue import MUTANTS, by_name
from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import StaleMutant, applied
from tests.sim.world.world import close_all

TABLE: Final = Path(__file__).with_name("caught.json")
SAID_MAX: Final = 200
"""Characters kept of what a script or seed said."""
NO_CATCH: Final = (
    "AttributeError",
    "ImportError",
    "NameError",
    "SyntaxError",
    "TypeError",
    "UnboundLocalError",
)
"""What a mutant raises that is badly written, not a bug that somebody noticed."""


class BrokenMutant(AssertionError):
    """The text of a mutant does not run."""


@dataclass(frozen=True, slots=True)
class Catch:
    """How a mutant was caught; `by` is empty when it was not."""

    mutant: str
    by: str
    """A script's name, or "seed n"."""
    said: str
    cpu_seconds: float
    alone: Alone | None = None
    """None outside of what is simulated."""
    left_out: tuple[str, ...] = ()
    """A sentence about each seed that fails without the bug, too."""


def run_script(name: str) -> None:
    """Run one scripted scenario: "module.function" of tests/scenarios, parameters after a colon.

    Or "unit.folder.module.function", a test of its own that needs nothing but parameters.
    """
    _, _, argument = name.partition(":")
    try:
        load_script(name)(*([json.loads(argument)] if argument else []))
    finally:
        close_all()


def load_script(name: str) -> Callable[..., None]:
    """Return a script's function.

    The garbage collector stands still while the module is read. CPython 3.11 fails with "AST
    constructor recursion depth mismatch" when a finalizer parses in the middle of a parse, and
    the tasks that an earlier scenario left do, when their traceback is printed.
    """
    module, _, function = name.partition(":")[0].rpartition(".")
    home = "tests" if module.startswith(("unit.", "fuzz.")) else "tests.scenarios"
    gc.disable()
    try:
        script: Callable[..., None] = getattr(importlib.import_module(f"{home}.{module}"), function)
    finally:
        gc.enable()
    return script


@dataclass(frozen=True, slots=True)
class HuntBounds:
    """What is spent on one mutant."""

    seeds: int
    """When no script catches it."""
    alone_seeds: int = 0
    alone_seconds: float = 0.0


class CleanProcess(BaseManager):
    """A process that never has a bug."""


CleanProcess.register("seeds", CleanSeeds)


def run_as_it_is(seed: int) -> str:
    """Run a seed with the product as it is now; return the last line of its failure, or nothing."""
    from tests.sim.run import run_seed

    failure = run_seed(seed, 0).failure
    return failure.strip().splitlines()[-1][:SAID_MAX] if failure else ""


def catch(
    mutant: Mutant, bounds: HuntBounds, clean: RunSeed, known: str = "", before: Alone | None = None
) -> Catch:
    """Try what caught the mutant before, then its scripts, then seeds; and seeds alone.

    `clean` tells what a seed says without the mutant.
    """
    left_out: list[str] = []
    prove = proved(run_as_it_is, clean, left_out.append)

    def run(seed: int) -> str:
        return _noticed(prove(seed))

    began = time.process_time()
    for script in mutant.scripts:
        # Or a module that is imported meanwhile would keep the bug for good.
        load_script(script)
    with applied(*mutant.edits):
        by, said = "", ""
        for script in sorted(mutant.scripts, key=lambda script: script != known):
            said = _failure_of(script)
            if said:
                by = script
                break
        alone = None
        if bounds.alone_seeds and mutant.area in SIMULATED:
            alone = search(run, bounds.alone_seeds, bounds.alone_seconds, before)
            if not by and alone.seed is not None:
                by, said = f"seed {alone.seed}", alone.said
        seeds = [int(known[5:])] if known.startswith("seed ") else []
        for seed in (*seeds, *range(bounds.seeds)) if not by else ():
            said = run(seed)
            if said:
                by = f"seed {seed}"
                break
    spent = time.process_time() - began
    return Catch(mutant.name, by, said, spent, alone, tuple(dict.fromkeys(left_out)))


def _failure_of(script: str) -> str:
    try:
        run_script(script)
    except StaleMutant:
        raise
    except BaseException as error:  # whatever the bug does to the script, it was noticed
        said = f"{type(error).__name__}: {error}".splitlines()[0][:SAID_MAX]
        return _noticed(said)
    return ""


def _noticed(said: str) -> str:
    """Return what was said; BrokenMutant when the changed text itself does not run."""
    if said.startswith(NO_CATCH):
        raise BrokenMutant(said)
    return said


Row = dict[str, Any]


def known_rows() -> list[Row]:
    """Return the kept table; empty when there is none."""
    return json.loads(TABLE.read_text()) if TABLE.exists() else []


def merged(kept: Sequence[Row], fresh: Sequence[Row]) -> list[Row]:
    """Return the table with `fresh` rows in place of older ones, in the catalogue's order.

    Rows of mutants that left the catalogue are dropped.
    """
    rows = {row["mutant"]: row for row in (*kept, *fresh)}
    return [rows[mutant.name] for mutant in MUTANTS if mutant.name in rows]


def _known_alone(row: Row) -> Alone | None:
    if "alone" not in row:
        return None
    return Alone(row["alone"], row["tried"], row["seconds"])


def _job(work: tuple[str, HuntBounds, CleanSeeds, Row]) -> tuple[Catch | None, str]:
    name, bounds, clean, row = work
    try:
        known = row.get("by", ""), _known_alone(row)
        return catch(by_name()[name], bounds, clean.failure, *known), ""
    except Exception:
        return None, traceback.format_exc()


def hunt(arguments: argparse.Namespace) -> int:
    """Run `mutants`."""
    console = Console(stderr=arguments.json)
    chosen = [m for m in MUTANTS if arguments.only in ("", m.name)]
    known = {row["mutant"]: row for row in known_rows()}
    alone_seeds = arguments.alone_seeds
    if alone_seeds is None:
        alone_seeds = 0 if arguments.only else SEEDS
    bounds = HuntBounds(arguments.seeds, alone_seeds, arguments.alone_seconds)
    catches: list[Catch] = []
    broken: list[str] = []
    context = multiprocessing.get_context("fork")
    processes: Any = CleanProcess(ctx=context)
    with processes, context.Pool(arguments.jobs, maxtasksperchild=1) as pool:
        clean: CleanSeeds = processes.seeds(run_as_it_is)
        work = [(mutant.name, bounds, clean, known.get(mutant.name, {})) for mutant in chosen]
        results = pool.imap(_job, work, chunksize=1)
        for found, error in track(results, "mutants", len(work), console=console):
            if found is None:
                broken.append(error)
            else:
                catches.append(found)
                for sentence in found.left_out:
                    console.print(f"{found.mutant}: {sentence}", highlight=False, markup=False)
                alone = f"; seeds alone: {found.alone.describe()}" if found.alone else ""
                console.print(f"{found.mutant}: {found.by or 'survived'}{alone}", highlight=False)
                _keep(found)
    show(console, catches)
    for error in broken:
        console.print(error, markup=False, highlight=False)
    survivors = [each.mutant for each in catches if not each.by]
    for name in survivors:
        console.print(f"[red]survived[/red] {name}")
    if arguments.json:
        print(json.dumps({"caught": [asdict(each) for each in catches], "survived": survivors}))
    show_alone(console, catches)
    return 1 if survivors or broken else 0


def _keep(found: Catch) -> None:
    """Write what is known of one mutant, so that a run that is stopped has done something."""
    before = {row["mutant"]: row for row in known_rows()}.get(found.mutant, {})
    rows = merged(known_rows(), [_kept(found, before)])
    TABLE.write_text(json.dumps(rows, indent=1) + "\n")


def _kept(found: Catch, before: Row) -> Row:
    row: Row = {"mutant": found.mutant, "by": found.by, "said": found.said}
    alone = found.alone or _known_alone(before)
    if alone is not None:
        row |= {"alone": alone.seed, "tried": alone.tried, "seconds": alone.cpu_seconds}
    return row


def show(console: Console, catches: Sequence[Catch]) -> None:
    """Print which script or seed caught which mutant."""
    whats = {mutant.name: mutant.what for mutant in MUTANTS}
    table = Table(title=f"{sum(bool(c.by) for c in catches)} of {len(catches)} mutants caught")
    for column in ("mutant", "what it does", "caught by", "seeds alone", "what was said"):
        table.add_column(column, overflow="fold")
    for found in catches:
        alone = found.alone.describe() if found.alone else "-"
        table.add_row(found.mutant, whats[found.mutant], found.by or "-", alone, found.said)
    console.print(table)


def show_alone(console: Console, catches: Sequence[Catch]) -> None:
    """Print what random seeds find alone, by area, in red when that is too little."""
    results = [(by_name()[each.mutant], each.alone) for each in catches if each.alone]
    if not results:
        return
    table = Table(title="found by random seeds alone")
    for column in ("area", "found", "of", "share", "CPU seconds"):
        table.add_column(column, justify="left" if column == "area" else "right")
    for area, (found, count, seconds) in shares(results).items():
        share = share_of(found, count)
        table.add_row(area, str(found), str(count), share, f"{seconds:.0f}")
    console.print(table)
    if found < SHARE_MIN * count:
        console.print(f"[red]below the floor[/red] seeds alone: {share}, at least {SHARE_MIN:.0%}")
