"""What an export reads from: a log that can be frozen, and ranges of it. Owns the two protocols.

The protocol of exports stands on these alone. `cluster_source.py` is a cluster, `compact.py` files
that were exported before, and tests have a log in memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from dledger_client.export.layout import FrozenQueue, Piece
from dledger_client.export.manifests.records import Identity
from dledger_client.unreadable import Unreadable


class DataLost(Exception):
    """The beginning of a planned range is trimmed; its task makes an error or a gap of it."""

    def __init__(self, piece: Piece, minimum: int) -> None:
        super().__init__(f"{piece.describe()}: the earliest offset is {minimum}")
        self.piece = piece
        self.minimum = minimum


class RangeUnreadable(Exception):
    """Records within a planned range cannot be decoded; its task makes an error or a gap."""

    def __init__(self, piece: Piece, what: Unreadable) -> None:
        super().__init__(f"{piece.describe()}: {what.describe()}")
        self.piece = piece
        self.what = what
        """All that follow one another, where there are several batches."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """Comes among the rows of a range: so many of its offsets hold nothing any more."""

    offsets: int


@dataclass(frozen=True, slots=True)
class FreezeRequest:
    """What a run asks of the log."""

    topic: str
    position: Mapping[int, int]
    """How far each queue is exported. `begin` tells where other queues begin."""
    is_first: bool = False
    """Nothing is exported yet."""
    with_days: bool = True
    """Days are needed: files are laid out by date."""
    since_ms: int | None = None
    """None: at the earliest offset."""
    until_ms: int | None = None
    """None: at what is committed now."""
    older_than_ms: int | None = None
    """Is there anything to export that was stored before this?"""

    def begin(self, queue: int, minimum: int, since_offset: int) -> int:
        """Return where a queue is to be exported from; below `minimum`, the earliest, is a loss.

        An export begins with what there is. A queue that appeared later had its records while the
        export went on, so all of them are wanted, except those that were stored before `since_ms`:
        `since_offset` is the first that was not, as far as what is left can tell.
        """
        if queue in self.position:
            return self.position[queue]
        if self.since_ms is not None and since_offset > minimum:
            return since_offset
        return minimum if self.is_first else 0


@dataclass(frozen=True, slots=True)
class FrozenLog:
    """A log at one moment: everything below the ends is committed and does not change."""

    identity: Identity
    queues: tuple[FrozenQueue, ...]
    is_overdue: bool = False
    """The answer to `older_than_ms`."""


class RangeSource(Protocol):
    """Rows of ranges. Pickles, and is opened where it is used."""

    def read(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch | Compacted]:
        """Yield a range in order: each offset once, but those that are counted as compacted.

        DataLost when its beginning is trimmed; RangeUnreadable behind what is before such records.
        """
        ...


class LogSource(Protocol):
    """A log."""

    def freeze(self, request: FreezeRequest) -> FrozenLog:
        """Return what a quorum confirms as committed, and hold it for a while."""
        ...

    def ranges(self) -> RangeSource:
        """Return who reads what was frozen last."""
        ...
