"""Batches that cannot be decoded though their checksum holds: when they are left out.

Owns: the value, and the sentences about it. Not: noticing and recording such batches: consumers
(`_core/consumer/buffer.py`), bulk reads (`reading/`), exports (`export/task.py`) do.

The batch is as its producer sent it. So all copies are alike, and no retry helps. A reader refuses
such a batch unless its user accepts that unreadable batches are left out. Then the offsets of the
batch are a gap, and the reader tells of it. Damage (CORRUPT_BATCH) differs: some copy is whole, so
no option leaves it out (I15). A missing package is no reason either: the next reader may have it.
"""

from dataclasses import dataclass
from typing import Final

CONSUMER_REMEDY: Final = (
    "continue behind them with seek, or leave such batches out with "
    "ConsumerConfig(fail_on_unreadable=False)"
)
SPARK_REMEDY: Final = "set failOnUnreadable=false to leave them out; the log then names them"
EXPORT_REMEDY: Final = "to export the rest and record the gap, use --accept-unreadable"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Offsets `start` to `end` - 1 of a queue: records of one batch that cannot be decoded."""

    group: str
    """Broker group; empty: not known."""
    topic: str
    queue: int
    start: int
    end: int
    detail: str
    """What is wrong with the batch."""

    @property
    def records(self) -> int:
        """How many."""
        return self.end - self.start

    def describe(self) -> str:
        """Return one stable line."""
        group = f" of group {self.group}" if self.group else ""
        return (
            f"{self.topic}/{self.queue}{group}: offsets {self.start} to {self.end - 1}, "
            f"{self.records} records, cannot be decoded: {self.detail}"
        )
