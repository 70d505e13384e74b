"""The next frame of an assignment: from memory at once, or by a job of the pool that reads it.

Owns: what a frame holds, and what an error makes of it. Not owned: whose turn it is (`portions`),
the batches and their check (`batches`).

New data is in the log's tail cache, and the loop's thread takes it from there. The pool reads,
checks and joins old data, for many frames in one job: a job of its own for each queue costs more
than it reads where a stream reads thousands of queues.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dledger.log.errors import SpanGone
from dledger.state.values import QueueSpan
from dledger.types import QueueOffset
from dledger_broker.group.group_view import GroupView
from dledger_broker.read.assignments import Assignment, FetchOptions
from dledger_broker.read.batches import (
    STORAGE_ERRORS,
    batches_in_memory,
    cut_reference,
    is_cut,
    read_batches,
)
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import FRAME_ROWS_MAX
from dledger_proto.rpc.frames import FetchRow, RowOrigin, encode_fetch

FAILURES: Final = (*STORAGE_ERRORS, DledgerError)
Bounds = tuple[int, int]
"""The minimum and the maximum offset of a queue; -1 where they are not known."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A frame ready to be sent."""

    frame: bytes
    next_offset: QueueOffset
    is_error: bool = False

    @property
    def size(self) -> int:
        """Return the bytes of the frame."""
        return len(self.frame)


@dataclass(frozen=True, slots=True)
class Unread:
    """A frame whose batches are on disk."""

    assignment: Assignment
    options: FetchOptions
    bounds: Bounds
    spans: Sequence[QueueSpan]
    encode: Callable[[], bytes]
    """Reads the batches and returns the frame. Blocks."""

    @property
    def size(self) -> int:
        """Return the bytes of the batches."""
        return sum(span.size for span in self.spans)

    def read(self) -> bytes | Exception:
        """Return the frame, or why it cannot be read. Blocks."""
        try:
            return self.encode()
        except FAILURES as error:
            return error


class Frames:
    """The frames of one group."""

    def __init__(self, view: GroupView) -> None:
        self._view = view
        self._queries = view.machine.queries
        self._log = view.log

    def empty(self, assignment: Assignment) -> Prepared:
        """Return a frame that says that nothing is new, or why the queue cannot be read now."""
        try:
            bounds = self._bounds(assignment)
        except FAILURES as error:
            return self._error(assignment, error, (-1, -1))
        return Prepared(self._without_rows(assignment, bounds), assignment.offset)

    def has_more(self, assignment: Assignment) -> bool:
        """Return whether there is a next frame."""
        try:
            return self._bounds(assignment)[1] > assignment.offset
        except DledgerError:
            return True  # the next look tells the client about the error

    async def look(
        self, assignment: Assignment, options: FetchOptions, limit: int
    ) -> Prepared | Unread | None:
        """Return the next frame, of about `limit` bytes at most; None when nothing is new."""
        bounds: Bounds = (-1, -1)
        try:
            if assignment.refusal is not None:
                raise assignment.refusal
            bounds = self._bounds(assignment)
            if assignment.offset > bounds[1]:
                await self._view.confirm()
                bounds = bounds[0], max(bounds[1], self._bounds(assignment)[1])
            _check_range(assignment.offset, *bounds)
            if assignment.offset == bounds[1]:
                return None
            spans = self._queries.spans(
                assignment.topic_id, assignment.queue, assignment.offset, limit
            )
            return self._of(assignment, options, bounds, spans[:FRAME_ROWS_MAX])
        except FAILURES as error:
            if isinstance(error, DledgerError) and error.code in (Code.NO_LEADER, Code.NOT_LEADER):
                return None  # behind this member's end, and no leader to ask: wait (D10)
            return self._error(assignment, error, bounds)

    async def read(self, unread: Sequence[Unread]) -> list[Prepared | None]:
        """Read frames in one job of the pool; None where nothing is left of one."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._view.pool, lambda: [each.read() for each in unread]
        )
        return [await self._outcome(each, frame) for each, frame in zip(unread, found, strict=True)]

    async def _outcome(self, unread: Unread, found: bytes | Exception) -> Prepared | None:
        assignment = unread.assignment
        if isinstance(found, SpanGone):
            # Trimmed or carried forward since: the state knows it by now.
            again = await self.look(assignment, unread.options, 1)
            if not isinstance(again, Unread):
                return again
            unread = again
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._view.pool, unread.read)
        if isinstance(found, bytes):
            self._count(assignment, unread.spans)
            return Prepared(found, _end_of(unread.spans))
        return self._error(assignment, found, unread.bounds)

    def _of(
        self,
        assignment: Assignment,
        options: FetchOptions,
        bounds: Bounds,
        spans: Sequence[QueueSpan],
    ) -> Prepared | Unread | None:
        if not spans:
            return None
        rows = [
            FetchRow(
                span.base_offset,
                span.first_record,
                span.record_count,
                span.size,
                span.store_time_ms,
                span.position,
            )
            for span in spans
        ]
        references = [at for at, span in enumerate(spans) if span.is_reference]
        origins, cuts = None, list[int]()
        if references and options.with_origins:
            origins = self._origins(assignment, spans, references)
        if references and not options.with_positions:
            cuts = [at for at in references if is_cut(spans[at])]
        in_memory = batches_in_memory(self._log, spans)

        def encode() -> bytes:
            batches = in_memory or read_batches(self._log, spans)
            for at in cuts:
                rows[at], batches[at] = cut_reference(rows[at], batches[at])
            return encode_fetch(
                rows,
                batches,
                assignment=assignment.number,
                min_offset=bounds[0],
                max_offset=bounds[1],
                next_offset=_end_of(spans),
                with_positions=options.with_positions,
                origins=origins,
            )

        if in_memory is None or cuts:
            return Unread(assignment, options, bounds, spans, encode)
        self._count(assignment, spans)
        return Prepared(encode(), _end_of(spans))

    def _error(self, assignment: Assignment, error: Exception, bounds: Bounds) -> Prepared:
        if isinstance(error, DledgerError) and not isinstance(error, STORAGE_ERRORS):
            code, detail = error.code, error.detail
        else:
            self._view.host.failed(error)
            code, detail = Code.STORAGE_FAILED, str(error)
        frame = self._without_rows(assignment, bounds, code, detail)
        return Prepared(frame, assignment.offset, is_error=True)

    def _without_rows(
        self, assignment: Assignment, bounds: Bounds, code: Code = Code.OK, detail: str = ""
    ) -> bytes:
        return encode_fetch(
            (),
            (),
            assignment=assignment.number,
            min_offset=bounds[0],
            max_offset=bounds[1],
            next_offset=assignment.offset,
            code=code,
            detail=detail,
        )

    def _bounds(self, assignment: Assignment) -> Bounds:
        return self._queries.queue_bounds(assignment.topic_id, assignment.queue)

    def _origins(
        self, assignment: Assignment, spans: Sequence[QueueSpan], references: Sequence[int]
    ) -> Mapping[int, RowOrigin]:
        """Return the origins of references, by their places among the spans."""
        origins: dict[int, RowOrigin] = {}
        for at in references:
            origin = self._queries.origin(
                assignment.topic_id, assignment.queue, spans[at].base_offset
            )
            if origin is not None:
                origins[at] = RowOrigin(*origin[:5])
        return origins

    def _count(self, assignment: Assignment, spans: Sequence[QueueSpan]) -> None:
        records = sum(span.record_count for span in spans)
        size = sum(span.size for span in spans)
        self._view.meters.fetched.add(assignment.topic_id, records, size)


def _end_of(spans: Sequence[QueueSpan]) -> QueueOffset:
    last = spans[-1]
    return QueueOffset(last.base_offset + last.record_count)


def _check_range(offset: int, minimum: int, maximum: int) -> None:
    if not minimum <= offset <= maximum:
        raise DledgerError(
            Code.OFFSET_OUT_OF_RANGE, f"offset {offset}, the queue holds {minimum} to {maximum}"
        )
