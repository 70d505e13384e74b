"""The checkpoint: what a restart needs, so that it reads no old segment (I18).

Owns: the checkpoint file's contents, `DLP1` version 1 in the frame of `atomic_file.py`:
blob group_id (16 or empty), u64 first index, first position, previous term, previous crc (of the
entry before the first); u64 last index, position, crc, term, time_ms (of the last entry covered);
u64 least and greatest time_ms of the active segment; pairs (base position, base index) of the
segments, pairs (index, term) where terms start, pairs (index, position) of the active segment.

Everything below `end.position` was synced before this file was written, so damage there is never a
torn tail. The file is made with the folder, before any entry. A missing checkpoint means that files
were lost. Then nobody knows how much was synced, and the log is refused.
"""

from dataclasses import dataclass, field
from typing import Final

from dledger.log.atomic_file import CorruptFile, FieldReader, FieldWriter, frame, unframe
from dledger.log.memory.chain import NO_TERM, START, Chain
from dledger.types import LogIndex, Position, Term

CHECKPOINT_FILE: Final = "checkpoint"
FIRST_INDEX: Final = LogIndex(1)
_MAGIC: Final = b"DLP1"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A synced state of the log; the defaults are those of an empty one."""

    group_id: bytes = b""
    first_index: LogIndex = FIRST_INDEX
    first_position: Position = START
    previous_term: Term = NO_TERM
    previous_crc: int = 0
    end: Chain = field(default_factory=Chain)
    time_min_ms: int = 0
    time_max_ms: int = 0
    segments: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    term_starts: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    samples: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def encode(self) -> bytes:
        """Return the file's bytes."""
        writer = FieldWriter()
        writer.blob(self.group_id)
        writer.numbers(self.first_index, self.first_position, self.previous_term, self.previous_crc)
        end = self.end
        writer.numbers(end.index, end.position, end.crc, end.term, end.time_ms)
        writer.numbers(self.time_min_ms, self.time_max_ms)
        for pairs in (self.segments, self.term_starts, self.samples):
            writer.pairs(pairs)
        return frame(_MAGIC, _VERSION, writer.body())


def parse_checkpoint(content: bytes) -> Checkpoint:
    """Return what a checkpoint file says; CorruptFile when it is none."""
    reader = FieldReader(unframe(_MAGIC, _VERSION, content))
    group_id = reader.blob()
    first_index, first_position, previous_term, previous_crc = reader.numbers(4)
    index, position, crc, term, time_ms = reader.numbers(5)
    time_min_ms, time_max_ms = reader.numbers(2)
    segments, term_starts, samples = reader.pairs(), reader.pairs(), reader.pairs()
    reader.end()
    if bool(segments) != (position > first_position) and segments != [(position, index + 1)]:
        raise CorruptFile(f"{len(segments)} segments for {first_position}..{position}")
    return Checkpoint(
        group_id, LogIndex(first_index), Position(first_position), Term(previous_term),
        previous_crc, Chain(LogIndex(index), Position(position), crc, Term(term), time_ms),
        time_min_ms, time_max_ms, segments, term_starts, samples,
    )  # fmt: skip
