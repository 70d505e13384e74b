"""One segment as the log knows it: what a scrub compares the disk with.

Owns: the picture. The loop's thread makes it, any thread may read it. Committed entries do not
change, so what it says of them stays true; only a trim may remove the file.
"""

from dataclasses import dataclass

from dledger.log.memory.chain import NO_TERM, Chain
from dledger.types import LogIndex, Position, Term
from dledger_proto.entry import SegmentHeader


@dataclass(frozen=True, slots=True)
class Part:
    """The synced entries of one segment, from its first one to `last`."""

    path: str
    header: SegmentHeader
    last: LogIndex
    end: Position
    """Behind the entry `last`."""
    last_crc: int
    """What identifies the entry `last`; told by what follows it, not by the file."""
    committed: LogIndex
    """Entries behind this one may still be cut: nobody reads or mends them."""
    index_path: str
    """The index beside it; empty: the segment is not sealed, and has none."""
    samples: tuple[tuple[int, int], ...] = ()
    """Some (index, position), of a segment without an index."""

    @property
    def base(self) -> Position:
        """Position of the first entry."""
        return Position(self.header.base_position)

    @property
    def begin(self) -> Chain:
        """What the first entry follows. The time of the entry before is not known, so 0."""
        header = self.header
        term = Term(header.previous_term) if header.base_index > 1 else NO_TERM
        return Chain(LogIndex(header.base_index - 1), self.base, header.previous_crc, term)
