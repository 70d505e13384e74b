"""Catching every mutant: its scripts first, then seeds. Prints and keeps the table.

Owns: running a mutant in a process of its own, deciding whether it was caught, the table
`caught.json` (mutant -> script or seed, and what it said). A mutant that survives fails the run.
"""

import argparse
import importlib
import json
import multiprocessing
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.rewrite import StaleMutant, applied

TABLE: Final = Path(__file__).with_name("caught.json")
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
    tried_seeds: int
    cpu_seconds: float


def run_script(name: str) -> None:
    """Run one scripted scenario: "module.function" of tests/scenarios, parameters after a colon.

    Or "unit.folder.module.function", a test of its own that needs nothing but parameters.
    """
    _, _, argument = name.partition(":")
    load_script(name)(*([json.loads(argument)] if argument else []))


def load_script(name: str) -> Callable[..., None]:
    """Return a script's function."""
    module, _, function = name.partition(":")[0].rpartition(".")
    home = "tests" if module.startswith("unit.") else "tests.scenarios"
    script: Callable[..., None] = getattr(importlib.import_module(f"{home}.{module}"), function)
    return script


def catch(mutant: Mutant, seeds: int, known: str = "") -> Catch:
    """Try what caught the mutant before, then its scripts, then seeds."""
    from tests.sim.run import run_seed

    began = time.process_time()
    tried = 0
    for script in mutant.scripts:
        # Or a module that is imported meanwhile would keep the bug for good.
        load_script(script)
    with applied(*mutant.edits):
        for script in sorted(mutant.scripts, key=lambda script: script != known):
            said = _failure_of(script)
            if said:
                return Catch(mutant.name, script, said, 0, time.process_time() - began)
        order = list(range(seeds))
        if known.startswith("seed "):
            order.insert(0, int(known[5:]))
        seed, result = -1, None
        for seed in order:
            tried += 1
            result = run_seed(seed, 0)
            if result.failure:
                said = _noticed(result.failure.strip().splitlines()[-1][:200])
                return Catch(mutant.name, f"seed {seed}", said, tried, time.process_time() - began)
    return Catch(mutant.name, "", "", tried, time.process_time() - began)


def _failure_of(script: str) -> str:
    try:
        run_script(script)
    except StaleMutant:
        raise
    except BaseException as error:  # whatever the bug does to the script, it was noticed
        said = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        return _noticed(said)
    return ""


def _noticed(said: str) -> str:
    """Return what was said; BrokenMutant when the changed text itself does not run."""
    if said.startswith(NO_CATCH):
        raise BrokenMutant(said)
    return said


def known_rows() -> list[dict[str, str]]:
    """Return the kept table; empty when there is none."""
    return json.loads(TABLE.read_text()) if TABLE.exists() else []


def merged(kept: Sequence[dict[str, str]], fresh: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return the table with `fresh` rows in place of older ones, in the catalogue's order.

    Rows of mutants that left the catalogue are dropped.
    """
    rows = {row["mutant"]: row for row in (*kept, *fresh)}
    return [rows[mutant.name] for mutant in MUTANTS if mutant.name in rows]


def _job(work: tuple[str, int, str]) -> tuple[Catch | None, str]:
    name, seeds, known = work
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    try:
        return catch(mutant, seeds, known), ""
    except Exception:
        return None, traceback.format_exc()


def hunt(arguments: argparse.Namespace) -> int:
    """Run `mutants`."""
    console = Console(stderr=arguments.json)
    chosen = [m for m in MUTANTS if arguments.only in ("", m.name)]
    known = {row["mutant"]: row["by"] for row in known_rows()}
    work = [(mutant.name, arguments.seeds, known.get(mutant.name, "")) for mutant in chosen]
    catches: list[Catch] = []
    broken: list[str] = []
    context = multiprocessing.get_context("fork")
    with context.Pool(arguments.jobs, maxtasksperchild=1) as pool:
        results = pool.imap(_job, work, chunksize=1)
        for found, error in track(results, "mutants", len(work), console=console):
            if found is None:
                broken.append(error)
            else:
                catches.append(found)
                console.print(f"{found.mutant}: {found.by or 'survived'}", highlight=False)
    show(console, catches)
    for error in broken:
        console.print(error, markup=False, highlight=False)
    if not broken:
        rows = merged(known_rows(), [_kept(each) for each in catches])
        TABLE.write_text(json.dumps(rows, indent=1) + "\n")
    survivors = [each.mutant for each in catches if not each.by]
    for name in survivors:
        console.print(f"[red]survived[/red] {name}")
    if arguments.json:
        print(json.dumps({"caught": [asdict(each) for each in catches], "survived": survivors}))
    return 1 if survivors or broken else 0


def _kept(found: Catch) -> dict[str, str]:
    return {"mutant": found.mutant, "by": found.by, "said": found.said}


def show(console: Console, catches: Sequence[Catch]) -> None:
    """Print which script or seed caught which mutant."""
    whats = {mutant.name: mutant.what for mutant in MUTANTS}
    table = Table(title=f"{sum(bool(c.by) for c in catches)} of {len(catches)} mutants caught")
    for column in ("mutant", "what it does", "caught by", "what was said"):
        table.add_column(column, overflow="fold")
    for found in catches:
        table.add_row(found.mutant, whats[found.mutant], found.by or "-", found.said)
    console.print(table)
