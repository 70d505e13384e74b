"""One segment of the log as the log knows it, and the index file of a sealed segment.

Owns: names, the sealed segment's `.idx` contents, `DLX1` version 1 in the frame of
`atomic_file.py`: u64 base position, end position, base index, last index, crc of the last entry,
least and greatest time_ms, blob salt, pairs (index, term) where terms start, pairs (index,
position) of samples.

The file `<base position, 20 digits>.log` is drawn in `dledger_proto.entry`. Only the last segment
is written to. A sealed one has exactly the size of its entries, is synced, and has its index beside
it before the next segment's file exists: the mere name of a later file proves it. The index is a
convenience: one that is missing, damaged or of another life of the file is made again by scanning.
"""

from dataclasses import dataclass, field
from typing import Final

from dledger.log.atomic_file import CorruptFile, FieldReader, FieldWriter, frame, unframe
from dledger.log.memory.samples import Samples
from dledger.types import LogIndex, Position
from dledger_proto.entry import SEGMENT_HEADER_SIZE, SegmentHeader, segment_name

INDEX_SUFFIX: Final = ".idx"
_MAGIC: Final = b"DLX1"
_VERSION: Final = 1


@dataclass(slots=True)
class Segment:
    """A segment in the loop thread's picture, which runs ahead of the disk by unfinished rounds."""

    header: SegmentHeader
    samples: Samples | None = field(default_factory=Samples)
    """None for a sealed segment: they lie in its index file."""
    time_min_ms: int = 0
    time_max_ms: int = 0
    on_disk: bool = False
    """A round that makes the file was taken."""
    sealed: bool = False
    """A round that seals the file was taken."""

    @property
    def base(self) -> Position:
        """Position of the first entry."""
        return Position(self.header.base_position)

    @property
    def base_index(self) -> LogIndex:
        """Index of the first entry."""
        return LogIndex(self.header.base_index)

    @property
    def name(self) -> str:
        """File name."""
        return segment_name(self.header.base_position)

    def file_offset(self, position: Position) -> int:
        """Return where a position lies in the file."""
        return file_offset(self.base, position)

    def note(self, index: LogIndex, position: Position, time_ms: int) -> None:
        """Learn of an entry that was added."""
        assert self.samples is not None, f"{self.name} is sealed"
        if not len(self.samples):
            self.time_min_ms = time_ms
        self.samples.note(index, position)
        self.time_max_ms = time_ms


def file_offset(base: Position, position: Position) -> int:
    """Return where `position` lies in the file of the segment that starts at `base`."""
    return SEGMENT_HEADER_SIZE + position - base


def index_name(base: Position) -> str:
    """Return the name of the index file of the segment that starts at `base`."""
    return segment_name(base).removesuffix(".log") + INDEX_SUFFIX


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """What the index file of a sealed segment says."""

    base: Position
    end: Position
    base_index: LogIndex
    last_index: LogIndex
    last_crc: int
    time_min_ms: int
    time_max_ms: int
    salt: bytes
    term_starts: list[tuple[int, int]]
    samples: Samples

    def encode(self) -> bytes:
        """Return the file's bytes."""
        writer = FieldWriter()
        writer.numbers(
            self.base, self.end, self.base_index, self.last_index, self.last_crc,
            self.time_min_ms, self.time_max_ms,
        )  # fmt: skip
        writer.blob(self.salt)
        writer.pairs(self.term_starts)
        writer.pairs(self.samples.pairs())
        return frame(_MAGIC, _VERSION, writer.body())


def parse_segment_index(content: bytes) -> SegmentIndex:
    """Return what an index file says; CorruptFile when it is none."""
    reader = FieldReader(unframe(_MAGIC, _VERSION, content))
    base, end, base_index, last_index, crc, time_min_ms, time_max_ms = reader.numbers(7)
    salt, term_starts, samples = reader.blob(), reader.pairs(), reader.pairs()
    reader.end()
    if not samples or samples[0] != (base_index, base):
        raise CorruptFile(f"the first sample is {samples[:1]}, not {(base_index, base)}")
    return SegmentIndex(
        Position(base), Position(end), LogIndex(base_index), LogIndex(last_index), crc,
        time_min_ms, time_max_ms, salt, term_starts, Samples(samples),
    )  # fmt: skip
