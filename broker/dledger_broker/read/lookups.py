"""Single records by key, message id and offset, cut out of their batches.

Owns: comparing keys (the index knows hashes), cutting, what one answer holds, and where the next
answer begins. Not owned: the index (`dledger.state.lookup.key_index`), the reading of batches
(`batches`).

An answer holds the wanted records and nothing else of their batches. Each record is a batch of its
own, made of bytes of a batch that this module has just checked. A new checksum covers the record on
its way to the reader (I15). The pool decompresses bodies for the answer alone, LOOKUPS_AT_ONCE jobs
at a time: a job holds one batch, its bodies and the answer. The answer names a record that cannot
be decoded, and holds the others.
"""

import asyncio
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeVar

from dledger.log.errors import SpanGone
from dledger.state.queries import Queries
from dledger.state.values import QueueSpan
from dledger_broker.group.group_view import GroupView
from dledger_broker.read.batches import STORAGE_ERRORS, SpanReader, read_batches
from dledger_proto.batch.codec import BatchView, cut_record, parse_message_id
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.keyhash import key_hash
from dledger_proto.limits import (
    LOOKUP_ANSWER_SIZE_TARGET,
    LOOKUP_LIMIT_DEFAULT,
    LOOKUP_LIMIT_MAX,
    LOOKUP_READ_SIZE_TARGET,
    OFFSET_MAX,
)

LOOKUPS_AT_ONCE: Final = 2
"""Jobs of a group in the pool: lookups leave room for fetches there."""
TRIES: Final = 4
"""How often a lookup begins anew because the head of the log was trimmed under it."""
FOUND_SIZE: Final = 128
"""The most bytes that an answer needs for a record beside the record's own bytes."""
CURSOR: Final = struct.Struct(">QI")
"""Position of the batch in which the next answer begins, and the first record that it looks at."""

T = TypeVar("T")


class Place(NamedTuple):
    """A batch, and the records to look at: from `first` on, those that are not trimmed."""

    topic_id: bytes
    queue: int
    span: QueueSpan
    first: int
    before: int = 0
    """How many records the batch had, when it came, before those of the span's batch."""

    def cursor(self, record: int) -> tuple[int, int]:
        """Return a record of the batch by the batch's position and its place when it came."""
        return self.span.position - self.before, self.before + record


@dataclass(frozen=True, slots=True)
class Found:
    """A record that a lookup found."""

    topic_id: bytes
    queue: int
    offset: int
    store_time_ms: int
    batch: bytes = b""
    """A batch of this record alone; empty when only places are wanted, or with a problem."""
    problem: DledgerError | None = None
    """Why the record cannot be decoded."""


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """What is asked by key. Limits and an empty cursor: see broker.proto."""

    topic_id: bytes
    key: bytes
    begin_ms: int = 0
    end_ms: int = 0
    limit: int = 0
    cursor: bytes = b""
    places_only: bool = False

    @property
    def wanted(self) -> int:
        """How many records one answer holds at most."""
        return min(self.limit or LOOKUP_LIMIT_DEFAULT, LOOKUP_LIMIT_MAX)

    @property
    def begins(self) -> tuple[int, int] | None:
        """Position and record where the answer begins; None: at the newest. INVALID_ARGUMENT."""
        if not self.cursor:
            return None
        if len(self.cursor) != CURSOR.size:
            raise invalid(
                f"cursor of {len(self.cursor)} bytes: must be the one of the answer before"
            )
        position, record = CURSOR.unpack(self.cursor)
        if position > OFFSET_MAX:
            raise invalid(f"cursor: no batch can be at position {position}")
        return position, record


class Answer(NamedTuple):
    """Records, and the cursor of the next answer; empty: there are no more records."""

    found: list[Found]
    cursor: bytes


class Lookups:
    """The lookups of one group."""

    def __init__(self, view: GroupView) -> None:
        self._view = view
        self._turns = asyncio.Semaphore(LOOKUPS_AT_ONCE)

    async def by_key(self, question: KeyQuestion) -> Answer:
        """Return records of a topic with this key, those of the newest batch first.

        An answer is bounded in records, in bytes, and in bytes read for it. It may hold fewer
        records than there are, even none, and then has a cursor.
        """
        await self._view.confirm()
        for _ in range(TRIES):
            with suppress(SpanGone):  # trimmed since the look at the state, which knows it by now
                return await self._answer(question)
        return await self._answer(question)

    async def _answer(self, question: KeyQuestion) -> Answer:
        places, following = places_of(self._view.machine.queries, question)
        job = partial(find_by_key, self._view.log, question, places)
        found, stopped = await self._in_pool(job)
        return Answer(found, cursor_of(stopped, following))

    async def by_message_id(self, message_id: bytes) -> Found | None:
        """Return the record of a message id; None when this group stores none."""
        producer_id, number = parse_message_id(message_id)
        queries = self._view.machine.queries
        if queries.lookup_message_id(producer_id, number) is None:
            await self._view.confirm()

        def place() -> Place | None:
            hit = queries.lookup_message_id(producer_id, number)
            return None if hit is None else Place(hit.topic_id, hit.queue, hit.span, hit.record)

        return await self._cut(place)

    async def at(self, topic_id: bytes, queue: int, offset: int, span: QueueSpan) -> Found:
        """Return the record at an offset of a queue, from the batch that holds it.

        Raises as `Queries.lookup_offset` when the batch is not there any more.
        """
        spans = [span]

        def place() -> Place:
            found = (
                spans.pop()
                if spans
                else self._view.machine.queries.lookup_offset(topic_id, queue, offset)
            )
            return Place(topic_id, queue, found, found.first_record + offset - found.base_offset)

        found = await self._cut(place)
        assert found is not None, "there is always a place"
        return found

    async def _cut(self, place: Callable[[], Place | None]) -> Found | None:
        """Return the record of a place; None: there is none. A batch may move meanwhile."""
        for tries_left in reversed(range(TRIES + 1)):
            where = place()
            if where is None:
                return None
            try:
                return await self._in_pool(partial(cut_one, self._view.log, where))
            except SpanGone:  # carried forward or trimmed: the state knows it by now
                if not tries_left:
                    raise
        return None

    async def _in_pool(self, job: Callable[[], T]) -> T:
        """Run a job that reads; STORAGE_FAILED when the storage fails: the member ends (I16)."""
        loop = asyncio.get_running_loop()
        try:
            async with self._turns:
                return await loop.run_in_executor(self._view.pool, job)
        except STORAGE_ERRORS as error:
            self._view.host.failed(error)
            raise DledgerError(Code.STORAGE_FAILED, str(error)) from error


def places_of(queries: Queries, question: KeyQuestion) -> tuple[list[Place], int | None]:
    """Return batches that hold the key's hash, and the position where the next look begins."""
    begins = question.begins
    looked = queries.lookup_key(
        question.topic_id,
        key_hash(question.key),
        question.begin_ms,
        question.end_ms,
        question.wanted,
        None if begins is None else begins[0],
    )
    places: list[Place] = []
    for queue, span, before in looked.hits:
        minimum, _ = queries.queue_bounds(question.topic_id, queue)
        first = span.first_record + max(minimum - span.base_offset, 0)
        if begins is not None and begins[0] == span.position - before:
            first = max(first, begins[1] - before)
        if first < span.first_record + span.record_count:
            places.append(Place(question.topic_id, queue, span, first, before))
    return places, looked.next_position


def cursor_of(stopped: tuple[int, int] | None, following: int | None) -> bytes:
    """Return the cursor of the next answer: where this answer stopped, or behind its batches."""
    if stopped is None and following is not None:
        stopped = following, 0
    return b"" if stopped is None else CURSOR.pack(*stopped)


def find_by_key(
    log: SpanReader, question: KeyQuestion, places: Sequence[Place]
) -> tuple[list[Found], tuple[int, int] | None]:
    """Return the records with a key in batches, and where the search stopped; None: at the end.

    Blocks. It reads the first batch whatever its size, and answers its first record.
    """
    found: list[Found] = []
    size = read = 0
    for place in places:
        if read and read + place.span.size > LOOKUP_READ_SIZE_TARGET:
            return found, place.cursor(place.first)
        read += place.span.size
        view = _checked(log, place)
        for record, problem in _with_key(view, place, question.key):
            if len(found) == question.wanted:
                return found, place.cursor(record)
            if question.places_only or problem is not None:
                row = _row(place, record, problem=problem)
            else:
                row = _cut(view, place, record)
            size += len(row.batch) + FOUND_SIZE
            if found and size > LOOKUP_ANSWER_SIZE_TARGET:
                return found, place.cursor(record)
            found.append(row)
    return found, None


def cut_one(log: SpanReader, place: Place) -> Found:
    """Return the first record of a place. Blocks."""
    return _cut(_checked(log, place), place, place.first)


def _checked(log: SpanReader, place: Place) -> BatchView:
    """Return the whole batch after checking it; DamagedBatch."""
    return BatchView(read_batches(log, [place.span])[0])


def _with_key(
    view: BatchView, place: Place, key: bytes
) -> Iterator[tuple[int, DledgerError | None]]:
    """Yield the records that have a key, and those that cannot be decoded, with the reason."""
    text = key.decode(errors="replace")
    try:
        records = view.records_with_hash(key_hash(key))
    except DledgerError as error:
        yield place.first, error  # no record of this batch can be decoded
        return
    for record in records:
        if not place.first <= record < place.span.first_record + place.span.record_count:
            continue
        try:
            if text in view.keys(record):
                yield record, None
        except DledgerError as error:
            yield record, error


def _cut(view: BatchView, place: Place, record: int) -> Found:
    try:
        return _row(place, record, cut_record(view, record))
    except DledgerError as error:
        return _row(place, record, problem=error)


def _row(
    place: Place, record: int, batch: bytes = b"", problem: DledgerError | None = None
) -> Found:
    span = place.span
    offset = span.base_offset + record - span.first_record
    return Found(place.topic_id, place.queue, offset, span.store_time_ms, batch, problem)
