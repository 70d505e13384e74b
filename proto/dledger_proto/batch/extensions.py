"""Extensions of a batch header: tagged fields behind the fixed part. `codec.py` draws them.

Owns: their check, and the delivery time. Not: the fixed part (`header.py`).
"""

import struct
from typing import Final

from dledger_proto.batch.header import BATCH_HEADER_SIZE, BatchHeader, Buffer, corrupt
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import TIME_MS_MAX

DELIVERY_TIME_TAG: Final = 1
_RESERVED_TAGS: Final = {
    2: "priority",
    3: "ordering_key_hash",
    4: "original_topic",
    5: "original_queue",
    6: "original_offset",
    7: "attempt",
}
_TAG_SIZE: Final = struct.Struct("<HH")
_DELIVERY_TIME: Final = struct.Struct("<HHq")


def encode_delivery_time(delivery_time_ms: int) -> bytes:
    """Return the extension of a delivery time; ValueError when it is out of range."""
    if not 0 < delivery_time_ms <= TIME_MS_MAX:
        raise ValueError(f"delivery_time_ms {delivery_time_ms}, must be in 1..{TIME_MS_MAX}")
    return _DELIVERY_TIME.pack(DELIVERY_TIME_TAG, 8, delivery_time_ms)


def check_extensions(area: memoryview) -> None:
    """Check all extensions: CORRUPT_BATCH, MESSAGE_ILLEGAL, UNIMPLEMENTED for a reserved tag."""
    seen: set[int] = set()
    at = 0
    while at < len(area):
        tag, size = _TAG_SIZE.unpack_from(area, at)
        end = at + 4 + size
        padded_end = end + -size % 4
        if tag == 0 or tag in seen or padded_end > len(area) or any(area[end:padded_end]):
            raise corrupt(f"extension {tag} of {size} bytes at header byte {at + 112}: ill-formed")
        if tag in _RESERVED_TAGS:
            raise DledgerError(
                Code.UNIMPLEMENTED,
                f"{_RESERVED_TAGS[tag]} (extension {tag}) is not part of this version",
            )
        if tag == DELIVERY_TIME_TAG:
            _check_delivery_time(area, at, size)
        seen.add(tag)
        at = padded_end


def _check_delivery_time(area: memoryview, at: int, size: int) -> None:
    if size != 8:
        raise corrupt(f"delivery_time_ms (extension 1) has {size} bytes, must have 8")
    (time_ms,) = struct.unpack_from("<q", area, at + 4)
    if not 0 < time_ms <= TIME_MS_MAX:
        raise DledgerError(
            Code.MESSAGE_ILLEGAL, f"delivery_time_ms {time_ms}, must be in 1..{TIME_MS_MAX}"
        )


def delivery_time_of(batch: Buffer, header: BatchHeader) -> int:
    """Return the delivery time of a batch that was checked; 0: it has none."""
    at, end = BATCH_HEADER_SIZE, header.header_size
    while at + 4 <= end:
        tag, size = _TAG_SIZE.unpack_from(batch, at)
        if tag == DELIVERY_TIME_TAG and size == 8 and at + 12 <= end:
            time_ms: int = struct.unpack_from("<q", batch, at + 4)[0]
            return time_ms
        at += 4 + size + -size % 4
    return 0
