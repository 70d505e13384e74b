"""One fetch stream: what is committed, from memory or disk, checked, with long polling.

Owns: the order in which assignments are served, the size of frames, the check of every batch's
CRC (I15), the wait for new data. Not owned: where batches lie (the state), their bytes (the log).

New data is in the log's tail cache and is sent without leaving the loop's thread. Old data is read
by the pool, which also checks and joins it, one frame ahead of what is being sent. A frame that
the reader does not take in STREAM_STALL_MS ends the stream, so that what it holds is bounded in
time as well as in size.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, Protocol

from crc32c import crc32c

from dledger.log.errors import DamagedFile
from dledger.state.queries import Queries
from dledger.state.values import QueueSpan
from dledger.types import Position, QueueOffset, Span
from dledger_broker.group.long_poll import LongPoll
from dledger_broker.rpc.admission import AdmissionControl, Bound
from dledger_proto.batch.codec import BATCH_MAGIC
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import FRAME_ROWS_MAX, FRAME_SIZE_MAX, FRAME_SIZE_TARGET, KIB, MIB
from dledger_proto.rpc.frames import FetchRow, encode_fetch
from dledger_proto.rpc.stall import within_stall_limit

WAIT_DEFAULT_MS: Final = 15_000
WAIT_MIN_MS: Final = 10
WAIT_MAX_MS: Final = 60_000
FRAME_COPIES: Final = 2
"""A frame that waits to be taken exists twice: as ours and as gRPC's."""
READ_GAP_MAX: Final = 64 * KIB
"""Batches that lie this near to each other are read at once, with what lies between."""
READ_SIZE_MAX: Final = 4 * MIB
FRAME_DATA_MAX: Final = FRAME_SIZE_MAX - MIB

_BATCH_START = struct.Struct("<4sII")


class DamagedBatch(Exception):
    """A committed batch on this member's disk does not match its checksum."""


STORAGE_ERRORS: Final = (DamagedBatch, DamagedFile, OSError)
"""What reading raises when the storage failed: the member ends (I16)."""


class SpanReader(Protocol):
    """Log bytes on disk."""

    def read_span(self, span: Span) -> bytes:
        """Return the bytes, reading from disk; thread-safe."""
        ...

    def path_of(self, position: Position) -> str:
        """Return the file that holds a position; thread-safe."""
        ...


class LogReader(SpanReader, Protocol):
    """The part of the commit log that serves batches."""

    def tail_span(self, span: Span) -> list[memoryview] | None:
        """Return the bytes from the tail cache; None when they are not there. No I/O."""
        ...


@dataclass(slots=True)
class Assignment:
    """One assignment: a queue and how far it was served."""

    number: int
    topic_id: bytes
    queue: int
    offset: QueueOffset
    is_over: bool = False
    refusal: DledgerError | None = None
    """Why it cannot be read at all; told in its only frame."""


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """What the reader asked for, within our limits."""

    max_bytes: int
    wait_ms: int
    once: bool
    with_positions: bool = False

    @classmethod
    def of(
        cls, max_bytes: int, wait_ms: int, *, once: bool, with_positions: bool = False
    ) -> "FetchOptions":
        """Apply defaults and limits; zero is the default, of `wait_ms` only when not `once`."""
        wait = min(wait_ms, WAIT_MAX_MS)
        if not once:
            wait = max(wait or WAIT_DEFAULT_MS, WAIT_MIN_MS)
        limit = min(max_bytes or FRAME_SIZE_TARGET, FRAME_DATA_MAX)
        return cls(limit, wait, once, with_positions)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A frame ready to be sent, and whether the disk was needed for it."""

    frame: bytes
    next_offset: QueueOffset
    was_cold: bool
    is_error: bool = False


class _Message:
    """Frames that are sent together, counted from the first on until they are sent or given up."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._size = 0
        self._frames: list[bytes] = []

    def has_room(self, frame: bytes, size_max: int) -> bool:
        """Return whether the frame may join those that are there; one alone always may."""
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
        """Begin the next: what was taken is sent, what was not is given up."""
        self._bound.give(FRAME_COPIES * self._size)
        self._frames, self._size = [], 0


Send = Callable[[bytes], Awaitable[None]]


class Freshness(Protocol):
    """Confirmed state, for answers that an old state must not give (D10)."""

    async def confirm(self) -> None:
        """Return once everything committed before the call is applied here; DledgerError if not."""
        ...


class FetchSession:
    """One stream of frames."""

    def __init__(
        self,
        queries: Queries,
        log: LogReader,
        pool: Executor,
        long_poll: LongPoll,
        admission: AdmissionControl,
        freshness: Freshness,
        on_damage: Callable[[Exception], None],
    ) -> None:
        self._queries = queries
        self._log = log
        self._pool = pool
        self._long_poll = long_poll
        self._admission = admission
        self._freshness = freshness
        self._on_damage = on_damage
        self._ahead: tuple[Assignment, asyncio.Task[Prepared | None]] | None = None

    async def run(self, sources: Sequence[Assignment], wanted: FetchOptions, send: Send) -> None:
        """Serve until the client leaves, every assignment failed, or `once` is done."""
        try:
            waited = wanted.once and wanted.wait_ms == 0
            while any(not source.is_over for source in sources):
                if await self._round(sources, wanted, send, with_empty=waited):
                    waited = False
                    continue
                if waited and wanted.once:
                    return
                waited = not await self._wait(sources, wanted.wait_ms)
        finally:
            if self._ahead is not None:
                self._ahead[1].cancel()

    async def _round(
        self, sources: Sequence[Assignment], wanted: FetchOptions, send: Send, *, with_empty: bool
    ) -> bool:
        """Send at most one frame for each assignment; True when one carried data or an error.

        Frames share a message, up to the size that one may have now: a reader pays for messages,
        and one that is busy would fall behind what a frame of its own for each queue tells it.
        Empty frames are the answer of `once`; of a stream that goes on one says that it lives.
        """
        any_sent = False
        message = _Message(self._admission.fetch_bytes)

        async def put(frame: bytes) -> None:
            if not message.has_room(frame, self._admission.fetch_frame_bytes(wanted.max_bytes)):
                await self._send(message, send)
            message.add(frame)

        try:
            for source in sources:
                if source.is_over:
                    continue
                prepared = await self._next(source, wanted)
                if prepared is None:
                    if with_empty:
                        await put(self._empty(source))
                        source.is_over = with_empty = wanted.once
                    continue
                any_sent = True
                source.offset = prepared.next_offset
                source.is_over = prepared.is_error or wanted.once
                if prepared.was_cold and not source.is_over and self._ahead is None:
                    task = asyncio.get_running_loop().create_task(self._prepare(source, wanted))
                    self._ahead = (source, task)
                await put(prepared.frame)
            await self._send(message, send)
        finally:
            message.clear()
        return any_sent

    async def _send(self, message: "_Message", send: Send) -> None:
        if frames := message.take():
            await within_stall_limit(send, "fetch again")(frames)
        message.clear()

    async def _wait(self, sources: Sequence[Assignment], wait_ms: int) -> bool:
        """Wait for an arrival on any queue; False when the time passed without one."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        live = [source for source in sources if not source.is_over]
        ticket = self._long_poll.wait([(each.topic_id, each.queue) for each in live], wake)
        if any(self._has_more(source) for source in live):
            wake()  # it came while another assignment was being looked at
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await woken
        except TimeoutError:
            return False
        finally:
            self._long_poll.cancel(ticket)
        return True

    def _has_more(self, source: Assignment) -> bool:
        try:
            bounds = self._queries.queue_bounds(source.topic_id, source.queue)
        except DledgerError:
            return True  # the next look tells the client
        return bounds[1] > source.offset

    def _empty(self, source: Assignment) -> bytes:
        minimum, maximum = self._queries.queue_bounds(source.topic_id, source.queue)
        return encode_fetch(
            (),
            (),
            assignment=source.number,
            min_offset=minimum,
            max_offset=maximum,
            next_offset=source.offset,
        )

    async def _next(self, source: Assignment, wanted: FetchOptions) -> Prepared | None:
        ahead = self._ahead
        if ahead is not None and ahead[0] is source:
            self._ahead = None
            return await ahead[1]
        return await self._prepare(source, wanted)

    async def _prepare(self, source: Assignment, wanted: FetchOptions) -> Prepared | None:
        """Return the next frame of an assignment; None when nothing is new."""
        queries = self._queries
        minimum = maximum = -1
        try:
            if source.refusal is not None:
                raise source.refusal
            minimum, maximum = queries.queue_bounds(source.topic_id, source.queue)
            if source.offset > maximum:
                maximum = await self._confirmed_maximum(source, maximum)
            _check_range(source.offset, minimum, maximum)
            if source.offset == maximum:
                return None
            limit = self._admission.fetch_frame_bytes(wanted.max_bytes)
            spans = queries.spans(source.topic_id, source.queue, source.offset, limit)
            spans = spans[:FRAME_ROWS_MAX]
            if not spans:
                return None
            return await self._load(
                source, minimum, maximum, spans, with_positions=wanted.with_positions
            )
        except STORAGE_ERRORS as error:
            self._on_damage(error)
            code, detail = Code.STORAGE_FAILED, str(error)
        except DledgerError as error:
            if error.code in (Code.NO_LEADER, Code.NOT_LEADER):
                return None  # past this member's end and nobody to ask: wait (D10)
            code, detail = error.code, error.detail
        frame = encode_fetch(
            (),
            (),
            assignment=source.number,
            min_offset=minimum,
            max_offset=maximum,
            next_offset=source.offset,
            code=code,
            detail=detail,
        )
        return Prepared(frame, source.offset, was_cold=False, is_error=True)

    async def _confirmed_maximum(self, source: Assignment, maximum: int) -> int:
        await self._freshness.confirm()
        return max(maximum, self._queries.queue_bounds(source.topic_id, source.queue)[1])

    async def _load(
        self,
        source: Assignment,
        minimum: int,
        maximum: int,
        spans: Sequence[QueueSpan],
        *,
        with_positions: bool,
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
        last = spans[-1]
        next_offset = QueueOffset(last.base_offset + last.record_count)

        def frame_of(batches: Sequence[memoryview]) -> bytes:
            return encode_fetch(
                rows,
                batches,
                assignment=source.number,
                min_offset=minimum,
                max_offset=maximum,
                next_offset=next_offset,
                with_positions=with_positions,
            )

        parts = self._from_tail(spans)
        if parts is not None:
            return Prepared(frame_of(parts), next_offset, was_cold=False)

        def job() -> bytes:
            return frame_of(read_batches(self._log, spans))

        frame = await asyncio.get_running_loop().run_in_executor(self._pool, job)
        return Prepared(frame, next_offset, was_cold=True)

    def _from_tail(self, spans: Sequence[QueueSpan]) -> list[memoryview] | None:
        """Return the batches from the tail cache, checked; None when one is not there, or bad."""
        parts: list[memoryview] = []
        for span in spans:
            found = self._log.tail_span(Span(Position(span.position), span.size))
            if found is None:
                return None
            whole = found[0] if len(found) == 1 else memoryview(b"".join(found))
            if not is_sound(whole, span.size):
                return None  # the disk may hold it better than memory did
            parts.append(whole)
        return parts


def _check_range(offset: int, minimum: int, maximum: int) -> None:
    if not minimum <= offset <= maximum:
        raise DledgerError(
            Code.OFFSET_OUT_OF_RANGE, f"offset {offset}, the queue holds {minimum} to {maximum}"
        )


def is_sound(batch: memoryview, size: int) -> bool:
    """Tell whether the bytes are one batch of `size` bytes that matches its checksum (I15)."""
    if len(batch) != size:
        return False
    magic, crc, said = _BATCH_START.unpack_from(batch)
    return bool(magic == BATCH_MAGIC and said == size and crc32c(batch[8:]) == crc)


def read_runs(spans: Sequence[QueueSpan]) -> list[list[QueueSpan]]:
    """Group spans into runs that one read covers, with small gaps between."""
    runs: list[list[QueueSpan]] = []
    for span in spans:
        if runs:
            run = runs[-1]
            end = run[-1].position + run[-1].size
            near = 0 <= span.position - end <= READ_GAP_MAX
            if near and span.position + span.size - run[0].position <= READ_SIZE_MAX:
                run.append(span)
                continue
        runs.append([span])
    return runs


def read_batches(log: SpanReader, spans: Sequence[QueueSpan]) -> list[memoryview]:
    """Read batches from disk and check each; DamagedBatch naming file and position.

    What fails its check is read once more: only damage that stays is the disk's.
    """
    found: list[memoryview] = []
    for run in read_runs(spans):
        start = run[0].position
        size = run[-1].position + run[-1].size - start
        data = memoryview(log.read_span(Span(Position(start), size)))
        for span in run:
            batch = data[span.position - start : span.position - start + span.size]
            if not is_sound(batch, span.size):
                batch = memoryview(log.read_span(Span(Position(span.position), span.size)))
                if not is_sound(batch, span.size):
                    raise DamagedBatch(
                        f"{log.path_of(Position(span.position))}: the batch at position "
                        f"{span.position}, {span.size} bytes, offset {span.base_offset}, does not "
                        "match its checksum"
                    )
            found.append(batch)
    return found
