"""What a consumer group has done in one queue: the values and the bytes of the row (D21, D22).

    41 topic_id, queue u32, consumer group id ->
         floor i64, committed_ms i64, epoch u64, lease_until_ms i64, resets u32, holding u8,
         consumer size u16, metadata size u16, done ranges u16, suspended u16,
         consumer, metadata, (first i64, end i64)*, (offset i64, attempts u32, until_ms i64)*,
         with holding 128 and more: leased_at u64, lease_ms u32

The ranges are those of `ranges.py`. Suspended records are those of ordered groups that failed and
are not done; none lies below the floor or in a range. Without `leased_at` there is no
lease, or that of an older dledger.
"""

import enum
import struct
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dledger.state.progress.ranges import Range, is_done, settled, size_of

_HEAD: Final = struct.Struct("<qqQqIBHHHH")
_RANGE: Final = struct.Struct("<qq")
_SUSPENDED: Final = struct.Struct("<qIq")
_LEASE: Final = struct.Struct("<QI")
_LEASED: Final = 128
_RESETS_MASK: Final = 0xFFFFFFFF
SUSPENDED_MAX: Final = 256
"""Suspended records that a row keeps of a queue."""


class Holding(enum.IntEnum):
    """Whether a consumer has the queue."""

    NOBODY = 0
    """Nobody claimed it, or it was reset since: the claim of the same grant is taken again."""
    HELD = 1
    RELEASED = 2
    """The consumer gave it back: of this grant nothing is taken any more."""


class Suspended(NamedTuple):
    """How often a record failed, and the leader time from which it may be handed out again."""

    attempts: int
    until_ms: int


@dataclass(slots=True)
class Progress:
    """The row. Whoever changes it writes it back (`ProgressTable.write`)."""

    floor: int
    committed_ms: int = 0
    """Leader time of the last commit; 0: none."""
    metadata: str = ""
    epoch: int = 0
    """The highest that claimed; 0: none."""
    consumer: str = ""
    holding: Holding = Holding.NOBODY
    lease_until_ms: int = 0
    """Leader time, for people; 0: no lease."""
    leased_at: int = 0
    """Index of the entry that began or renewed the lease: it names the lease (`fence.py`)."""
    lease_ms: int = 0
    """How long the lease lasts from then on."""
    resets: int = 0
    done: list[Range] = field(default_factory=list[Range])
    suspended: dict[int, Suspended] = field(default_factory=dict[int, Suspended])

    @property
    def holder(self) -> str:
        """The consumer that has the queue; empty: nobody."""
        return self.consumer if self.holding is Holding.HELD else ""

    @property
    def done_count(self) -> int:
        """A number that grows by one with each record that is done."""
        return self.floor + size_of(self.done)

    def is_done(self, offset: int) -> bool:
        """Tell whether the record at an offset is done."""
        return is_done(self.floor, self.done, offset)

    def waiting(self, minimum: int, maximum: int) -> int:
        """Return how many records a queue holds that are not done."""
        floor = max(self.floor, minimum)
        done = sum(end - max(first, floor) for first, end in self.done if end > floor)
        return max(maximum - floor - done, 0)

    def lost(self, minimum: int) -> int:
        """Return how many records were deleted before the group was done with them."""
        done = sum(
            min(end, minimum) - max(first, self.floor)
            for first, end in self.done
            if first < minimum and end > self.floor
        )
        return max(minimum - self.floor - done, 0)

    def first_waiting(self, minimum: int) -> int:
        """Return the first offset from `minimum` on that is not done."""
        floor = max(self.floor, minimum)
        for first, end in self.done:
            if first <= floor < end:
                floor = end
        return floor

    def finish(self, floor: int, done: list[Range]) -> None:
        """Take over a floor and ranges that `settled` gave; what is done is not suspended."""
        self.floor, self.done = floor, done
        for offset in [offset for offset in self.suspended if self.is_done(offset)]:
            del self.suspended[offset]

    def finish_one(self, offset: int) -> None:
        """Note that one record is done."""
        self.finish(*settled(self.floor, self.done, [(offset, offset + 1)]))

    def reset(self, floor: int) -> None:
        """Begin anew at a floor: whoever knows the former number of resets must claim again."""
        self.floor = floor
        self.resets = (self.resets + 1) & _RESETS_MASK  # only whether it differs is asked
        self.done = []
        self.suspended = {}
        if self.holding is Holding.HELD:
            self.holding = Holding.NOBODY

    def lease(self, until_ms: int, at: int, lease_ms: int) -> None:
        """Begin or renew a lease."""
        self.lease_until_ms, self.leased_at, self.lease_ms = until_ms, at, lease_ms

    def end_lease(self) -> None:
        """The queue is free for another consumer at once."""
        self.lease(0, 0, 0)

    def encode(self) -> bytes:
        """Return the value of the row."""
        consumer, metadata = self.consumer.encode(), self.metadata.encode()
        head = _HEAD.pack(
            self.floor, self.committed_ms, self.epoch, self.lease_until_ms, self.resets,
            self.holding | (_LEASED if self.leased_at else 0),
            len(consumer), len(metadata), len(self.done), len(self.suspended),
        )  # fmt: skip
        parts = [head, consumer, metadata]
        parts += [_RANGE.pack(first, end) for first, end in self.done]
        parts += [
            _SUSPENDED.pack(offset, *suspended)
            for offset, suspended in sorted(self.suspended.items())
        ]
        if self.leased_at:
            parts.append(_LEASE.pack(self.leased_at, self.lease_ms))
        return b"".join(parts)


def decode_progress(value: bytes) -> Progress:
    """Return the values of a row."""
    (
        floor, committed_ms, epoch, lease_until_ms, resets, holding, consumer_size, metadata_size,
        ranges, suspended,
    ) = _HEAD.unpack_from(value)  # fmt: skip
    at = _HEAD.size
    consumer = value[at : at + consumer_size].decode()
    at += consumer_size
    metadata = value[at : at + metadata_size].decode()
    at += metadata_size
    done_end = at + ranges * _RANGE.size
    done = list(_RANGE.iter_unpack(value[at:done_end]))
    suspended_end = done_end + suspended * _SUSPENDED.size
    rows = _SUSPENDED.iter_unpack(value[done_end:suspended_end])
    leased_at, lease_ms = _LEASE.unpack_from(value, suspended_end) if holding & _LEASED else (0, 0)
    return Progress(
        floor, committed_ms, metadata, epoch, consumer, Holding(holding & ~_LEASED),
        lease_until_ms, leased_at, lease_ms, resets, done,
        {offset: Suspended(attempts, until_ms) for offset, attempts, until_ms in rows},
    )  # fmt: skip
