"""The committed log as (index, term, crc) of every entry, for comparing members.

Reads headers only, in the pool; the header's CRC covers the CRCs of the payloads.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from dledger.log.commit_log import CommitLog
from dledger.log.errors import DamagedLog
from dledger.types import LogIndex, Position, Span
from dledger_broker.group.group_view import GroupView
from dledger_broker.read.batches import STORAGE_ERRORS
from dledger_proto.entry import (
    ENTRY_HEADER_SIZE,
    ENTRY_HEADER_SIZE_MAX,
    CorruptEntry,
    ShortEntry,
    parse_entry_header,
)
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import KIB
from dledger_proto.v1 import broker_pb2 as pb

ENTRIES_PER_REPLY: Final = 4_096
READ_BYTES: Final = 64 * KIB

assert READ_BYTES >= ENTRY_HEADER_SIZE_MAX, "a read from an entry's start holds its header"


def read_headers(
    log: CommitLog, position: int, end: int, count_max: int
) -> tuple[list[tuple[int, int, int]], int]:
    """Return (index, term, crc) of up to `count_max` entries from `position`, and where it ended.

    Blocks. DamagedLog naming file and position when an entry is damaged.
    """
    found: list[tuple[int, int, int]] = []
    while position < end and len(found) < count_max:
        span = Span(Position(position), min(READ_BYTES, end - position))
        block = log.read_span(span)
        at = 0
        while len(block) - at >= ENTRY_HEADER_SIZE and len(found) < count_max:
            try:
                header = parse_entry_header(block, at)
            except CorruptEntry as error:
                if isinstance(error, ShortEntry) and at > 0:
                    break  # the payload table ends in the next block: read the entry from its start
                damaged = Position(position + at)
                reason = f"the entry at position {damaged} is damaged: {error}"
                raise DamagedLog(log.path_of(damaged), damaged, "READ", reason) from error
            found.append((header.index, header.term, header.header_crc))
            at += header.size
        position += at
        if at == 0:
            break
    return found, position


async def log_entries(view: GroupView, from_index: int) -> AsyncGenerator[pb.LogEntriesReply]:
    """Yield the applied entries from `from_index` on; the last reply says index and digest.

    The last reply takes digest and applied index at the same moment. STORAGE_FAILED when an entry
    cannot be read as it was written; the member then ends (I15, I16).
    """
    try:
        async for reply in _replies(view, from_index):
            yield reply
    except STORAGE_ERRORS as error:
        view.host.failed(error)
        raise DledgerError(Code.STORAGE_FAILED, str(error)) from error


async def _replies(view: GroupView, from_index: int) -> AsyncGenerator[pb.LogEntriesReply]:
    log, machine = view.log, view.machine
    index = max(from_index, log.first_index, 1)
    loop = asyncio.get_running_loop()
    while True:
        applied = machine.applied_index
        if index > applied:
            yield pb.LogEntriesReply(
                first_index=index, applied_index=applied, digest=machine.digest
            )
            return
        last = log.ref(LogIndex(min(applied, index + ENTRIES_PER_REPLY - 1)))
        first = log.ref(LogIndex(index))
        end = last.position + last.size
        rows, _ = await loop.run_in_executor(
            view.pool, read_headers, log, first.position, end, ENTRIES_PER_REPLY
        )
        if not rows or rows[0][0] != index:
            raise DledgerError(Code.HEAD_TRIMMED, f"the log does not hold entry {index} any more")
        yield pb.LogEntriesReply(
            first_index=index,
            terms=[term for _, term, _ in rows],
            crcs=[crc for _, _, crc in rows],
        )
        index += len(rows)
