"""What a member gives to a peer whose copies of some entries are damaged: exactly these entries.

Owns: what leaves. Only committed entries that this member has on its own disk leave, and each byte
passes its checksums before (I15). The peer names their places, so nothing is looked up: damage of
this member beside them is not in the way. An entry that this member cannot give whole is refused,
and its own place is looked at.
"""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial

from dledger.log.commit_log import CommitLog
from dledger.log.errors import DamagedFile, SpanGone
from dledger.log.reading.walk import BadFrame
from dledger.types import LogIndex, Position, Span
from dledger_broker.group.group_view import GroupView
from dledger_broker.repair.fetching import MENDED_BYTES_MAX
from dledger_proto.entry import CorruptEntry, ShortEntry, decode_entry, parse_entry_header
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import FRAME_SIZE_TARGET
from dledger_proto.v1 import peers_pb2 as pb


async def entries_of(view: GroupView, asked: pb.ReadEntriesRequest) -> AsyncGenerator[bytes]:
    """Yield the frames of the entries that a peer names; DledgerError when this member has not all.

    It has said nothing wrong when it ends early: the peer checks what it got.
    """
    log = view.log
    last = min(view.host.group.commit_index, log.durable_index)
    if not 0 < asked.first_index <= asked.last_index or asked.position >= asked.end_position:
        raise invalid(f"entries {asked.first_index} to {asked.last_index} are none")
    if asked.end_position - asked.position > MENDED_BYTES_MAX:
        raise invalid(
            f"{asked.end_position - asked.position} bytes of entries, at most {MENDED_BYTES_MAX}"
        )
    if asked.last_index > last:
        raise DledgerError(
            Code.UNAVAILABLE, f"up to entry {last} is committed here, not {asked.last_index}"
        )
    index, position = LogIndex(asked.first_index), Position(asked.position)
    loop = asyncio.get_running_loop()
    while position < asked.end_position:
        job = partial(_piece, log, index, position, Position(asked.end_position))
        try:
            frames, index, position = await loop.run_in_executor(view.pool, job)
        except BadFrame as bad:
            view.look_at(bad.position)
            raise DledgerError(Code.STORAGE_FAILED, f"not sound here: {bad}") from bad
        except SpanGone as error:
            raise DledgerError(
                Code.HEAD_TRIMMED, f"the log begins at entry {log.first_index}: {error}"
            ) from error
        except (OSError, DamagedFile) as error:
            view.host.failed(error)
            raise DledgerError(Code.STORAGE_FAILED, str(error)) from error
        yield frames
    if index != asked.last_index + 1:
        raise DledgerError(
            Code.STORAGE_FAILED, f"the entries end before {index}, not behind {asked.last_index}"
        )


def _piece(
    log: CommitLog, index: LogIndex, position: Position, end: Position
) -> tuple[bytes, LogIndex, Position]:
    """Return some entries from a place on, and index and position behind them. Blocks.

    BadFrame: something else lies there. SpanGone: nothing does any more.
    """
    data = log.read_span(Span(position, min(FRAME_SIZE_TARGET, end - position)))
    at = 0
    while at < len(data):
        try:
            header = decode_entry(data, at, check_payloads=True).header
        except ShortEntry as short:
            if at:
                break  # it ends in the next piece, where it is read from its start
            size = _size_at(data, position)
            if not len(data) < size <= end - position:
                raise BadFrame(position, str(short)) from short
            data = log.read_span(Span(position, size))
            continue
        except CorruptEntry as corrupt:
            if at:
                break
            raise BadFrame(position, str(corrupt)) from corrupt
        if header.index != index or header.position != position + at:
            raise BadFrame(position, f"there is {header.describe()}, not entry {index}")
        index, at = LogIndex(index + 1), at + header.size
    return data[:at], index, Position(position + at)


def _size_at(data: bytes, position: Position) -> int:
    """Return the size of the entry that a piece begins with."""
    try:
        return parse_entry_header(data).size
    except CorruptEntry as corrupt:
        raise BadFrame(position, str(corrupt)) from corrupt
