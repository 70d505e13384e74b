"""Suites: the closed lists of runs, and which faults each run of which round is to do. Pure.

`smoke` meets every fault of the process backend once, in minutes. `nightly` does all of them on all
backends, forty minutes a round, each round with other seeds. A short run has no time for every
fault: those of its entry are dealt over some rounds, so that together these do all. Running them:
`suite_runs`; what they did: `covered`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from jepsen_tests.nemeses import FAULTS, LOSING


@dataclass(frozen=True, slots=True)
class Entry:
    """One run of a suite."""

    workload: str
    faults: tuple[str, ...]
    seconds: int
    backend: str = "process"
    nodes: int = 3
    shares: int = 1
    """Its faults are dealt over so many rounds."""


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
    Entry(
        "offsets",
        ("kill-while-slow", "cut-while-slow", "cut-while-slow-itself", "late-first",
         "leader-unheard"),
        55,
    ),
    Entry("fifo", ("split-vote", "clients-cut", "client-reset", "power-cut-but-one"), 45),
)  # fmt: skip
ROUNDS: Final = 3
"""Of a whole night (`make chaos-nightly`): so many shares the short runs need."""
NIGHTLY: Final = (
    Entry("log", _all_but(()), 720, nodes=5),
    Entry("fifo", _all_but(()), 480, backend="netns", shares=ROUNDS),
    Entry("log", _all_but(()), 300, backend="compose", shares=ROUNDS),
    Entry("retry", _all_but(()), 300, backend="toxiproxy", shares=ROUNDS),
    Entry("offsets", _all_but(()), 240, shares=ROUNDS),
    Entry("metadata", _all_but(()), 180, shares=ROUNDS),
    Entry("retention", _all_but(LOSING), 180, shares=ROUNDS),
)
SUITES: Final[Mapping[str, tuple[Entry, ...]]] = {"smoke": SMOKE, "nightly": NIGHTLY}


def planned(entries: Sequence[Entry], rounds: int, seed: int) -> list[Entry]:
    """Return the runs of so many rounds in order, each with the faults that it is to do.

    Neighbours take different shares, so that most faults of a backend come in every round.
    """
    return [
        replace(entry, faults=_share(entry, number + turn, seed))
        for turn in range(rounds)
        for number, entry in enumerate(entries)
    ]


def _share(entry: Entry, which: int, seed: int) -> tuple[str, ...]:
    """Return one share; those of as many rounds as there are shares are all faults, each once."""
    dealt = sorted(entry.faults)
    Random(seed).shuffle(dealt)
    return tuple(sorted(dealt[which % entry.shares :: entry.shares]))
