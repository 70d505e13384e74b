"""Hashes that producers, members and readers must compute alike (D14)."""

import struct
from collections.abc import Sequence
from zlib import adler32, crc32

from crc32c import crc32c


def key_hash(key: bytes) -> int:
    """Return the 64-bit hash of a message key, as stored in batches and in the key index.

    The upper half is CRC-32, the lower half Adler-32. Both are cheap (a third of CRC32C's call),
    the same in any language, and do not depend on each other. (One polynomial with two start values
    would not do: for keys of one length the halves would differ by a constant.) Readers compare the
    key itself afterwards: a collision costs time, and never gives a wrong answer.
    """
    return crc32(key) << 32 | adler32(key)


def key_hash_column(keys: Sequence[bytes]) -> bytes:
    """Return `key_hash` of each key, u64 little-endian."""
    halves = [0] * (2 * len(keys))
    halves[::2] = map(adler32, keys)
    halves[1::2] = map(crc32, keys)
    return struct.pack(f"<{len(halves)}I", *halves)


def tag_hash(tag: str) -> int:
    """Return the 32-bit hash of a message tag; 0 means no tag, so a real hash is never 0."""
    return (crc32c(tag.encode()) or 1) if tag else 0


def mixed(value: int) -> int:
    """Return 32 bits whose every bit depends on all 32 of `value`: fmix32, murmur3's finaliser."""
    value ^= value >> 16
    value = value * 0x85EBCA6B & 0xFFFFFFFF
    value ^= value >> 13
    value = value * 0xC2B2AE35 & 0xFFFFFFFF
    return value ^ value >> 16


def queue_of_key(ordering_key: bytes, queues_total: int) -> int:
    """Return the queue, 0 to `queues_total` - 1, of an ordering key.

    It is `mixed(CRC32C(key))` modulo the total. A checksum alone is linear: keys of one shape, like
    "tenant-0" to "tenant-7", would miss half of the queues. `queues_total` is the configured total
    of the layout, never the number of queues that can be reached now (D14).
    """
    return mixed(crc32c(ordering_key)) % queues_total
