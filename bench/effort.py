"""How long and how often everything is measured."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Effort:
    """What the command line decides."""

    folder: Path
    """A folder on the disk to be measured. The end removes everything in it."""
    runs: int = 7
    """How often each thing is measured; they take turns."""
    seconds: float = 3.0
    """How long one measurement of a rate takes."""
    minutes: float = 10.0
    """How long `steady` runs under full load."""
    trials: int = 30
    """How often the leader is lost in each way."""
    kills: int = 200
    """How often a member under load is killed (SIGKILL) and restarted."""
    small_log_bytes: int = 1 << 30
    large_log_bytes: int = 10 << 30
    filled_bytes: int = 8 << 30
    """How much is appended before `idle` looks at memory."""
    pause_seconds: float = 60.0
    """How long a follower is stopped (SIGSTOP) under load."""
    idle_seconds: float = 30.0
    timers_fired: int = 200_000
    """How many delayed messages are due at almost one time."""
    updates: int = 10_000_000
    """How many messages a compacted topic gets."""
    timers_waiting: int = 1_000_000
    """How many timers wait while memory and starts are looked at."""

    @classmethod
    def quick(cls, folder: Path, runs: int = 1) -> "Effort":
        """Return an effort of minutes: it shows that benchmarks work; do not quote its figures."""
        return cls(
            folder, runs, seconds=1.5, minutes=0.2, trials=3, kills=5,
            small_log_bytes=64 << 20, large_log_bytes=640 << 20, filled_bytes=256 << 20,
            pause_seconds=5.0, idle_seconds=5.0, timers_fired=20_000, timers_waiting=50_000,
            updates=200_000,
        )  # fmt: skip
