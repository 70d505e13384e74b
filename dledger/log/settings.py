"""The sizes that configuration gives a log."""

from dataclasses import dataclass, fields

from dledger_proto.entry import SEGMENT_HEADER_SIZE
from dledger_proto.limits import GIB, MIB


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Sizes in bytes; ValueError for one out of range."""

    segment_size: int = GIB
    """A segment's file is at most this large, unless a single entry is larger."""
    tail_cache_bytes: int = 32 * MIB
    """Newest entries kept in memory. Those not yet synced are kept whatever their size."""
    checkpoint_bytes: int = 16 * MIB
    """A checkpoint is written after so many bytes of entries; a restart reads about as many."""
    allocate_bytes: int = 32 * MIB
    """Space allocated ahead of the end; a restart looks through it for entries behind a tear."""
    reserve_bytes: int = 128 * MIB
    """Disk space kept for writes that were admitted before the disk was full."""
    low_water_bytes: int = 256 * MIB
    """Below this much free space, besides the reserve, new writes are refused."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 0:
                raise ValueError(f"{field.name} is {value}, must not be negative")
        if self.segment_size <= SEGMENT_HEADER_SIZE:
            raise ValueError(
                f"segment_size is {self.segment_size}, must be above {SEGMENT_HEADER_SIZE}"
            )
