"""Latency fault tolerance (S36, S37): groups that answered slowly are avoided for a while. Pure.

Owns: the two tables of RocketMQ, the ban of each group, the choice among candidates. Not: the
clock (`now_ms` is passed in) and whether the mechanism is on (off by default).

A latency is looked up from the end of the limits: the first limit that is not above it gives the
ban. A failed send counts as a latency of `failure_ms`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

Candidate = TypeVar("Candidate")


@dataclass(frozen=True, slots=True)
class LatencyTable:
    """How long a group is avoided after which latency. `TABLE_5X` and `TABLE_4X` are RocketMQ's.

    Attributes:
        limits_ms: Latencies in growing order. The last one that is not above the measured latency
            counts.
        bans_ms: For each limit, how long the group is avoided.
        failure_ms: The latency that a failed send counts as.
    """

    limits_ms: tuple[int, ...]
    bans_ms: tuple[int, ...]
    failure_ms: int

    def __post_init__(self) -> None:
        if len(self.limits_ms) != len(self.bans_ms) or not self.limits_ms:
            raise ValueError(
                f"latency table: {len(self.limits_ms)} limits and {len(self.bans_ms)}"
                " bans; there must be as many of each, and at least one"
            )
        if list(self.limits_ms) != sorted(set(self.limits_ms)):
            raise ValueError(f"latency table: limits {self.limits_ms} do not grow")

    def ban_ms(self, latency_ms: float) -> int:
        """Return how long a group is avoided after answering in `latency_ms`."""
        for limit_ms, ban_ms in zip(reversed(self.limits_ms), reversed(self.bans_ms), strict=True):
            if latency_ms >= limit_ms:
                return ban_ms
        return 0


TABLE_4X: Final = LatencyTable(
    limits_ms=(50, 100, 550, 1_000, 2_000, 3_000, 15_000),
    bans_ms=(0, 0, 30_000, 60_000, 120_000, 180_000, 600_000),
    failure_ms=30_000,
)
"""RocketMQ 4.x, MQFaultStrategy."""

TABLE_5X: Final = LatencyTable(
    limits_ms=(50, 100, 550, 1_800, 3_000, 5_000, 15_000),
    bans_ms=(0, 0, 2_000, 5_000, 6_000, 10_000, 30_000),
    failure_ms=10_000,
)
"""RocketMQ 5.x, MQFaultStrategy: far shorter bans."""


class FaultTable:
    """Which groups are avoided until when. At most one row per group of the cluster."""

    def __init__(self, table: LatencyTable = TABLE_5X) -> None:
        self._table = table
        self._until_ms: dict[str, float] = {}

    def answered(self, group: str, latency_ms: float, now_ms: float) -> None:
        """Note that a try at `group` was answered after `latency_ms`."""
        self._until_ms[group] = now_ms + self._table.ban_ms(latency_ms)

    def failed(self, group: str, now_ms: float) -> None:
        """Note that a try at `group` failed."""
        self.answered(group, self._table.failure_ms, now_ms)

    def is_available(self, group: str, now_ms: float) -> bool:
        """Return False while the group is to be avoided."""
        return now_ms >= self._until_ms.get(group, now_ms)


def pick(
    candidates: Sequence[Candidate],
    start: int,
    is_available: Callable[[Candidate], bool],
    is_reachable: Callable[[Candidate], bool],
) -> Candidate:
    """Return the next candidate in the round from `start`: available, else reachable, else any.

    With all banned and none reachable the next in the round is returned: a send always goes out
    (S37). `candidates` must not be empty.
    """
    count = len(candidates)
    reachable: Candidate | None = None
    for step in range(count):
        candidate = candidates[(start + step) % count]
        if not is_reachable(candidate):
            continue
        if is_available(candidate):
            return candidate
        if reachable is None:
            reachable = candidate
    return candidates[start % count] if reachable is None else reachable
