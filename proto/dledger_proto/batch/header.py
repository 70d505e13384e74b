"""Records, and the fixed part of a batch header. The layout is drawn in `codec.py`.

Owns: the value types of a batch and the structural check of a header. Does not own: the CRC and the
columns.
"""

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from dledger_proto.batch.compression import Compression
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import (
    BATCH_HEADER_SIZE_MAX,
    BATCH_RECORDS_MAX,
    BATCH_SIZE_MAX,
    BODIES_SIZE_MAX,
    KEYS_PER_RECORD_MAX,
    QUEUES_PER_TOPIC_MAX,
    TIME_MS_MAX,
)

BATCH_MAGIC: Final = b"DLB1"
BATCH_VERSION: Final = 1
BATCH_HEADER_SIZE: Final = 112
"""Without extensions."""
ID_SIZE: Final = 16
"""Of a topic id and of a producer id."""
NO_ID: Final = bytes(ID_SIZE)
EPOCH_OF_SCHEDULES: Final = (1 << 32) - 1
"""The producer epoch of what a schedule sends. No producer has it, and no client may send it."""
COLUMN_BYTES_PER_RECORD: Final = 20

HEADER: Final = struct.Struct("<4sIIHBBII16sIIq16sIqQIIIII")
TOPIC_ID_AT: Final = slice(24, 40)
"""Where the topic's id lies in a batch."""
assert HEADER.size == BATCH_HEADER_SIZE

Buffer = bytes | bytearray | memoryview

_NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})


class Record(NamedTuple):
    """One message as a producer gives it and a reader gets it.

    A named tuple because one is made for every message: a frozen dataclass costs three times that.
    """

    body: bytes
    tag: str = ""
    """Empty: none."""
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = _NO_PROPERTIES
    """Without TAGS and KEYS."""
    time_ms: int = 0
    """When it was made, milliseconds since 1970; 0: the batch's base time."""


class ProducerStamp(NamedTuple):
    """What makes a batch idempotent (D11): who sends, and the sequence of its first record."""

    producer_id: bytes
    """16 bytes, not all zero."""
    epoch: int
    base_sequence: int
    """Counts records from 0 per (epoch, queue)."""


class BatchHeader(NamedTuple):
    """The fixed header, field by field as drawn; `parse_header` makes only sound ones."""

    magic: bytes
    crc: int
    size: int
    header_size: int
    version: int
    compression: int
    required_flags: int
    optional_flags: int
    topic_id: bytes
    queue: int
    record_count: int
    base_time_ms: int
    producer_id: bytes
    producer_epoch: int
    base_sequence: int
    base_number: int
    key_count: int
    properties_size: int
    bodies_size: int
    bodies_stored_size: int
    reserved: int

    @property
    def stamp(self) -> ProducerStamp | None:
        """The producer's stamp; None for a batch that is not idempotent."""
        if self.base_sequence < 0:
            return None
        return ProducerStamp(self.producer_id, self.producer_epoch, self.base_sequence)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; -1 without a stamp."""
        return self.base_sequence + self.record_count - 1 if self.base_sequence >= 0 else -1

    def describe(self) -> str:
        """Return one stable line for logs and tests."""
        line = f"batch {self.topic_id.hex()}/{self.queue} records={self.record_count}"
        if self.base_sequence >= 0:
            line += f" producer={self.producer_id.hex()}"
            line += f" epoch={self.producer_epoch} sequence={self.base_sequence}"
        if self.compression:
            line += f" compression={self.compression}"
        return f"{line} number={self.base_number} size={self.size} crc={self.crc:08x}"


def corrupt(sentence: str) -> DledgerError:
    """Return the error of a batch that contradicts itself."""
    return DledgerError(Code.CORRUPT_BATCH, sentence)


def parse_header(buffer: Buffer, offset: int = 0) -> BatchHeader:
    """Return the header at `offset`, checked in itself: no CRC, no columns, no extensions.

    The buffer may end before the batch does. Raises CORRUPT_BATCH, UNSUPPORTED_FORMAT (version),
    MESSAGE_TOO_LARGE (size, record count) or MESSAGE_ILLEGAL (a value outside its limit).
    """
    if offset < 0 or len(buffer) - offset < BATCH_HEADER_SIZE:
        raise corrupt(
            f"{max(len(buffer) - offset, 0)} bytes at {offset}, "
            f"a batch header has {BATCH_HEADER_SIZE}"
        )
    header = BatchHeader._make(HEADER.unpack_from(buffer, offset))
    if header.magic != BATCH_MAGIC:
        raise corrupt(f"magic is {header.magic!r}, not {BATCH_MAGIC!r}")
    if header.version != BATCH_VERSION:
        raise DledgerError(
            Code.UNSUPPORTED_FORMAT, f"batch version {header.version}, known is {BATCH_VERSION}"
        )
    if header.size > BATCH_SIZE_MAX or header.bodies_size > BODIES_SIZE_MAX:
        raise DledgerError(
            Code.MESSAGE_TOO_LARGE,
            f"size {header.size}, at most {BATCH_SIZE_MAX}; "
            f"bodies_size {header.bodies_size}, at most {BODIES_SIZE_MAX}",
        )
    size = (
        header.header_size
        + COLUMN_BYTES_PER_RECORD * header.record_count
        + 8 * header.key_count
        + header.properties_size
        + header.bodies_stored_size
    )
    if size != header.size:
        raise corrupt(f"size is {header.size}, its parts add up to {size}")
    _check_fields(header)
    return header


def _check_fields(header: BatchHeader) -> None:
    header_size = header.header_size
    if not BATCH_HEADER_SIZE <= header_size <= BATCH_HEADER_SIZE_MAX or header_size % 4:
        raise corrupt(
            f"header_size {header_size}, must be a multiple of 4 "
            f"from {BATCH_HEADER_SIZE} to {BATCH_HEADER_SIZE_MAX}"
        )
    if header.reserved:
        raise corrupt(f"reserved is {header.reserved}, must be 0")
    if header.record_count == 0:
        raise corrupt("record_count is 0, must be at least 1")
    if header.record_count > BATCH_RECORDS_MAX:
        raise DledgerError(
            Code.MESSAGE_TOO_LARGE,
            f"record_count {header.record_count}, at most {BATCH_RECORDS_MAX}",
        )
    if header.key_count > KEYS_PER_RECORD_MAX * header.record_count:
        raise corrupt(f"key_count {header.key_count} for {header.record_count} records")
    if header.compression:
        if header.compression not in (Compression.ZSTD, Compression.LZ4):
            raise DledgerError(
                Code.UNSUPPORTED_FORMAT, f"compression {header.compression} is not known"
            )
        if not header.bodies_size or not header.bodies_stored_size:
            raise corrupt("compressed bodies may not be empty")
    elif header.bodies_stored_size != header.bodies_size:
        raise corrupt(
            f"bodies_stored_size {header.bodies_stored_size} of uncompressed bodies "
            f"is not bodies_size {header.bodies_size}"
        )
    if header.queue >= QUEUES_PER_TOPIC_MAX:
        raise _illegal(f"queue {header.queue}, must be below {QUEUES_PER_TOPIC_MAX}")
    if header.topic_id == NO_ID:
        raise _illegal("topic_id is all zero")
    if not 0 <= header.base_time_ms <= TIME_MS_MAX:
        raise _illegal(f"base_time_ms {header.base_time_ms}, must be in 0..{TIME_MS_MAX}")
    if header.base_number + header.record_count > 1 << 64:
        raise _illegal(f"base_number {header.base_number} leaves no room for the records")
    if header.base_sequence < 0:
        if header.base_sequence != -1 or header.producer_epoch or header.producer_id != NO_ID:
            raise _illegal(
                f"base_sequence {header.base_sequence}: without a producer it is -1, "
                "and producer_id and producer_epoch are 0"
            )
    elif header.producer_id == NO_ID:
        raise _illegal(f"base_sequence {header.base_sequence} without a producer_id")
    elif header.base_sequence + header.record_count >= 1 << 63:
        raise _illegal(f"base_sequence {header.base_sequence} leaves no room for the records")


def _illegal(sentence: str) -> DledgerError:
    return DledgerError(Code.MESSAGE_ILLEGAL, sentence)
