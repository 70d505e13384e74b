"""A histogram of plain integers for the hot path. Pure.

Owns: bounds and counts. Not: names and labels (`series.py`). One `add` costs a bisection and two
additions; whoever scrapes pays for the rest.
"""

from bisect import bisect_left
from collections.abc import Sequence
from math import inf
from typing import Final

SECONDS: Final = (
    0.000_25, 0.000_5, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.0,
    4.0, 8.0,
)  # fmt: skip
"""From a write that a disk's cache takes to one that hangs."""
MILLISECONDS: Final = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
"""RocketMQ's bounds of `rocketmq_rpc_latency`."""
MESSAGE_BYTES: Final = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
"""RocketMQ's bounds of `rocketmq_message_size`."""


class Histogram:
    """How many values fell below each bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        assert list(bounds) == sorted(set(bounds)), f"bounds {bounds}"
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """Of each bound the values at or below it and above the one before; last: the others."""
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value, so many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def buckets(self) -> list[tuple[str, int]]:
        """Return (bound, how many values are at or below it), as Prometheus wants them."""
        found: list[tuple[str, int]] = []
        below = 0
        for bound, count in zip((*self.bounds, inf), self.counts, strict=True):
            below += count
            found.append(("+Inf" if bound == inf else str(bound), below))
        return found
