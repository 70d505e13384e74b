"""The settings of a consumer group, and their limits.

Owns: the values, the defaults. Not: how they are changed.
A consumer group is its retry topic with these settings in the topic's row (docs/delivery.md).
"""

import enum
from dataclasses import dataclass
from typing import Final

from dledger.state.commands.codec import Int64, UInt32
from dledger_proto.errors import DledgerError, invalid
from dledger_proto.limits import TIME_MS_MAX

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
RETRY_DELAYS_MS: Final = (
    10 * SECOND, 30 * SECOND, *(minutes * MINUTE for minutes in range(1, 11)),
    20 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR,
)  # fmt: skip
"""RocketMQ's levels 3 to 18: one for each of its 16 retries (S110)."""
RETRY_DELAYS_MAX: Final = 64
RETRY_DELAY_MS_MAX: Final = 40 * 24 * HOUR
RETRIES_MAX: Final = 1_000_000
SESSION_MS: Final = (1_000, 10 * MINUTE)
LEASE_MS: Final = (1_000, 10 * MINUTE)
STRATEGIES: Final = (
    "sticky", "average", "circle", "machine-room", "config", "consistent-hash", "nearby-room",
)  # fmt: skip


class ConsumeOrder(enum.IntEnum):
    """What is handed out one after the other."""

    CONCURRENT = 0
    """Nothing."""
    QUEUE = 1
    """The records of a queue."""
    KEY = 2
    """The records of a queue that have one key."""


class StartFrom(enum.IntEnum):
    """Where a group begins in a queue that it has no offset of (S103, S104)."""

    LAST = 0
    FIRST = 1
    TIME = 2


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What a consumer group has decided; docs/delivery.md says what each of them does."""

    coordinator: str
    """The broker group that keeps its consumers. It never changes."""
    dead_letter_topic_id: bytes
    order: ConsumeOrder = ConsumeOrder.CONCURRENT
    retry_delays_ms: tuple[UInt32, ...] = RETRY_DELAYS_MS
    retries_max: UInt32 = 16
    dead_letters: bool = True
    start: StartFrom = StartFrom.LAST
    start_time_ms: Int64 = 0
    """With TIME: where to begin. With LAST: when the group was created."""
    session_ms: UInt32 = 10 * SECOND
    lease_ms: UInt32 = 30 * SECOND
    strategy: str = "sticky"
    pause_failures: UInt32 = 100
    pause_share: UInt32 = 50
    """Percent of what was handed out."""
    paused: bool = False

    def retry_delay_ms(self, attempts: int) -> int:
        """Return the pause after so many failures, at least 1."""
        return self.retry_delays_ms[min(attempts, len(self.retry_delays_ms)) - 1]

    def check(self) -> None:
        """Raise INVALID_ARGUMENT naming the first setting outside its limit."""
        if not 1 <= len(self.retry_delays_ms) <= RETRY_DELAYS_MAX:
            raise invalid(
                f"retry_delays_ms has {len(self.retry_delays_ms)} delays, 1 to {RETRY_DELAYS_MAX}"
            )
        limits = [
            ("retries_max", self.retries_max, (0, RETRIES_MAX)),
            ("start_time_ms", self.start_time_ms, (0, TIME_MS_MAX)),
            ("session_ms", self.session_ms, SESSION_MS),
            ("lease_ms", self.lease_ms, LEASE_MS),
            ("pause_share", self.pause_share, (0, 100)),
        ]
        limits += [
            (f"retry_delays_ms[{place}]", delay, (0, RETRY_DELAY_MS_MAX))
            for place, delay in enumerate(self.retry_delays_ms)
        ]
        for field, value, (least, most) in limits:
            if not least <= value <= most:
                raise _outside(field, value, f"must be {least} to {most}")
        if self.strategy not in STRATEGIES:
            raise _outside("strategy", self.strategy, f"known are {', '.join(STRATEGIES)}")


def _outside(field: str, value: object, limit: str) -> DledgerError:
    return invalid(f"{field} {value!r}: {limit}")
