"""Trim: raising a queue's minimum, up to its holds.

Owns: the rule of the command. Not: the bounds of queues (`table.py`), the holds (`holds.py`), nor
segments: each member deletes those below the log's head by itself.
"""

import datetime as dt
from dataclasses import dataclass
from typing import ClassVar, Final

from dledger.state.commands.codec import Int64, UInt32
from dledger.state.commands.command import Command
from dledger.state.queues.holds import HOLDS_PER_QUEUE_MAX
from dledger.state.queues.table import Queue
from dledger.state.results import Refused, Trimmed
from dledger.state.state import State
from dledger.types import Entry
from dledger_proto.errors import Code
from dledger_proto.limits import TIME_MS_MAX

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Trim(Command[Trimmed]):
    """Raise a queue's minimum offset."""

    NUMBER: ClassVar = 8
    FREES_SPACE: ClassVar = True
    ROWS_READ_MAX: ClassVar = HOLDS_PER_QUEUE_MAX

    topic_id: bytes
    queue: UInt32
    offset: Int64

    def apply(self, state: State, entry: Entry) -> Trimmed | Refused:
        """Raise the minimum as far as holds let it; the minimum never goes back."""
        queue = state.queue(self.topic_id, self.queue)
        if not 0 <= self.offset <= queue.maximum:
            return Refused(
                Code.OFFSET_OUT_OF_RANGE, f"offset {self.offset}, the queue ends at {queue.maximum}"
            )
        allowed = self._allowed(state, queue, entry.time_ms)
        if isinstance(allowed, Trimmed) and allowed.minimum > queue.minimum:
            old_minimum = queue.minimum
            state.garbage.add(*state.queues.raise_minimum(queue, allowed.minimum))
            state.references.release_below(queue, old_minimum)
            state.message_ids.start_sweeping()
        return allowed

    def _allowed(self, state: State, queue: Queue, time_ms: int) -> Trimmed | Refused:
        """Return the new minimum, which may be the old one; HELD when a hold forbids any trim."""
        alive = state.holds.alive(queue, time_ms)
        if alive:
            first = min(alive, key=lambda owner: (alive[owner][0], owner))
            offset, until_ms = alive[first]
            owner = first.decode()
            if offset <= queue.minimum < self.offset:
                others = f"; {len(alive)} holds in all" if len(alive) > 1 else ""
                return Refused(
                    Code.HELD,
                    f"{owner} holds the queue from offset {offset} on, until "
                    f"{moment(until_ms)}{others}",
                )
            if offset < self.offset:
                return Trimmed(max(offset, queue.minimum), owner, until_ms)
        return Trimmed(max(self.offset, queue.minimum))


def moment(time_ms: int) -> str:
    """Return a leader's time as people write it, in UTC, to the second."""
    if not 0 <= time_ms <= TIME_MS_MAX:
        return f"{time_ms} ms"
    at = EPOCH + dt.timedelta(seconds=time_ms // 1_000)
    return at.isoformat(sep=" ", timespec="seconds")
