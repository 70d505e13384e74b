"""The record batch `DLB1`: layout, encode, check. The unit of work, from producer to reader (D5).

Owns: the format and everything that is checked when a batch enters a member. Not: who may write,
offsets (a batch holds none, apply assigns them), and entries (`entry.py`). Little-endian.

      0  4  magic "DLB1"
      4  4  crc32c of bytes 8..size
      8  4  size of the whole batch
     12  2  header_size: 112 and the extensions, a multiple of 4
     14  1  version: 1
     15  1  compression of the bodies: 0 none, 1 zstd (one frame that declares its content size),
            2 lz4 (one block)
     16  4  required_flags: bit 0 STAGED; a reader refuses a bit that it does not know
     20  4  optional_flags: bit 0 KEYED: the producer placed every record by its ordering key, as a
            FIFO topic demands; a reader ignores bits that it does not know
     24 16  topic_id, not all zero
     40  4  queue
     44  4  record_count n, at least 1
     48  8  base_time_ms, signed: the producer's clock
     56 16  producer_id, all zero: none
     72  4  producer_epoch
     76  8  base_sequence, signed, of the first record; -1: none, then id and epoch are 0
     84  8  base_number of the first record
     92  4  key_count, sum of the column key_counts
     96  4  properties_size, sum of the column property_sizes
    100  4  bodies_size, sum of the column body_sizes
    104  4  bodies_stored_size: as compressed; equal to bodies_size without compression
    108  4  reserved, 0
    112 ..  up to header_size: extensions: tag u16, size u16, bytes, zeros up to a multiple of 4.
            A tag occurs once, tag 0 never; an unknown tag is ignored (what must be understood
            sets a required flag). Tags: 1 delivery_time_ms i64. Reserved: 2 priority u8,
            3 ordering_key_hash u32, 4 original_topic 16 bytes, 5 original_queue u32,
            6 original_offset i64, 7 attempt u32
     columns, one after the other:
            body_sizes u32[n], property_sizes u32[n], tag_hashes u32[n] (0: no tag),
            time_deltas i32[n] (to base_time_ms), key_counts u32[n], key_hashes u64[key_count]
     properties of all records: (name_size u16, value_size u16, name, value)*, UTF-8;
            the tag is a property TAGS, the keys are a property KEYS, joined by a space
     bodies of all records, bodies_stored_size bytes

A record's id is its producer id (16) and its number, u64 big-endian; number = base_number + place
in the batch. The id stays when a batch is stamped anew for a retry in another epoch.

This version refuses STAGED and the reserved tags but 1 with UNIMPLEMENTED: an accepted half message
that readers see at once would break I11.
"""

import struct
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from dledger_proto.batch.compression import Compression, check_stored, compress
from dledger_proto.batch.cutting import cut_record, cut_records
from dledger_proto.batch.describing import describe
from dledger_proto.batch.extensions import (
    check_extensions,
    delivery_time_of,
    encode_delivery_time,
)
from dledger_proto.batch.header import (
    BATCH_HEADER_SIZE,
    BATCH_MAGIC,
    BATCH_VERSION,
    EPOCH_OF_SCHEDULES,
    HEADER,
    ID_SIZE,
    NO_ID,
    BatchHeader,
    Buffer,
    ProducerStamp,
    Record,
    corrupt,
    parse_header,
)
from dledger_proto.batch.property_check import check_properties
from dledger_proto.batch.view import BatchColumns, BatchView
from dledger_proto.errors import Code, DledgerError, invalid, unreadable
from dledger_proto.limits import (
    BATCH_RECORDS_MAX,
    BATCH_SIZE_MAX,
    BODIES_SIZE_MAX,
    BODY_SIZE_MAX,
    KEYS_PER_RECORD_MAX,
    PROPERTIES_SIZE_MAX,
    QUEUES_PER_TOPIC_MAX,
    TIME_MS_MAX,
)

__all__ = [
    "BATCH_HEADER_SIZE",
    "BATCH_MAGIC",
    "BATCH_VERSION",
    "EPOCH_OF_SCHEDULES",
    "FLAG_KEYED",
    "FLAG_STAGED",
    "MESSAGE_ID_SIZE",
    "NO_ID",
    "BatchColumns",
    "BatchHeader",
    "BatchView",
    "Compression",
    "ProducerStamp",
    "Record",
    "check_batch",
    "check_envelope",
    "cut_record",
    "cut_records",
    "delivery_time_of",
    "encode_batch",
    "message_id",
    "parse_header",
    "parse_message_id",
    "restamp",
    "split_batches",
]

FLAG_STAGED: Final = 1
"""Required flag bit 0: a half message."""
FLAG_KEYED: Final = 1
"""Optional flag bit 0: every record is where its ordering key says."""
MESSAGE_ID_SIZE: Final = ID_SIZE + 8

_STAMP: Final = struct.Struct("<16sIq")
_STAMP_AT: Final = 56
_NUMBER: Final = struct.Struct("<Q")
_NUMBER_AT: Final = 84
_TIME: Final = struct.Struct("<q")
_TIME_AT: Final = 48
_MAGIC_CRC_SIZE: Final = struct.Struct("<4sII")
_CRC_AT_ONCE_SIZE: Final = 4_096
"""Bodies above this on average are summed one by one, which saves copying them an extra time."""


def encode_batch(
    records: Sequence[Record],
    *,
    topic_id: bytes,
    queue: int,
    stamp: ProducerStamp | None,
    base_number: int,
    base_time_ms: int,
    compression: Compression = Compression.NONE,
    keyed: bool = False,
    delivery_time_ms: int = 0,
) -> bytes:
    """Return the batch of 1 to BATCH_RECORDS_MAX records for one queue.

    With `compression` the bodies are stored compressed if that is smaller; `keyed` says that each
    record is in the queue of its ordering key; `delivery_time_ms`, leader time: the records are
    delivered no sooner (0: at once). Raises MESSAGE_ILLEGAL or MESSAGE_TOO_LARGE naming
    the record, ValueError for ids, stamps and numbers out of range.
    """
    count = len(records)
    if not 1 <= count <= BATCH_RECORDS_MAX:
        raise ValueError(f"{count} records, a batch has 1 to {BATCH_RECORDS_MAX}")
    _check_arguments(topic_id, queue, stamp, base_number, base_time_ms)
    bodies = [record.body for record in records]
    sizes = list(map(len, bodies))
    if max(sizes) > BODY_SIZE_MAX:
        at = sizes.index(max(sizes))
        raise DledgerError(
            Code.MESSAGE_TOO_LARGE,
            f"record {at}: body of {sizes[at]} bytes, at most {BODY_SIZE_MAX}",
        )
    for record in records:
        if record.tag or record.keys or record.properties or record.time_ms:
            middle, key_count, properties_size = describe(records, base_time_ms)
            break
    else:
        middle, key_count, properties_size = bytes(4 * 4 * count), 0, 0
    bodies_size = stored_size = sum(sizes)
    kind = Compression.NONE
    if compression is not Compression.NONE and bodies_size:
        stored = compress(compression, b"".join(bodies))
        if len(stored) < bodies_size:
            kind, bodies, stored_size = compression, [stored], len(stored)
    extensions = encode_delivery_time(delivery_time_ms) if delivery_time_ms else b""
    header_size = BATCH_HEADER_SIZE + len(extensions)
    size = header_size + 4 * count + len(middle) + stored_size
    if size > BATCH_SIZE_MAX or bodies_size > BODIES_SIZE_MAX:
        raise DledgerError(
            Code.MESSAGE_TOO_LARGE,
            f"batch of {size} bytes with {bodies_size} in bodies, at most {BATCH_SIZE_MAX}",
        )
    producer_id, epoch, base_sequence = stamp or (NO_ID, 0, -1)
    header = bytearray(BATCH_HEADER_SIZE)
    HEADER.pack_into(
        header, 0, BATCH_MAGIC, 0, size, header_size, BATCH_VERSION, kind, 0,
        FLAG_KEYED if keyed else 0, topic_id, queue, count, base_time_ms, producer_id, epoch,
        base_sequence, base_number, key_count, properties_size, bodies_size, stored_size, 0,
    )  # fmt: skip
    columns = struct.pack(f"<{count}I", *sizes) + middle
    return _sealed(header + extensions, columns, bodies, stored_size)


def _sealed(header: bytearray, columns: bytes, bodies: list[bytes], stored_size: int) -> bytes:
    """Return header, columns and bodies as one batch, with its CRC."""
    crc = crc32c(columns, crc32c(memoryview(header)[8:]))
    if stored_size > _CRC_AT_ONCE_SIZE * len(bodies):
        for body in bodies:
            crc = crc32c(body, crc)
    else:
        bodies = [b"".join(bodies)]
        crc = crc32c(bodies[0], crc)
    header[4:8] = crc.to_bytes(4, "little")
    return b"".join((header, columns, *bodies))


def _check_arguments(
    topic_id: bytes, queue: int, stamp: ProducerStamp | None, base_number: int, base_time_ms: int
) -> None:
    if len(topic_id) != ID_SIZE or topic_id == NO_ID:
        raise ValueError(f"topic_id {topic_id.hex()!r}: must be {ID_SIZE} bytes, not all zero")
    if not 0 <= queue < QUEUES_PER_TOPIC_MAX:
        raise ValueError(f"queue {queue}, must be in 0..{QUEUES_PER_TOPIC_MAX - 1}")
    if not 0 <= base_number <= (1 << 64) - BATCH_RECORDS_MAX:
        raise ValueError(f"base_number {base_number}, must be in 0..2^64-{BATCH_RECORDS_MAX}")
    if not 0 <= base_time_ms <= TIME_MS_MAX:
        raise ValueError(f"base_time_ms {base_time_ms}, must be in 0..{TIME_MS_MAX}")
    if stamp is not None:
        _check_stamp(stamp)


def _check_stamp(stamp: ProducerStamp) -> None:
    if len(stamp.producer_id) != ID_SIZE or stamp.producer_id == NO_ID:
        raise ValueError(
            f"producer_id {stamp.producer_id.hex()!r}: must be {ID_SIZE} bytes, not all zero"
        )
    if not 0 <= stamp.epoch < 1 << 32:
        raise ValueError(f"epoch {stamp.epoch}, must be u32")
    if not 0 <= stamp.base_sequence < (1 << 63) - BATCH_RECORDS_MAX:
        raise ValueError(f"base_sequence {stamp.base_sequence}, must be in 0..2^63-65536")


def check_batch(buffer: Buffer) -> BatchHeader:
    """Return the header of the one batch that fills `buffer`, after everything a member checks.

    The envelope, then the content: sums and limits of the columns, the structure of properties, the
    size that compressed bodies declare. Bodies are not decompressed. Raises what `check_envelope`
    does, and UNREADABLE_BATCH, MESSAGE_TOO_LARGE or MESSAGE_ILLEGAL for the content.
    """
    header = check_envelope(buffer)
    property_sizes = _check_columns(buffer, header)
    bodies_at = header.size - header.bodies_stored_size
    area = memoryview(buffer)[bodies_at - header.properties_size : bodies_at]
    check_properties(bytes(area), property_sizes)
    if header.compression:
        check_stored(header.compression, memoryview(buffer)[bodies_at:], header.bodies_size)
    return header


def check_envelope(buffer: Buffer) -> BatchHeader:
    """Return the header of the one batch that fills `buffer`, whatever its content is.

    Magic, version, sizes, limits, CRC, flags, extensions. For readers: bytes that pass are what the
    producer sent, and what cannot be decoded of them is no damage. Raises CORRUPT_BATCH,
    UNSUPPORTED_FORMAT, MESSAGE_TOO_LARGE, MESSAGE_ILLEGAL or, for the delivery features,
    UNIMPLEMENTED.
    """
    header = parse_header(buffer)
    if len(buffer) != header.size:
        raise corrupt(f"size is {header.size}, but there are {len(buffer)} bytes")
    crc = crc32c(memoryview(buffer)[8:])
    if crc != header.crc:
        raise corrupt(f"crc is {header.crc:08x}, the bytes have {crc:08x}")
    if header.required_flags:
        if header.required_flags != FLAG_STAGED:
            raise DledgerError(
                Code.UNSUPPORTED_FORMAT,
                f"required_flags {header.required_flags:#x}: a bit is not known here",
            )
        raise DledgerError(Code.UNIMPLEMENTED, "STAGED (half messages) is not part of this version")
    if header.header_size != BATCH_HEADER_SIZE:
        check_extensions(memoryview(buffer)[BATCH_HEADER_SIZE : header.header_size])
    return header


def _check_columns(buffer: Buffer, header: BatchHeader) -> tuple[int, ...]:
    """Return the column property_sizes."""
    count = header.record_count
    start = header.header_size
    sizes = struct.unpack_from(f"<{2 * count}I", buffer, start)
    _check_column(sizes[:count], header.bodies_size, BODY_SIZE_MAX, "body_sizes")
    _check_column(sizes[count:], header.properties_size, PROPERTIES_SIZE_MAX, "property_sizes")
    if header.key_count:
        key_counts = struct.unpack_from(f"<{count}I", buffer, start + 16 * count)
        _check_column(key_counts, header.key_count, KEYS_PER_RECORD_MAX, "key_counts")
    elif any(memoryview(buffer)[start + 16 * count : start + 20 * count]):
        raise unreadable("key_count is 0, but the column key_counts is not")
    return sizes[count:]


def _check_column(column: tuple[int, ...], total: int, limit: int, name: str) -> None:
    found = sum(column)
    if found != total:
        raise unreadable(f"column {name} adds up to {found}, the header says {total}")
    if total > limit and max(column) > limit:
        at = column.index(max(column))
        raise DledgerError(
            Code.MESSAGE_TOO_LARGE, f"record {at}: {name} {column[at]}, at most {limit}"
        )


def split_batches(buffer: Buffer, offset: int = 0) -> list[memoryview]:
    """Return the batches that lie back to back from `offset` to the end, by their size fields.

    Only magic and size are looked at. Raises CORRUPT_BATCH naming the byte where it breaks off.
    """
    view = memoryview(buffer)
    batches: list[memoryview] = []
    end = len(view)
    while offset < end:
        if end - offset < BATCH_HEADER_SIZE:
            raise corrupt(f"{end - offset} bytes at byte {offset} are no batch")
        magic, _, size = _MAGIC_CRC_SIZE.unpack_from(view, offset)
        if magic != BATCH_MAGIC or not BATCH_HEADER_SIZE <= size <= min(
            BATCH_SIZE_MAX, end - offset
        ):
            raise corrupt(f"no batch at byte {offset}: magic {magic!r}, size {size}")
        batches.append(view[offset : offset + size])
        offset += size
    return batches


def restamp(
    batch: Buffer,
    stamp: ProducerStamp,
    *,
    base_number: int | None = None,
    base_time_ms: int | None = None,
) -> bytes:
    """Return the batch with another producer stamp (a retry in a new epoch) and its CRC renewed.

    None: number and time stay. The batch must be sound: `check_batch` is not repeated. ValueError
    for a stamp out of range.
    """
    header = parse_header(batch)
    _check_stamp(stamp)
    fixed = bytearray(batch[:BATCH_HEADER_SIZE])
    _STAMP.pack_into(fixed, _STAMP_AT, *stamp)
    if base_number is not None:
        _NUMBER.pack_into(fixed, _NUMBER_AT, base_number)
    if base_time_ms is not None:
        _TIME.pack_into(fixed, _TIME_AT, base_time_ms)
    rest = memoryview(batch)[BATCH_HEADER_SIZE : header.size]
    fixed[4:8] = crc32c(rest, crc32c(memoryview(fixed)[8:])).to_bytes(4, "little")
    return b"".join((fixed, rest))


def message_id(producer_id: bytes, number: int) -> bytes:
    """Return the 24 bytes that name a record for good: producer id, number big-endian."""
    if len(producer_id) != ID_SIZE or not 0 <= number < 1 << 64:
        raise ValueError(f"producer_id of {len(producer_id)} bytes, number {number}: out of range")
    return producer_id + number.to_bytes(8, "big")


def parse_message_id(identifier: bytes) -> tuple[bytes, int]:
    """Return (producer id, number) of a message id; INVALID_ARGUMENT unless it has 24 bytes."""
    if len(identifier) != MESSAGE_ID_SIZE:
        raise invalid(f"message_id of {len(identifier)} bytes, must be {MESSAGE_ID_SIZE}")
    return identifier[:ID_SIZE], int.from_bytes(identifier[ID_SIZE:], "big")
