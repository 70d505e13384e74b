"""A leader that already knows that waiting for callers pays."""

from dledger.raft.commit.trial import Trial


class Convinced(Trial):
    """Always waits, and never tries anything else."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = True

    def entry(self, payloads: int, now: float, *, alone: bool) -> None:
        """See `Trial.entry`."""
