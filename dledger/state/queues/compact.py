"""Compact: records go that a newer one of the same key supersedes (S60, D7).

Owns: the command, and what it may not do. Not: which records are superseded: a leader compares keys
(`dledger_broker.compacting`), because apply does not read the log. Not: rows (`table.py`), where
the bytes lie of what stays (`copies.py`).

The command names rows of a stretch of a queue, and brings what stays of each: runs of records, each
as a batch of its own. The name of a run is the position of its batch plus the place of its first
record in it. A batch has more bytes than records, so no other batch has this name, and names grow
with offsets. The offsets between the runs are gone: rows say so, and neighbouring ones become one.

Apply refuses the command unless each named row is as the leader read it, lies below the newest
block and below each hold, and unless nothing pins its batch. So what a retry, a timer or a dead
letter refers to stays whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from dledger.state.commands.codec import Int64, UInt32
from dledger.state.commands.command import Command
from dledger.state.queues.carry import Copy, check_batch, places_of
from dledger.state.queues.holds import HOLDS_PER_QUEUE_MAX
from dledger.state.queues.table import BLOCKS_IN_STRETCH_MAX, ROWS_PER_BLOCK, Queue
from dledger.state.results import Compacted, Refused
from dledger.state.state import State
from dledger.state.values import QueueSpan, Root
from dledger.types import Entry
from dledger_proto.batch.codec import parse_header
from dledger_proto.errors import Code, invalid

ROWS_PER_STRETCH: Final = 1_024
"""Rows of a stretch, as a leader proposes it."""
_ROWS_READ_MAX: Final = ROWS_PER_STRETCH + 2 * ROWS_PER_BLOCK + HOLDS_PER_QUEUE_MAX
_GONE_RECORDS_MAX: Final = 0xFFFF_FFFF
"""Offsets that one row can stand for."""


class CutRow(NamedTuple):
    """A row of which records go."""

    base_offset: Int64
    record_count: UInt32

    def describe(self) -> str:
        """Return one word."""
        return f"{self.base_offset}+{self.record_count}"


@dataclass(frozen=True, slots=True)
class Compact(Command[Compacted]):
    """Let records of a stretch of a queue go, and keep the runs that are brought."""

    NUMBER: ClassVar = 63
    ROWS_READ_MAX: ClassVar = _ROWS_READ_MAX
    HOLDS_BATCHES: ClassVar = True

    topic_id: bytes
    queue: UInt32
    first: Int64
    """The stretch begins with the block that holds this offset..."""
    stop: Int64
    """...and ends before this one, which begins a row. Equal to `first`: no row changes."""
    cleaned: Int64
    """The queue's cleaned offset from now on; -1: it stays as it is."""
    rows: tuple[CutRow, ...]
    """In order."""
    runs: tuple[Copy, ...]
    """What stays of these rows, by name, in order."""

    def apply(self, state: State, entry: Entry) -> Compacted | Refused:
        """Change the rows, if all are as the leader read them; else nothing changes."""
        queue = state.queue(self.topic_id, self.queue)
        topic = state.topics.known(self.topic_id)
        if not topic.is_compacted:
            return _look_again(f"topic {topic.name} is not compacted")
        if not self.cleaned <= queue.maximum:
            raise invalid(f"cleaned {self.cleaned}: the queue ends at {queue.maximum}")
        gone = 0
        if self.first != self.stop:
            result = self._rewrite(state, queue, entry)
            if isinstance(result, Refused):
                return result
            gone = result
        if self.cleaned >= 0:
            state.queues.set_cleaned(queue, self.cleaned)
        return Compacted(gone, len(self.runs))

    def _rewrite(self, state: State, queue: Queue, entry: Entry) -> int | Refused:
        """Replace the rows of the stretch; return how many records went."""
        if not queue.minimum <= self.first < self.stop <= queue.block_base:
            return _look_again(f"the queue has full blocks from {queue.minimum} to "
                               f"{queue.block_base}")  # fmt: skip
        keys, spans = state.queues.in_blocks(queue, self.first, self.stop)
        if len(keys) == BLOCKS_IN_STRETCH_MAX or len(spans) > _ROWS_READ_MAX:
            return _look_again(f"{len(spans)} rows in the stretch")
        cut = {row.base_offset: row.record_count for row in self.rows}
        if len(cut) != len(self.rows):
            raise invalid("rows: each must occur once")
        runs = list(self.runs)
        rows: list[QueueSpan] = []
        gone = 0
        for span in spans:
            count = cut.pop(span.base_offset, None)
            if count is None:
                rows.append(span)
                continue
            is_changed = count != span.record_count or span.is_reference or span.is_gone
            if is_changed or span.base_offset >= self.stop:
                return _look_again(f"the row at offset {span.base_offset} has changed")
            if state.references.is_pinned(span.position):
                return _look_again(f"something refers to the row at offset {span.base_offset}")
            pieces = _pieces(span, runs, queue)
            gone += sum(piece.record_count for piece in pieces if piece.is_gone)
            rows += pieces
        if cut or runs:
            return _look_again(f"rows {sorted(cut)}, runs {[run.position for run in runs]}: "
                               "not in the stretch")  # fmt: skip
        held = [offset for offset, _ in state.holds.alive(queue, entry.time_ms).values()]
        if min(held, default=self.stop) < self.stop:
            return _look_again(f"a hold keeps the queue from offset {min(held)} on")
        state.queues.replace(queue, keys, list(joined(rows, queue.minimum)))
        state.copies.rename(places_of(self.runs, entry))
        return gone


def _pieces(span: QueueSpan, runs: list[Copy], queue: Queue) -> list[QueueSpan]:
    """Return the rows that stand for a row that is cut; take its runs off the front of `runs`."""
    pieces: list[QueueSpan] = []
    at, end = 0, span.record_count
    while runs and runs[0].position < span.position + end:
        run = runs.pop(0)
        first = run.position - span.position
        count = parse_header(run.batch).record_count
        if not at <= first < first + count <= end or count == end:
            raise invalid(f"run {run.position}: {count} records in {at} to {end} of their batch")
        check_batch(run.batch, Root(b"", run.position, 0, len(run.batch), queue.id, count))
        if first > at:
            pieces.append(_gone(span, at, first))
        pieces.append(
            span._replace(
                base_offset=span.base_offset + first, position=run.position, record_count=count,
                size=len(run.batch),
            )
        )  # fmt: skip
        at = first + count
    if at < end:
        pieces.append(_gone(span, at, end))
    return pieces


def _gone(span: QueueSpan, first: int, end: int) -> QueueSpan:
    return span._replace(
        base_offset=span.base_offset + first, position=span.position + first,
        record_count=end - first, size=0,
    )  # fmt: skip


def joined(rows: Sequence[QueueSpan], minimum: int) -> Iterator[QueueSpan]:
    """Iterate over rows, neighbouring gone ones as one.

    The row that holds the minimum begins anew: else the place of the minimum would go back.
    """
    open_row: QueueSpan | None = None
    for row in rows:
        end = row.base_offset + row.record_count
        holds_minimum = row.base_offset <= minimum < end
        if open_row is not None and row.is_gone and not holds_minimum:
            count = open_row.record_count + row.record_count
            if count <= _GONE_RECORDS_MAX:
                open_row = open_row._replace(record_count=count)
                continue
        if open_row is not None:
            yield open_row
            open_row = None
        if row.is_gone:
            open_row = row
        else:
            yield row
    if open_row is not None:
        yield open_row


def _look_again(why: str) -> Refused:
    return Refused(Code.BUSY, f"{why}: the leader looks again")
