"""The end of a log, and the rule which entry can be the next one. Pure.

Owns: the rule that ties one entry to the next: index, position, checksum of the entry before, and
a term and a time that never go back.
"""

from dataclasses import dataclass
from typing import Final

from dledger.types import LogIndex, Position, Term
from dledger_proto.entry import EntryHeader

NO_INDEX: Final = LogIndex(0)
NO_TERM: Final = Term(0)
START: Final = Position(0)


@dataclass(frozen=True, slots=True)
class Chain:
    """The end of a log: its last entry, and the position behind it. The default: an empty log."""

    index: LogIndex = NO_INDEX
    position: Position = START
    crc: int = 0
    term: Term = NO_TERM
    time_ms: int = 0

    def mismatch(self, header: EntryHeader) -> str | None:
        """Say why an entry with this header cannot be the next one; None when it can."""
        if header.index != self.index + 1:
            return f"index {header.index} behind {self.index}"
        if header.position != self.position:
            return f"entry {header.index} says position {header.position}, not {self.position}"
        if header.previous_crc != self.crc:
            return (
                f"entry {header.index} follows crc {header.previous_crc:08x}, "
                f"entry {self.index} has {self.crc:08x}"
            )
        if header.term < self.term:
            return f"entry {header.index} has term {header.term} behind {self.term}"
        if header.time_ms < self.time_ms:
            return f"entry {header.index} has time {header.time_ms} behind {self.time_ms}"
        return None

    def after(self, header: EntryHeader) -> "Chain":
        """Return the end of the log with this entry added."""
        return Chain(
            LogIndex(header.index),
            Position(header.position + header.size),
            header.header_crc,
            Term(header.term),
            header.time_ms,
        )
