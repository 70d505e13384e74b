"""How long and how often everything is measured."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Effort:
    """What the command line decides."""

    folder: Path
    """On the disk to be measured; everything in it is removed in the end."""
    runs: int = 7
    """Of everything that is compared, in turn."""
    seconds: float = 3.0
    """Of one measurement of a rate."""
    minutes: float = 10.0
    """Of full load without a needless election."""
    trials: int = 30
    """Of one way to lose the leader."""
    kills: int = 200
    """kill -9 of one member under load, each followed by a restart."""
    small_log_bytes: int = 1 << 30
    large_log_bytes: int = 10 << 30
    filled_bytes: int = 8 << 30
    """Appended before memory is looked at."""
    pause_seconds: float = 60.0
    """How long a follower is stopped under load."""
    idle_seconds: float = 30.0

    @classmethod
    def quick(cls, folder: Path, runs: int = 1) -> "Effort":
        """Return an effort of minutes: it shows the shape of the figures, not the figures."""
        return cls(
            folder, runs, seconds=1.5, minutes=0.2, trials=3, kills=5,
            small_log_bytes=64 << 20, large_log_bytes=640 << 20, filled_bytes=256 << 20,
            pause_seconds=5.0, idle_seconds=5.0,
        )  # fmt: skip
