"""A disk's behaviour in time, and the ways it breaks, on top of `SimFileSystem`.

Owns: how long a write round takes (quick, slow, hanging), when failing and full disks say no, and
damage: flipped bytes below what is synced. What survives a power cut is `SimFileSystem`'s.
"""

import errno
from random import Random

from tests.sim.disk.disk import PowerCut, SimFileSystem

QUICK_MIN = 0.0003
QUICK_MAX = 0.004


class SimDrive:
    """One machine's disk."""

    def __init__(self, fs: SimFileSystem, random: Random) -> None:
        self._fs = fs
        self._random = random
        self._slow = 0.0
        self.hanging = False

    def round_time(self) -> float:
        """Return how long a write round that begins now takes, in seconds."""
        quick = self._random.uniform(QUICK_MIN, QUICK_MAX)
        return quick + self._random.uniform(0.0, 2 * self._slow)

    def slow(self, seconds: float) -> None:
        """Let every round take about this much longer."""
        self._slow = seconds

    def hang(self) -> None:
        """Let no round end until `quick` is called."""
        self.hanging = True

    def quick(self) -> None:
        """End slowness and hanging."""
        self._slow = 0.0
        self.hanging = False

    def fail(self, call: str) -> None:
        """Fail every write or sync with EIO from now on."""
        self._fs.failing[call] = errno.EIO

    def repair(self) -> None:
        """Replace the controller: calls no longer fail. What was lost stays lost."""
        self._fs.failing.clear()

    def fill(self) -> None:
        """Leave a little space or none."""
        self.leave(self._random.choice((0, 4096, 40_000, 150_000)))

    def leave(self, left_bytes: int) -> None:
        """Leave so much space and no more."""
        self._fs.budget_bytes = self._fs.used_bytes() + left_bytes

    def make_room(self) -> None:
        """Give the space back."""
        self._fs.budget_bytes = None

    def stop_after(self, calls: int) -> None:
        """End the machine or process at the `calls`-th changing call from now."""
        left = [calls]

        def hook(call: str, path: str) -> None:
            if call in ("read", "size", "names"):
                return
            left[0] -= 1
            if left[0] < 0:
                raise PowerCut

        self._fs.hook = hook
