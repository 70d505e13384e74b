"""An image of the log up to an entry: which files hold it, and a checkpoint for a copy of them."""

from dataclasses import dataclass

from dledger.log.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class LogImage:
    """What a copy of the log consists of."""

    checkpoint: Checkpoint
    """Ends where the last segment begins."""
    whole: tuple[str, ...]
    """Names of segments that belong to it as a whole, and of their index files."""
    last: str
    """The segment that holds its end."""
    last_size: int
    """How many bytes of that file belong to it."""
