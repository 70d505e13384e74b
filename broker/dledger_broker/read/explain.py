"""What became of a record, told from the log: one page of its story at a time.

Owns: where a story begins, which entries are read, what one page costs. Not: what the commands mean
(`story.py`). Batches are passed over by their headers, so a page reads little of them.
"""

import asyncio
from functools import partial
from typing import Any, Final, NamedTuple

from dledger.log.commit_log import CommitLog
from dledger.log.errors import DamagedLog, SpanGone
from dledger.state.commands.command import Command
from dledger.state.commands.registry import decode
from dledger.state.queries import Queries
from dledger.types import LogIndex, Position, Span
from dledger_broker.group.group_view import GroupView
from dledger_broker.read.batches import STORAGE_ERRORS, SpanReader
from dledger_broker.read.story import (
    TOLD,
    Line,
    Moment,
    Place,
    Story,
    decode_cursor,
    encode_cursor,
)
from dledger_proto.entry import (
    ENTRY_HEADER_SIZE_MAX,
    KIND_COMMANDS,
    CorruptEntry,
    decode_entry,
    parse_entry_header,
)
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import KIB, MIB

BLOCK: Final = 256 * KIB
PAGE_READ_MAX: Final = 8 * MIB
"""Bytes that one page reads, and one entry more."""
PAGE_LINES_MAX: Final = 1_000
"""Lines after which a page ends, at the end of an entry."""
CURSOR_SIZE_MAX: Final = MIB

assert BLOCK >= ENTRY_HEADER_SIZE_MAX, "a block from an entry's start holds its header"


class Told(NamedTuple):
    """An entry that a story may look at, and its commands; none: of another kind."""

    moment: Moment
    commands: list[Command[Any]]


class Page(NamedTuple):
    """Lines, and where the next page begins; empty: the log is told to its end."""

    lines: list[Line]
    cursor: bytes


async def explain(view: GroupView, turns: asyncio.Semaphore, story: Story, cursor: bytes) -> Page:
    """Return one page of a story; its first page begins with an empty cursor.

    HEAD_TRIMMED when the log does not hold the entry any more with which the page begins.
    """
    if len(cursor) > CURSOR_SIZE_MAX:
        raise invalid(f"cursor has {len(cursor)} bytes, at most {CURSOR_SIZE_MAX}")
    try:
        async with turns:
            return await _page(view, story, cursor)
    except SpanGone as error:
        raise DledgerError(
            Code.HEAD_TRIMMED, f"the log begins at entry {view.log.first_index}: {error}"
        ) from error
    except STORAGE_ERRORS as error:
        view.host.failed(error)
        raise DledgerError(Code.STORAGE_FAILED, str(error)) from error


async def _page(view: GroupView, story: Story, cursor: bytes) -> Page:
    log, queries = view.log, view.machine.queries
    last = min(view.machine.applied_index, log.written_index)
    end = log.ref(last).position + log.ref(last).size
    if cursor:
        try:
            index, story = decode_cursor(cursor)
        except ValueError as error:
            raise invalid(f"cursor: {error}; must be the one of the answer before") from None
        if not 1 <= index <= last:
            raise invalid(f"cursor: entry {index}, this member has 1 to {last}")
    else:
        index = await _entry_at(log, min(place.opened_by for place in story.places))
    position: int = log.ref(LogIndex(index)).position
    if not cursor:
        _start_at(story, position)
    wanted = frozenset(place.opened_by for place in story.places if not place.is_open)
    lines: list[Line] = []
    read = 0
    loop = asyncio.get_running_loop()
    while position < end and read < PAGE_READ_MAX and len(lines) < PAGE_LINES_MAX:
        job = partial(read_told, log, position, end, wanted)
        told, position, index = await loop.run_in_executor(view.pool, job)
        read += BLOCK
        for moment, commands in told:
            lines += story.take(queries, moment, None)
            for command in commands:
                lines += story.take(queries, moment, command)
    return Page(lines, encode_cursor(index, story) if position < end else b"")


def _start_at(story: Story, position: int) -> None:
    """Name the entry that holds a batch, where so far only the batch was known."""
    first = min(story.places, key=lambda place: place.opened_by)
    first.opened_by = position


async def _entry_at(log: CommitLog, position: int) -> int:
    """Return the index of the entry that holds a position of the log."""
    low, high = log.first_index, log.last_index
    if position < log.first_position:
        raise SpanGone(f"position {position} is trimmed")
    while low < high:
        middle = LogIndex((low + high + 1) // 2)
        if log.ref(middle).position <= position:
            low = middle
        else:
            high = LogIndex(middle - 1)
        await asyncio.sleep(0)  # each look may be a short read
    return low


def read_told(
    log: SpanReader, position: int, end: int, wanted: frozenset[int]
) -> tuple[list[Told], int, int]:
    """Return what one block of the log tells; position and index of the entry behind. Blocks.

    The entries of commands that a story looks at, and the entries at the `wanted` positions.
    """
    block = log.read_span(Span(Position(position), min(BLOCK, end - position)))
    told: list[Told] = []
    at = index = 0
    while at < len(block):
        try:
            header = parse_entry_header(block, at)
            if header.kind == KIND_COMMANDS and len(block) - at < header.size:
                if at:
                    break  # it ends in the next block: read it from its start
                block = log.read_span(Span(Position(position), header.size))
            commands: list[Command[Any]] = []
            if header.kind == KIND_COMMANDS:
                entry = decode_entry(block, at, check_payloads=True)
                commands = [decode(payload) for payload in entry.payloads]
                commands = [command for command in commands if isinstance(command, TOLD)]
        except CorruptEntry as error:
            if at:
                break  # damaged, or it ends in the next block, where it is read from its start
            reason = f"the entry at position {position} is damaged: {error}"
            path = log.path_of(Position(position))
            raise DamagedLog(path, Position(position), "READ", reason) from error
        if commands or header.position in wanted:
            told.append(Told(Moment(header.index, header.time_ms, header.position), commands))
        at += header.size
        index = header.index + 1
    return told, position + at, index


def story_at(queries: Queries, topic_id: bytes, queue: int, offset: int) -> Story:
    """Return the story of the record at an offset. OFFSET_OUT_OF_RANGE."""
    span = queries.lookup_offset(topic_id, queue, offset)
    topic = topic_id.hex()
    own = topic, queue, offset
    if not span.is_reference:
        text = f"stored in a batch of {span.record_count} records"
        return Story([Place(topic, queue, offset, span.position, "stored", text, own)])
    appended_at, stored_ms, origin = queries.referred(topic_id, queue, span.base_offset)
    if origin is None:
        text = "stored, to be delivered later"
        batch = Place(topic, queue, offset, span.position, "accepted", text, own, is_told_only=True)
        text = f"put into the queue, {span.store_time_ms - stored_ms} ms after it was stored"
        return Story([batch, Place(topic, queue, offset, appended_at, "delivered", text, own)])
    first = origin.topic_id.hex(), origin.queue, origin.offset
    name = queries.topic_by_id(origin.topic_id)
    shown = first[0] if name is None else name.name
    text = f"refers to {shown}/{origin.queue}@{origin.offset}, which failed {origin.attempts} times"
    place = Place(
        topic, queue, offset, appended_at, "referred", text, first,
        attempts=origin.attempts, resent=origin.resent,
    )  # fmt: skip
    return Story([place])
