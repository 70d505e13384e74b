"""Checksums of our formats, made right again after a change.

Owns: one function for each format. Bytes that are too short for the format come back as they are.
The layouts stand here once more, so that a slip in the product cannot hide.
"""

import json
import re
import struct
from collections.abc import Callable
from typing import Any, Final

from crc32c import crc32c

BATCH_HEADER: Final = 112
ENTRY_HEADER: Final = 72
SEGMENT_HEADER: Final = 128
_U32_MASK: Final = 0xFFFF_FFFF


def _u32(data: bytes | bytearray, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def batch(data: bytes) -> bytes:
    """Make size, size of the bodies and crc of a batch fit its bytes."""
    if len(data) < BATCH_HEADER:
        return data
    fixed = bytearray(data)
    fixed[8:12] = len(data).to_bytes(4, "little")
    rest = int.from_bytes(data[12:14], "little") + 20 * _u32(data, 44) + 8 * _u32(data, 92)
    stored = len(data) - rest - _u32(data, 96)
    if stored >= 0:
        fixed[104:108] = stored.to_bytes(4, "little")
        if not data[15]:
            fixed[100:104] = fixed[104:108]
    return batch_crc(bytes(fixed))


def batch_crc(data: bytes) -> bytes:
    """Make the crc of a batch fit its bytes, and nothing else."""
    return data[:4] + crc32c(data[8:]).to_bytes(4, "little") + data[8:] if len(data) >= 8 else data


def entry(data: bytes) -> bytes:
    """Make all crcs of the entry that the bytes begin with fit it."""
    header_size = int.from_bytes(data[12:14], "little")
    if not ENTRY_HEADER <= header_size <= len(data):
        return data
    fixed = bytearray(data)
    at = header_size
    for row in range(ENTRY_HEADER, header_size - 7, 8):
        payload = data[at : at + _u32(data, row)]
        at += len(payload)
        crc = payload[4:8] if data[15] == 1 else crc32c(payload).to_bytes(4, "little")
        fixed[row + 4 : row + 8] = crc.ljust(4, b"\0")
    header_crc = crc32c(bytes(fixed[ENTRY_HEADER:header_size]), crc32c(bytes(fixed[8:56])))
    fixed[4:8] = header_crc.to_bytes(4, "little")
    return bytes(fixed)


def entries(data: bytes) -> bytes:
    """Make the crcs of entries that lie one after the other fit, as far as sizes lead."""
    parts: list[bytes] = []
    while len(data) >= ENTRY_HEADER:
        size = max(_u32(data, 8), ENTRY_HEADER)
        parts.append(entry(data[:size]))
        data = data[size:]
    return b"".join((*parts, data))


def segment(data: bytes) -> bytes:
    """Make the crcs of a segment file fit: of its header, of its entries, and who wrote them."""
    if len(data) < SEGMENT_HEADER:
        return data
    head = data[:4] + crc32c(data[8:SEGMENT_HEADER]).to_bytes(4, "little") + data[8:SEGMENT_HEADER]
    body = bytearray(entries(data[SEGMENT_HEADER:]))
    at = 0
    while at + ENTRY_HEADER <= len(body):
        salted = head[60:68] + body[at + 4 : at + 8] + body[at + 56 : at + 64]
        body[at + 64 : at + 68] = crc32c(bytes(salted)).to_bytes(4, "little")
        at += max(_u32(body, at + 8), ENTRY_HEADER)
    return head + bytes(body)


def small_file(data: bytes) -> bytes:
    """Make size and crc of a small file fit."""
    if len(data) < 16:
        return data
    start = data[:8] + (len(data) - 16).to_bytes(4, "little")
    return start + crc32c(data[16:], crc32c(start)).to_bytes(4, "little") + data[16:]


def last_crc(data: bytes) -> bytes:
    """Make the crc in the last four bytes fit all before."""
    return data[:-4] + crc32c(data[:-4]).to_bytes(4, "little") if len(data) >= 4 else data


def sealed(key: bytes) -> Callable[[bytes], bytes]:
    """Return what makes the seal of the value of a key fit."""
    return lambda data: data[:-4] + struct.pack("<I", crc32c(data[:-4], crc32c(key, len(key))))


def summed_json(data: bytes) -> bytes:
    """Make the sum of a record of an export fit its bytes."""
    found = re.search(rb'^ "crc": (\d{1,10}),\n', data, re.MULTILINE)
    if found is None:
        return data
    crc = crc32c(data[: found.start()] + data[found.end() :]) & _U32_MASK
    return data[: found.start()] + b' "crc": %d,\n' % crc + data[found.end() :]


def json_of(value: Any) -> bytes:
    """Return a value as JSON."""
    return json.dumps(value).encode()
