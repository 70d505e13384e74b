"""Batches of the log, read and checked: every batch that leaves a member has a right CRC (I15).

Not owned: where batches lie (the state), their bytes (`dledger.log`).
"""

import struct
from collections.abc import Sequence
from typing import Final, Protocol

from crc32c import crc32c

from dledger.log.commit_log import CommitLog
from dledger.log.errors import DamagedFile
from dledger.state.values import QueueSpan
from dledger.types import Position, Span
from dledger_proto.batch.codec import (
    BATCH_HEADER_SIZE,
    BATCH_MAGIC,
    BatchView,
    cut_record,
    parse_header,
)
from dledger_proto.errors import DledgerError
from dledger_proto.limits import KIB, MIB
from dledger_proto.rpc.frames import FetchRow

READ_GAP_MAX: Final = 64 * KIB
"""One read takes batches that lie this near to each other, and what lies between them."""
READ_SIZE_MAX: Final = 4 * MIB
CUT_ABOVE_SIZE: Final = 16 * KIB
"""A record that is delivered again is cut out of a larger batch."""

_BATCH_START = struct.Struct("<4sII")


class DamagedBatch(Exception):
    """A committed batch on this member's disk does not match its checksum."""

    def __init__(self, detail: str, position: int = 0) -> None:
        super().__init__(detail)
        self.position = position


STORAGE_ERRORS: Final = (DamagedBatch, DamagedFile, OSError)
"""What reading raises when the storage failed. The member then ends (I16)."""


class SpanReader(Protocol):
    """Log bytes on disk."""

    def read_span(self, span: Span) -> bytes:
        """Return the bytes, reading from disk; thread-safe."""
        ...

    def path_of(self, position: Position) -> str:
        """Return the file that holds a position; thread-safe."""
        ...


def is_sound(batch: memoryview, size: int) -> bool:
    """Tell whether the bytes are one batch of `size` bytes that matches its checksum (I15)."""
    if len(batch) != size:
        return False
    magic, crc, said = _BATCH_START.unpack_from(batch)
    return bool(magic == BATCH_MAGIC and said == size and crc32c(batch[8:]) == crc)


def read_runs(spans: Sequence[QueueSpan]) -> list[list[QueueSpan]]:
    """Group spans into runs. One read covers a run, with the small gaps between its spans.

    What is gone is in none.
    """
    runs: list[list[QueueSpan]] = []
    for span in spans:
        if span.is_gone:
            continue
        if runs:
            run = runs[-1]
            end = run[-1].place + run[-1].size
            near = 0 <= span.place - end <= READ_GAP_MAX
            if near and span.place + span.size - run[0].place <= READ_SIZE_MAX:
                run.append(span)
                continue
        runs.append([span])
    return runs


def read_batches(log: SpanReader, spans: Sequence[QueueSpan]) -> list[memoryview]:
    """Read batches from disk and check each; DamagedBatch naming file and position.

    For a row that is gone: no bytes. A batch that fails its check is read once more: only damage
    that stays is on the disk.
    """
    batches: list[memoryview] = []
    for run in read_runs(spans):
        start = run[0].place
        size = run[-1].place + run[-1].size - start
        data = memoryview(log.read_span(Span(Position(start), size)))
        for span in run:
            place = Position(span.place)
            batch = data[place - start : place - start + span.size]
            if not is_sound(batch, span.size):
                batch = memoryview(log.read_span(Span(place, span.size)))
                if not is_sound(batch, span.size):
                    raise DamagedBatch(
                        f"{log.path_of(place)}: the batch at position "
                        f"{place}, {span.size} bytes, offset {span.base_offset}, does not "
                        "match its checksum",
                        place,
                    )
            batches.append(batch)
    return _with_gone(spans, batches)


def _with_gone(spans: Sequence[QueueSpan], batches: list[memoryview]) -> list[memoryview]:
    """Return one batch for each span, without bytes for those that are gone."""
    if len(batches) == len(spans):
        return batches
    following = iter(batches)
    return [memoryview(b"") if span.is_gone else next(following) for span in spans]


def read_batch(log: SpanReader, place: int, size: int) -> memoryview:
    """Read the batch that lies at a place, and check it; DamagedBatch. Size 0: it is not known."""
    size = size or size_of_batch(log, place)
    (batch,) = read_batches(log, [QueueSpan(-1, place, 0, 0, size, 0)])
    return batch


def size_of_batch(log: SpanReader, place: int) -> int:
    """Return the size of the batch that lies at a place; DamagedBatch when none does. Blocks."""
    head = log.read_span(Span(Position(place), BATCH_HEADER_SIZE))
    try:
        return parse_header(head).size
    except DledgerError as error:
        raise DamagedBatch(
            f"{log.path_of(Position(place))}: no batch begins at position {place}: {error}",
            place,
        ) from error


def batches_in_memory(log: CommitLog, spans: Sequence[QueueSpan]) -> list[memoryview] | None:
    """Return the batches from the tail cache, checked; None when one is missing or damaged."""
    batches: list[memoryview] = []
    for span in spans:
        if span.is_gone:
            continue
        found = log.tail_span(Span(Position(span.place), span.size))
        if found is None:
            return None
        whole = found[0] if len(found) == 1 else memoryview(b"".join(found))
        if not is_sound(whole, span.size):
            return None  # the copy on disk may be sound
        batches.append(whole)
    return _with_gone(spans, batches)


def is_cut(span: QueueSpan) -> bool:
    """Tell whether a reference's record is sent without the rest of its batch, which is large."""
    return span.is_reference and span.record_count == 1 and span.size > CUT_ABOVE_SIZE


def cut_reference(row: FetchRow, batch: memoryview) -> tuple[FetchRow, memoryview]:
    """Return the one record of a checked batch as a batch, and its row. Blocks.

    A batch that holds no other record, or cannot be decoded, is sent as it is.
    """
    view = BatchView(batch)
    if view.header.record_count == 1:
        return row, batch
    try:
        cut = cut_record(view, row.first_record)
    except DledgerError:
        return row, batch
    return row._replace(first_record=0, size=len(cut)), memoryview(cut)
