"""Frames of the native streams: append, answer, fetch (D12).

A gRPC message holds one frame; one of a fetch stream may hold several, back to back, at most one
for each assignment.

Owns: their layout, encode and decode. Does not own: the batches inside (`batch/codec.py`; a batch
carries its own CRC, and whoever receives it checks it). Little-endian, magic and version first;
what follows a header lies back to back and fills the frame exactly.

Append frame, client to member: batches for queues of one group, answered in order. The client
numbers the batches of a stream as they follow, those of one-way frames, too.

      0  4  magic "DLFA"                 4  1  version: 1
      5  1  flags: bit 0 one-way (no answer is sent)
      6  2  batch_count, 1..FRAME_ROWS_MAX
      8  4  timeout_ms: how long the member may hold it before it is proposed
     12  4  reserved, 0
     16  8  first_number: of the first batch; the others of the frame follow
     24 ..  the batches

Answer frame, member to client: one row per batch that is not one-way, in the order of the
batches. A row repeats the number of its batch. Numbers of one-way batches are left out. Frames of
answers do not correspond to frames of batches.

      0  4  magic "DLFR"                 4  1  version: 1
      5  1  reserved, 0                  6  2  row_count, 1..FRAME_ROWS_MAX
      8 ..  rows of 40 bytes:
              0  8  number of the batch   8  2  code (errors.Code)
             10  1  flags: bit 0 duplicate, bit 1 acknowledged before it was synced
             11  1  reserved, 0
             12  2  detail_size         14  2  hint_size
             16  8  base_offset, signed (-1: none)
             24  8  index               32  8  term
            then per row: detail, hint (UTF-8)

Fetch frame, member to client: a run of one queue.

      0  4  magic "DLFF"                 4  1  version: 1, with positions 2
      5  1  flags: 1 origins             6  2  assignment: its place in the FetchRequest
      8  2  code (errors.Code)          10  2  detail_size
     12  4  row_count, 0..FRAME_ROWS_MAX
     16  8  min_offset, signed          24  8  max_offset, signed: end of what is committed
     32  8  next_offset, signed: where the next frame of this assignment starts
     40 ..  rows of 28 bytes, in version 2 of 36, one per batch:
              0  8  base_offset, signed: of record first_record
              8  4  first_record         12  4  record_count
             16  4  size of the batch    20  8  store_time_ms: the leader's stamp, signed
             28  8  version 2: position of the batch in the log
            then detail (UTF-8), then with flag 1 the origins, then the batches
         origins: count u32, then for each: row u32, topic_id 16, queue u32, offset i64,
            attempts u32, error size u16, error (UTF-8)

A row addresses a span of its batch: record `first_record + k` has offset `base_offset + k`, for k
below `record_count`. A row of size 0 has no batch: its offsets hold nothing any more, because
compaction deleted their records. An error of one assignment has a code, a detail and no rows.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dledger_proto.batch.codec import split_batches
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import DETAIL_SIZE_MAX, FRAME_ROWS_MAX, FRAME_SIZE_MAX

FRAME_VERSION: Final = 1
APPEND_MAGIC: Final = b"DLFA"
ANSWER_MAGIC: Final = b"DLFR"
FETCH_MAGIC: Final = b"DLFF"
APPEND_HEADER_SIZE: Final = 24
FETCH_HEADER_SIZE: Final = 40
FETCH_ROW_SIZE: Final = 28
FETCH_VERSION_POSITIONS: Final = 2

_APPEND: Final = struct.Struct("<4sBBHIIQ")
_ANSWERS: Final = struct.Struct("<4sBBH")
_ANSWER_ROW: Final = struct.Struct("<QHBBHHqQQ")
_FETCH: Final = struct.Struct("<4sBBHHHIqqq")
_FETCH_ROW: Final = struct.Struct("<qIIIq")
_FETCH_ROW_POSITION: Final = struct.Struct("<qIIIqQ")
_COUNT: Final = struct.Struct("<I")
_ORIGIN: Final = struct.Struct("<I16sIqIH")
_HAS_ORIGINS: Final = 1
_ONE_WAY: Final = 1
_DUPLICATE: Final = 1
_UNSYNCED: Final = 2
_KNOWN_CODES: Final = {int(code): code for code in Code}
assert _APPEND.size == APPEND_HEADER_SIZE
assert _FETCH.size == FETCH_HEADER_SIZE
assert _FETCH_ROW.size == FETCH_ROW_SIZE
assert DETAIL_SIZE_MAX < 1 << 16, "detail_size is u16"

Buffer = bytes | bytearray | memoryview


class AppendHeader(NamedTuple):
    """The header of an append frame."""

    first_number: int
    batch_count: int
    timeout_ms: int
    one_way: bool


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """What became of one batch."""

    number: int
    code: Code = Code.OK
    duplicate: bool = False
    """True: an earlier try stored the batch, at this offset."""
    unsynced: bool = False
    """Acknowledged before it was synced (`flush: async`)."""
    base_offset: int = -1
    """Of the first record; -1: none."""
    index: int = 0
    term: int = 0
    detail: str = ""
    hint: str = ""

    def error(self) -> DledgerError | None:
        """Return the answer as an error; None when the batch is stored."""
        if self.code is Code.OK:
            return None
        return DledgerError(self.code, self.detail, hint=self.hint)


class RowOrigin(NamedTuple):
    """Of which record a row is, delivered again: how often it failed, and why it failed last."""

    topic_id: bytes
    queue: int
    offset: int
    attempts: int
    error: str


class FetchRow(NamedTuple):
    """A span of one batch: which of its records belong to the answer, and at which offsets."""

    base_offset: int
    """Of record `first_record`."""
    first_record: int
    record_count: int
    size: int
    """Of the batch, bytes; 0: see `is_gone`."""
    store_time_ms: int = 0
    """The leader's stamp on the entry that holds the batch; 0: not told."""
    position: int = -1
    """Of the batch's first byte in the log; -1: not told."""

    @property
    def is_gone(self) -> bool:
        """True: compaction deleted the records of these offsets, and no batch belongs to them."""
        return not self.size


@dataclass(frozen=True, slots=True)
class FetchFrame:
    """A run of one queue, or the error of one assignment. Batches are views, not yet checked."""

    assignment: int
    code: Code
    detail: str
    min_offset: int
    max_offset: int
    next_offset: int
    rows: Sequence[FetchRow]
    batches: Sequence[memoryview]
    origins: Mapping[int, RowOrigin] | None = None
    """By the place of the row; None: there are none."""


def encode_append(
    batches: Sequence[Buffer], first_number: int, timeout_ms: int, one_way: bool = False
) -> bytes:
    """Return an append frame of 1 to FRAME_ROWS_MAX batches; ValueError beyond the limits."""
    if not 1 <= len(batches) <= FRAME_ROWS_MAX:
        raise ValueError(f"{len(batches)} batches, a frame has 1 to {FRAME_ROWS_MAX}")
    if not (0 <= timeout_ms < 1 << 32 and 0 <= first_number <= (1 << 64) - len(batches)):
        raise ValueError(f"timeout_ms {timeout_ms} must be u32, first_number {first_number} u64")
    header = _APPEND.pack(
        APPEND_MAGIC, FRAME_VERSION, one_way, len(batches), timeout_ms, 0, first_number
    )
    return _bounded(b"".join((header, *batches)))


def parse_append(frame: Buffer) -> tuple[AppendHeader, list[memoryview]]:
    """Return header and batches of an append frame; the batches are split, not checked.

    Raises INVALID_ARGUMENT or UNSUPPORTED_FORMAT for the frame, CORRUPT_BATCH for a size field.
    """
    _check_start(frame, APPEND_MAGIC, APPEND_HEADER_SIZE)
    _, _, flags, count, timeout_ms, reserved, first_number = _APPEND.unpack_from(frame)
    if flags & ~_ONE_WAY or reserved:
        raise invalid(f"append frame: flags {flags:#x}, reserved {reserved}: not known")
    if not 1 <= count <= FRAME_ROWS_MAX:
        raise invalid(f"append frame: batch_count {count}, must be in 1..{FRAME_ROWS_MAX}")
    if first_number + count > 1 << 64:
        raise invalid(f"append frame: first_number {first_number} leaves none for {count} batches")
    batches = split_batches(frame, APPEND_HEADER_SIZE)
    if len(batches) != count:
        raise invalid(f"append frame: batch_count {count}, but it holds {len(batches)} batches")
    return AppendHeader(first_number, count, timeout_ms, bool(flags & _ONE_WAY)), batches


def encode_answers(rows: Sequence[AnswerRow]) -> bytes:
    """Return an answer frame of 1 to FRAME_ROWS_MAX rows. Long sentences are cut."""
    if not 1 <= len(rows) <= FRAME_ROWS_MAX:
        raise ValueError(f"{len(rows)} rows, a frame has 1 to {FRAME_ROWS_MAX}")
    parts = [_ANSWERS.pack(ANSWER_MAGIC, FRAME_VERSION, 0, len(rows))]
    sentences: list[bytes] = []
    for row in rows:
        detail, hint = b"", b""
        if row.detail or row.hint:
            detail, hint = _cut(row.detail), _cut(row.hint)
            sentences += (detail, hint)
        flags = _DUPLICATE * row.duplicate | _UNSYNCED * row.unsynced
        parts.append(
            _ANSWER_ROW.pack(
                row.number, row.code, flags, 0, len(detail), len(hint),
                row.base_offset, row.index, row.term,
            )
        )  # fmt: skip
    return b"".join((*parts, *sentences))


def parse_answers(frame: Buffer) -> list[AnswerRow]:
    """Return the rows of an answer frame; INVALID_ARGUMENT or UNSUPPORTED_FORMAT if it is none.

    The caller, which numbered the batches, compares the rows with what it sent. An unknown code, of
    a newer member, reads as UNKNOWN_OUTCOME.
    """
    _check_start(frame, ANSWER_MAGIC, _ANSWERS.size)
    count = _ANSWERS.unpack_from(frame)[3]
    at = _ANSWERS.size + count * _ANSWER_ROW.size
    if not 1 <= count <= FRAME_ROWS_MAX or at > len(frame):
        raise invalid(f"answer frame of {len(frame)} bytes: row_count {count}")
    rows: list[AnswerRow] = []
    view = memoryview(frame)
    for fields in _ANSWER_ROW.iter_unpack(view[_ANSWERS.size : at]):
        number, code, flags, _, detail_size, hint_size, base_offset, index, term = fields
        detail = hint = ""
        if detail_size or hint_size:
            hint_at = at + detail_size
            detail = _text(view[at:hint_at])
            at = hint_at + hint_size
            hint = _text(view[hint_at:at])
        known, detail = _code(code, detail)
        rows.append(
            AnswerRow(
                number, known, bool(flags & _DUPLICATE), bool(flags & _UNSYNCED),
                base_offset, index, term, detail, hint,
            )
        )  # fmt: skip
    if at != len(frame):
        raise invalid(f"answer frame of {len(frame)} bytes, its parts add up to {at}")
    return rows


def encode_fetch(
    rows: Sequence[FetchRow],
    batches: Iterable[Buffer],
    *,
    assignment: int,
    min_offset: int,
    max_offset: int,
    next_offset: int,
    code: Code = Code.OK,
    detail: str = "",
    with_positions: bool = False,
    origins: Mapping[int, RowOrigin] | None = None,
) -> bytes:
    """Return a fetch frame. `batches` may be several batches to a buffer; sizes must add up."""
    if len(rows) > FRAME_ROWS_MAX or not 0 <= assignment < 1 << 16:
        raise ValueError(f"{len(rows)} rows of {FRAME_ROWS_MAX}, assignment {assignment} of u16")
    sentence = _cut(detail)
    header = _FETCH.pack(
        FETCH_MAGIC, FETCH_VERSION_POSITIONS if with_positions else FRAME_VERSION,
        _HAS_ORIGINS if origins else 0,
        assignment, code, len(sentence), len(rows), min_offset, max_offset, next_offset,
    )  # fmt: skip
    if with_positions:
        packed_rows = b"".join([_FETCH_ROW_POSITION.pack(*row) for row in rows])
    else:
        packed_rows = b"".join([_FETCH_ROW.pack(*row[:-1]) for row in rows])
    told = _encode_origins(origins) if origins else b""
    frame = b"".join((header, packed_rows, sentence, told, *batches))
    size = FETCH_HEADER_SIZE + len(packed_rows) + len(sentence) + len(told)
    size += sum(row.size for row in rows)
    if len(frame) != size:
        raise ValueError(f"the frame has {len(frame)} bytes, its rows say {size}")
    return _bounded(frame)


def parse_fetch(frame: Buffer) -> FetchFrame:
    """Return what a fetch frame says; INVALID_ARGUMENT or UNSUPPORTED_FORMAT if it is none.

    The messages of a stream with one assignment are such frames.
    """
    found, end = _fetch_frame(memoryview(frame), len(frame))
    if end != len(frame):
        raise invalid(f"fetch frame of {len(frame)} bytes, its parts add up to {end}")
    return found


def parse_fetches(message: Buffer) -> list[FetchFrame]:
    """Return the frames of a message of a fetch stream; errors as `parse_fetch`.

    Batches are views of the message when it is one frame. Else they are views of a copy for each
    frame, so that a kept batch of one queue keeps no bytes of other queues in memory.
    """
    rest = memoryview(message)
    frames: list[FetchFrame] = []
    while rest or not frames:
        frame, end = _fetch_frame(rest, len(message))
        frames.append(frame)
        rest = rest[end:]
    return frames


def _fetch_frame(view: memoryview, message_size: int) -> tuple[FetchFrame, int]:
    """Return the frame that the bytes begin with, and where it ends."""
    _check_start(view, FETCH_MAGIC, FETCH_HEADER_SIZE, FETCH_VERSION_POSITIONS)
    fields = _FETCH.unpack_from(view)
    _, version, flags, assignment, code, detail_size, count, *offsets = fields
    min_offset, max_offset, next_offset = offsets
    row_form = _FETCH_ROW_POSITION if version == FETCH_VERSION_POSITIONS else _FETCH_ROW
    at = FETCH_HEADER_SIZE + count * row_form.size
    if count > FRAME_ROWS_MAX or at + detail_size > len(view):
        raise invalid(f"fetch frame of {len(view)} bytes: row_count {count}")
    rows = [FetchRow(*row) for row in row_form.iter_unpack(view[FETCH_HEADER_SIZE:at])]
    known, detail = _code(code, _text(view[at : at + detail_size]))
    at += detail_size
    origins = None
    if flags & _HAS_ORIGINS:
        origins, at = _parse_origins(view, at)
    end = at + sum(row.size for row in rows)
    if end > len(view):
        raise invalid(f"fetch frame of {len(view)} bytes, its parts add up to {end}")
    data = view[at:end] if end == message_size else memoryview(bytes(view[at:end]))
    batches: list[memoryview] = []
    at = 0
    for row in rows:
        batches.append(data[at : at + row.size])
        at += row.size
    frame = FetchFrame(
        assignment, known, detail, min_offset, max_offset, next_offset, rows, batches, origins
    )
    return frame, end


def _encode_origins(origins: Mapping[int, RowOrigin]) -> bytes:
    parts = [_COUNT.pack(len(origins))]
    for row, origin in origins.items():
        error = _cut(origin.error)
        parts += (_ORIGIN.pack(row, *origin[:4], len(error)), error)
    return b"".join(parts)


def _parse_origins(view: memoryview, at: int) -> tuple[dict[int, RowOrigin], int]:
    """Return the origins of a frame, and where they end; INVALID_ARGUMENT."""
    origins: dict[int, RowOrigin] = {}
    try:
        (count,) = _COUNT.unpack_from(view, at)
        at += _COUNT.size
        if count > FRAME_ROWS_MAX:
            raise invalid(f"fetch frame: {count} origins, at most {FRAME_ROWS_MAX}")
        for _ in range(count):
            row, topic_id, queue, offset, attempts, size = _ORIGIN.unpack_from(view, at)
            at += _ORIGIN.size
            origins[row] = RowOrigin(topic_id, queue, offset, attempts, _text(view[at : at + size]))
            at += size
    except struct.error:
        raise invalid(f"fetch frame of {len(view)} bytes ends within its origins") from None
    return origins, at


def _check_start(
    frame: Buffer, magic: bytes, header_size: int, newest: int = FRAME_VERSION
) -> None:
    size = len(frame)
    if not header_size <= size <= FRAME_SIZE_MAX:
        raise invalid(f"frame of {size} bytes, must be in {header_size}..{FRAME_SIZE_MAX}")
    found = bytes(frame[:4])
    if found != magic:
        raise invalid(f"frame magic is {found!r}, not {magic!r}")
    if not FRAME_VERSION <= frame[4] <= newest:
        raise DledgerError(Code.UNSUPPORTED_FORMAT, f"frame version {frame[4]}, known is {newest}")


def _bounded(frame: bytes) -> bytes:
    if len(frame) > FRAME_SIZE_MAX:
        raise ValueError(f"frame of {len(frame)} bytes, at most {FRAME_SIZE_MAX}")
    return frame


def _cut(sentence: str) -> bytes:
    """Return at most DETAIL_SIZE_MAX bytes of UTF-8, never half a character."""
    encoded = sentence.encode(errors="replace")
    if len(encoded) <= DETAIL_SIZE_MAX:
        return encoded
    return encoded[:DETAIL_SIZE_MAX].decode(errors="ignore").encode()


def _text(view: memoryview) -> str:
    """Return a sentence for people; what is not UTF-8 is shown as the replacement character."""
    return str(view, "utf-8", errors="replace")


def _code(number: int, detail: str) -> tuple[Code, str]:
    known = _KNOWN_CODES.get(number)
    if known is None:
        return Code.UNKNOWN_OUTCOME, f"code {number} is not known here: {detail}"
    return known, detail
