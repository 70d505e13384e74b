"""What random seeds find of a known bug with nobody's help: no script, no seed picked for it.

Owns: the bounds of that search, its result, and the shares by area. A script is made for its bug;
only seeds say whether the simulation would have found the next one. The seed that caught a bug is
remembered and tried first by later runs; what it cost to find it is told as it was at first.
"""

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
    "replication", "log", "state", "state's file", "broker", "client", "name server",
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
