"""The closed lists of runs, and which faults each run of each round is to do. Pure.

`smoke` does every fault of the process backend once, in minutes. `nightly` does all faults on all
backends, forty minutes a round, each round with other seeds. A short run has no time for all faults
of its entry. They are dealt over some rounds, so that these rounds together do all. `runner` runs a
suite, `coverage` tells what it did.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from jepsen_tests.nemeses import FAULTS, LOSING


@dataclass(frozen=True, slots=True)
class SuiteEntry:
    """One run of a suite."""

    workload: str
    faults: tuple[str, ...]
    seconds: int
    backend: str = "process"
    nodes: int = 3
    secure: bool = False
    """With TLS."""
    shares: int = 1
    """Its faults are dealt over so many rounds."""


def _all_but(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(FAULTS) - set(names)))


SMOKE: Final = (
    SuiteEntry("log", ("kill", "crash-loop", "pause", "isolate", "delay", "slices"), 50,
        secure=True),
    SuiteEntry("fifo", ("kill-leader", "pause-leaders", "isolate-leader", "flap", "transfer"), 45),
    SuiteEntry("retry", ("kill-all", "partition", "one-way", "bandwidth", "failing-sync", "reset"),
        50),
    SuiteEntry("offsets", ("pause-majority", "partition-all", "bridge", "hung-sync", "slow-sync"),
        45),
    SuiteEntry("metadata", ("kill-majority", "heal-at-timeout", "kill-while-cut", "clock"), 40),
    SuiteEntry("retention", ("power-cut", "power-cut-all", "full-disk", "next-quorum", "restart"),
        45),
    SuiteEntry("retry", ("power-cut-before-sync",), 12),
    SuiteEntry("log", ("wipe", "bit-flips", "truncation", "deletion", "stale-blocks"), 55),
    SuiteEntry("fifo", ("wipe-cut-off", "starve", "next-quorum-wiped"), 40),
    SuiteEntry("log", ("ring", "split-vote"), 22, nodes=5),
    SuiteEntry(
        "offsets",
        ("kill-while-slow", "cut-while-slow", "cut-while-slow-itself", "late-first",
         "leader-unheard"),
        55,
    ),
    SuiteEntry("log", ("old-copy",), 25),
    SuiteEntry("holds", ("clock", "kill-leader", "isolate"), 35),
    SuiteEntry("exports", ("clock", "kill-leader"), 25),
    SuiteEntry("lookups", ("clock", "kill-leader", "isolate-leader"), 30),
    SuiteEntry("times", ("clock", "pause", "transfer"), 25),
    SuiteEntry("one-way", ("kill-leader", "isolate-leader", "reset"), 30),
    SuiteEntry("groups", ("kill-leader", "isolate", "kill-majority"), 30),
    SuiteEntry("fifo", ("split-vote", "clients-cut", "client-reset", "power-cut-but-one"), 45),
    SuiteEntry("consume", ("kill-leader", "pause", "partition"), 25),
    SuiteEntry("delays", ("kill-leader", "isolate-leader"), 20),
)  # fmt: skip
OF_CLOCKS: Final = ("clock",)
"""A leader whose clock is ahead delivers early, by the clock of those who read."""
ROUNDS: Final = 3
"""Of a whole night (`make chaos-nightly`): so many shares the short runs need."""
NIGHTLY: Final = (
    SuiteEntry("log", _all_but(()), 720, nodes=5),
    SuiteEntry("fifo", _all_but(()), 480, backend="netns", shares=ROUNDS),
    SuiteEntry("log", _all_but(()), 300, backend="compose", shares=ROUNDS),
    SuiteEntry("retry", _all_but(()), 300, backend="toxiproxy", shares=ROUNDS),
    SuiteEntry("offsets", _all_but(()), 240, secure=True, shares=ROUNDS),
    SuiteEntry("metadata", _all_but(()), 180, shares=ROUNDS),
    SuiteEntry("retention", _all_but(LOSING), 180, shares=ROUNDS),
    SuiteEntry("holds", ("clock", "kill-leader", "pause-leaders", "partition", "transfer"), 90),
    SuiteEntry("exports", ("clock", "kill", "isolate", "transfer", "full-disk"), 90),
    SuiteEntry("lookups", _all_but(()), 180, shares=ROUNDS),
    SuiteEntry("times", ("clock", "kill-all", "pause-leaders", "flap", "transfer"), 90),
    SuiteEntry("one-way", _all_but(()), 180, shares=ROUNDS),
    SuiteEntry("groups", _all_but(()), 180, shares=ROUNDS),
    SuiteEntry("consume", _all_but(()), 240, shares=ROUNDS),
    SuiteEntry("delays", _all_but(OF_CLOCKS), 180, shares=ROUNDS),
)
SUITES: Final[Mapping[str, tuple[SuiteEntry, ...]]] = {"smoke": SMOKE, "nightly": NIGHTLY}


def planned(entries: Sequence[SuiteEntry], rounds: int, seed: int) -> list[SuiteEntry]:
    """Return the runs of so many rounds in order, each with the faults that it is to do.

    Neighbours take different shares, so that most faults of a backend come in every round.
    """
    return [
        replace(entry, faults=_share(entry, number + turn, seed))
        for turn in range(rounds)
        for number, entry in enumerate(entries)
    ]


def _share(entry: SuiteEntry, which: int, seed: int) -> tuple[str, ...]:
    """Return one share; those of as many rounds as there are shares are all faults, each once."""
    dealt = sorted(entry.faults)
    Random(seed).shuffle(dealt)
    return tuple(sorted(dealt[which % entry.shares :: entry.shares]))
