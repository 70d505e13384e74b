"""One fetch stream: what is committed, from memory or disk, checked, with long polling.

Owns: the order in which assignments are served, the size of frames, the wait for new data. Not
owned: what may be asked (`assignments`), the batches and their check (`batches`).

New data is in the log's tail cache, and the loop's thread sends it. The pool reads, checks and
joins old data, one frame ahead of the frame that is being sent. A frame that the reader does not
take within STREAM_STALL_MS ends the stream. So what the stream holds is bounded in time and in
size.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
from dledger_broker.rpc.admission import AdmissionControl, Bound
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import FRAME_ROWS_MAX
from dledger_proto.rpc.frames import FetchRow, RowOrigin, encode_fetch
from dledger_proto.rpc.stall import within_stall_limit

FRAME_COPIES: Final = 2
"""A frame that the reader has not taken exists twice: here and in gRPC."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A frame ready to be sent, and whether the disk was needed for it."""

    frame: bytes
    next_offset: QueueOffset
    was_cold: bool
    is_error: bool = False


class _Message:
    """Frames that are sent together. They are counted until they are sent or given up."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._size = 0
        self._frames: list[bytes] = []

    def has_room(self, frame: bytes, size_max: int) -> bool:
        """Return whether the frame may join the others; the first frame always may."""
        return not self._frames or self._size + len(frame) <= size_max

    def add(self, frame: bytes) -> None:
        """Put a frame behind the others."""
        self._frames.append(frame)
        self._size += len(frame)
        self._bound.take_regardless(FRAME_COPIES * len(frame))

    def take(self) -> bytes:
        """Return all frames as one message, empty when there are none; `clear` follows."""
        frames, self._frames = self._frames, []
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def clear(self) -> None:
        """Begin the next message: taken frames are sent, the others are given up."""
        self._bound.give(FRAME_COPIES * self._size)
        self._frames, self._size = [], 0


Send = Callable[[bytes], Awaitable[None]]


class FetchSession:
    """One stream of frames."""

    def __init__(self, view: GroupView, admission: AdmissionControl) -> None:
        self._view = view
        self._queries = view.machine.queries
        self._log = view.log
        self._admission = admission
        self._ahead: tuple[Assignment, asyncio.Task[Prepared | None]] | None = None

    async def run(
        self, assignments: Sequence[Assignment], options: FetchOptions, send: Send
    ) -> None:
        """Serve until the client leaves, every assignment failed, or `once` is done."""
        try:
            waited = options.once and options.wait_ms == 0
            while any(not assignment.is_over for assignment in assignments):
                if await self._round(assignments, options, send, with_empty=waited):
                    waited = False
                    continue
                if waited and options.once:
                    return
                waited = not await self._wait(assignments, options.wait_ms)
        finally:
            if self._ahead is not None:
                self._ahead[1].cancel()

    async def _round(
        self,
        assignments: Sequence[Assignment],
        options: FetchOptions,
        send: Send,
        *,
        with_empty: bool,
    ) -> bool:
        """Send at most one frame for each assignment; True when one carried data or an error.

        Frames share a message, up to the size that a message may have now. A reader pays for each
        message, and a busy reader would fall behind if each queue sent a message of its own. With
        `once`, an empty frame is an answer. On a stream, one empty frame shows that it is alive.
        """
        any_sent = False
        message = _Message(self._admission.fetch_bytes)

        async def put(frame: bytes) -> None:
            if not message.has_room(frame, self._admission.fetch_frame_bytes(options.max_bytes)):
                await self._send(message, send)
            message.add(frame)

        try:
            for assignment in assignments:
                if assignment.is_over:
                    continue
                prepared = await self._next(assignment, options)
                if prepared is None:
                    if with_empty:
                        await put(self._empty(assignment))
                        assignment.is_over = with_empty = options.once
                    continue
                any_sent = True
                assignment.offset = prepared.next_offset
                assignment.is_over = prepared.is_error or options.once
                if prepared.was_cold and not assignment.is_over and self._ahead is None:
                    task = asyncio.get_running_loop().create_task(
                        self._prepare(assignment, options)
                    )
                    self._ahead = (assignment, task)
                await put(prepared.frame)
            await self._send(message, send)
        finally:
            message.clear()
        return any_sent

    async def _send(self, message: "_Message", send: Send) -> None:
        if frames := message.take():
            await within_stall_limit(send, "fetch again")(frames)
        message.clear()

    async def _wait(self, assignments: Sequence[Assignment], wait_ms: int) -> bool:
        """Wait for an arrival on any queue; False when the time passed without one."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        live = [assignment for assignment in assignments if not assignment.is_over]
        ticket = self._view.long_poll.wait([(each.topic_id, each.queue) for each in live], wake)
        if any(self._has_more(assignment) for assignment in live):
            wake()  # a batch arrived while the session looked at another assignment
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await woken
        except TimeoutError:
            return False
        finally:
            self._view.long_poll.cancel(ticket)
        return True

    def _has_more(self, assignment: Assignment) -> bool:
        try:
            bounds = self._queries.queue_bounds(assignment.topic_id, assignment.queue)
        except DledgerError:
            return True  # the next look tells the client about the error
        return bounds[1] > assignment.offset

    def _empty(self, assignment: Assignment) -> bytes:
        minimum, maximum = self._queries.queue_bounds(assignment.topic_id, assignment.queue)
        return encode_fetch(
            (),
            (),
            assignment=assignment.number,
            min_offset=minimum,
            max_offset=maximum,
            next_offset=assignment.offset,
        )

    async def _next(self, assignment: Assignment, options: FetchOptions) -> Prepared | None:
        ahead = self._ahead
        if ahead is not None and ahead[0] is assignment:
            self._ahead = None
            return await ahead[1]
        return await self._prepare(assignment, options)

    async def _prepare(self, assignment: Assignment, options: FetchOptions) -> Prepared | None:
        """Return the next frame of an assignment; None when nothing is new."""
        queries = self._queries
        minimum = maximum = -1
        try:
            if assignment.refusal is not None:
                raise assignment.refusal
            minimum, maximum = queries.queue_bounds(assignment.topic_id, assignment.queue)
            if assignment.offset > maximum:
                await self._view.confirm()
                _, now = queries.queue_bounds(assignment.topic_id, assignment.queue)
                maximum = max(maximum, now)
            _check_range(assignment.offset, minimum, maximum)
            if assignment.offset == maximum:
                return None
            limit = self._admission.fetch_frame_bytes(options.max_bytes)
            spans = queries.spans(assignment.topic_id, assignment.queue, assignment.offset, limit)
            spans = spans[:FRAME_ROWS_MAX]
            if not spans:
                return None
            try:
                return await self._load(assignment, minimum, maximum, spans, options)
            except SpanGone:  # trimmed or carried forward since: the state knows it by now
                spans = queries.spans(assignment.topic_id, assignment.queue, assignment.offset, 1)
                return await self._load(assignment, minimum, maximum, spans[:1], options)
        except STORAGE_ERRORS as error:
            self._view.host.failed(error)
            code, detail = Code.STORAGE_FAILED, str(error)
        except DledgerError as error:
            if error.code in (Code.NO_LEADER, Code.NOT_LEADER):
                return None  # behind this member's end, and no leader to ask: wait (D10)
            code, detail = error.code, error.detail
        frame = encode_fetch(
            (),
            (),
            assignment=assignment.number,
            min_offset=minimum,
            max_offset=maximum,
            next_offset=assignment.offset,
            code=code,
            detail=detail,
        )
        return Prepared(frame, assignment.offset, was_cold=False, is_error=True)

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

    async def _load(
        self,
        assignment: Assignment,
        minimum: int,
        maximum: int,
        spans: Sequence[QueueSpan],
        options: FetchOptions,
    ) -> Prepared:
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
        last = spans[-1]
        next_offset = QueueOffset(last.base_offset + last.record_count)

        def frame_of(batches: Sequence[memoryview]) -> bytes:
            return encode_fetch(
                rows,
                batches,
                assignment=assignment.number,
                min_offset=minimum,
                max_offset=maximum,
                next_offset=next_offset,
                with_positions=options.with_positions,
                origins=origins,
            )

        parts = batches_in_memory(self._log, spans)
        if parts is not None and not cuts:
            self._count(assignment, spans)
            return Prepared(frame_of(parts), next_offset, was_cold=False)

        def job() -> bytes:
            batches = parts or read_batches(self._log, spans)
            for at in cuts:
                rows[at], batches[at] = cut_reference(rows[at], batches[at])
            return frame_of(batches)

        frame = await asyncio.get_running_loop().run_in_executor(self._view.pool, job)
        self._count(assignment, spans)
        return Prepared(frame, next_offset, was_cold=True)

    def _count(self, assignment: Assignment, spans: Sequence[QueueSpan]) -> None:
        records = sum(span.record_count for span in spans)
        size = sum(span.size for span in spans)
        self._view.meters.fetched.add(assignment.topic_id, records, size)


def _check_range(offset: int, minimum: int, maximum: int) -> None:
    if not minimum <= offset <= maximum:
        raise DledgerError(
            Code.OFFSET_OUT_OF_RANGE, f"offset {offset}, the queue holds {minimum} to {maximum}"
        )
