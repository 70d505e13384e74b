"""What random seeds find of a known bug with nobody's help: no script, no seed picked for it.

Owns: the bounds of that search, what a catch must prove, its result, and the shares by area. A
script is made for its bug; only seeds say whether the simulation would have found the next one. The
seed that caught a bug is remembered and tried first by later runs; what it cost to find it is told
as it was at first.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.mutants.mutant import Mutant

SEEDS: Final = 20
"""Tried per bug, from 0 on."""
CPU_SECONDS: Final = 40.0
"""Spent per bug; the seed that exceeds it is the last."""
SIMULATED: Final = (
    "replication", "log", "state", "state's file", "refill", "repair", "compaction", "broker",
    "client", "name server",
)  # fmt: skip
"""Areas whose code the simulation runs."""
SHARE_MIN: Final = 0.6
"""Of the bugs in `SIMULATED` that seeds alone are to find."""

RunSeed = Callable[[int], str]
"""Run a seed; return what was violated, empty when nothing was."""


@dataclass(frozen=True, slots=True)
class Alone:
    """How far random seeds came. `seed` is None when they found nothing within the bounds."""

    seed: int | None
    tried: int
    """Seeds until it was found, or all that were tried."""
    cpu_seconds: float
    said: str = ""

    def describe(self) -> str:
        """Return the column of the table."""
        found = "none" if self.seed is None else f"seed {self.seed}"
        return f"{found} ({self.tried} tried, {self.cpu_seconds:.0f} s)"


class CleanSeeds:
    """What seeds say of the product without a bug: each is run at most once, when it is asked."""

    def __init__(self, run: RunSeed) -> None:
        self._run = run
        self._known: dict[int, str] = {}
        self._lock = threading.Lock()

    def failure(self, seed: int) -> str:
        """Return what was violated, empty when nothing was. Any thread."""
        with self._lock:
            if seed not in self._known:
                self._known[seed] = self._run(seed)
            return self._known[seed]


def proved(run: RunSeed, clean: RunSeed, leave_out: Callable[[str], None]) -> RunSeed:
    """Return `run` without the catches of seeds that fail without a bug, too.

    `clean` is asked about catches only; `leave_out` hears a sentence about each that is none.
    """

    def catch(seed: int) -> str:
        said = run(seed)
        without = clean(seed) if said else ""
        if without:
            leave_out(f"seed {seed} is left out, it fails without a bug: {without}")
        return "" if without else said

    return catch


def search(run: RunSeed, seeds: int, cpu_seconds: float, before: Alone | None = None) -> Alone:
    """Try what caught it before, then seed after seed within the bounds."""
    began = time.process_time()
    if before is not None and before.seed is not None:
        said = run(before.seed)
        if said:
            return Alone(before.seed, before.tried, before.cpu_seconds, said)
        began = time.process_time()
    tried, spent = 0, 0.0
    while tried < seeds and spent < cpu_seconds:
        said = run(tried)
        tried += 1
        spent = time.process_time() - began
        if said:
            return Alone(tried - 1, tried, round(spent, 1), said)
    return Alone(None, tried, round(spent, 1))


def shares(results: Sequence[tuple[Mutant, Alone]]) -> dict[str, tuple[int, int, float]]:
    """Return (found by seeds alone, bugs, CPU seconds) of each simulated area, and of all."""
    table: dict[str, tuple[int, int, float]] = {}
    for name in (*SIMULATED, "all"):
        chosen = [alone for mutant, alone in results if name in ("all", mutant.area)]
        found = sum(alone.seed is not None for alone in chosen)
        table[name] = found, len(chosen), sum(alone.cpu_seconds for alone in chosen)
    return table


def share_of(found: int, count: int) -> str:
    """Return the column of the table."""
    return f"{found / count:.0%}" if count else "not measured"
