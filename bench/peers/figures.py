"""Which figures there are, how much work each takes, how runs become one figure and one ratio.

Pure. Not: measuring (`measuring.py`), how tables look (`page.py`).
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from bench.figures import percentile

OURS = "dledger"
END_TO_END_RATE = 100.0
LOADED_SHARE = 0.5
"""Latency under load is taken at this share of a system's own rate."""


@dataclass(frozen=True, slots=True)
class Work:
    """How much is measured in one round."""

    warm_seconds: float
    """How long a new cluster is under load, and as long sent single messages, before all else."""
    seconds: float
    """How long a rate counts."""
    lone_seconds: float
    backlog_messages: int
    end_to_end_seconds: float
    trials: int
    """How often the leader is killed."""


FULL = Work(30.0, 12.0, 8.0, 100_000, 20.0, 5)
QUICK = Work(5.0, 2.0, 1.5, 5_000, 3.0, 1)
"""Shows that everything works; do not quote its figures."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure."""

    key: str
    title: str
    unit: Literal["msg/s", "ms", "s"]
    rounds: Literal["median", "max"] = "median"
    """How the rounds become one value."""

    @property
    def is_rate(self) -> bool:
        """More is better."""
        return self.unit == "msg/s"


ROWS = (
    Row("one_queue", "one call per message, 1 queue", "msg/s"),
    Row("four_queues", "one call per message, 4 queues", "msg/s"),
    Row("small", "one call per message, 1 queue, 100 bytes", "msg/s"),
    Row("large", "one call per message, 1 queue, 64 KiB", "msg/s"),
    Row("topics", "one call per message, 100 topics", "msg/s"),
    Row("backlog", "backlog by one consumer", "msg/s"),
    Row("lone_blocking_p50", "lone send p50, our blocking client", "ms"),
    Row("lone_blocking_p99", "lone send p99, our blocking client", "ms"),
    Row("lone_asyncio_p50", "lone send p50, our asyncio client", "ms"),
    Row("lone_asyncio_p99", "lone send p99, our asyncio client", "ms"),
    Row("end_to_end_p50", "end to end at 100/s, p50", "ms"),
    Row("end_to_end_p99", "end to end at 100/s, p99", "ms"),
    Row("loaded_p50", "send at half of the own rate, p50", "ms"),
    Row("loaded_p99", "send at half of the own rate, p99", "ms"),
    Row("loaded_p999", "send at half of the own rate, p99.9", "ms"),
    Row("failover_median", "leader killed: gap, median", "s"),
    Row("failover_max", "leader killed: gap, the longest", "s", "max"),
)
KEYS = frozenset(row.key for row in ROWS)


def milliseconds(name: str, seconds: Sequence[float], **shares: float) -> dict[str, float]:
    """Return percentiles in milliseconds by key: `milliseconds("lone", times, p50=0.5)`."""
    return {f"{name}_{key}": percentile(seconds, share) * 1000 for key, share in shares.items()}


def gaps(seconds: Sequence[float]) -> dict[str, float]:
    """Return the figures of a failover."""
    return {"failover_median": statistics.median(seconds), "failover_max": max(seconds)}


def by_our_clients(name: str, by_client: dict[str, list[float]]) -> dict[str, float]:
    """Return the figures of a lone send for both rows: a peer's only client stands in both."""
    found: dict[str, float] = {}
    only = next(iter(by_client.values()))
    for client in ("blocking", "asyncio"):
        times = by_client.get(client, only)
        found |= milliseconds(f"{name}_{client}", times, p50=0.5, p99=0.99)
    return found


@dataclass(slots=True)
class Results:
    """What all rounds gave, and what is missing."""

    values: dict[tuple[str, str], list[float]] = field(
        default_factory=dict[tuple[str, str], list[float]]
    )
    """By system and key; one value for each round."""
    versions: dict[str, str] = field(default_factory=dict[str, str])
    left_out: list[str] = field(default_factory=list[str])
    """What was not measured and why, a sentence each."""
    has_failed: bool = False
    """True: some of that could have been measured on another machine, or at another time."""

    def add(self, system: str, key: str, value: float) -> None:
        """Keep a value of a round."""
        assert key in KEYS, f"no figure {key!r}"
        self.values.setdefault((system, key), []).append(value)

    def leave_out(self, what: str, *, by_nature: bool = False) -> None:
        """Keep what was not measured, each once. By nature: the system has no such thing."""
        if what not in self.left_out:
            self.left_out.append(what)
        self.has_failed |= not by_nature

    def value(self, system: str, row: Row) -> float | None:
        """Return the value of all rounds; None: not measured."""
        runs = self.values.get((system, row.key))
        if not runs:
            return None
        return max(runs) if row.rounds == "max" else statistics.median(runs)

    def ratio(self, system: str, row: Row) -> float | None:
        """Return how many times better ours is: above 1 we are ahead. None: one is missing."""
        ours, theirs = self.value(OURS, row), self.value(system, row)
        if not ours or not theirs:
            return None
        return ours / theirs if row.is_rate else theirs / ours
