"""Hashes that producers, members and readers must compute alike (D14)."""

import zlib

from crc32c import crc32c


def key_hash(key: bytes) -> int:
    """Return the 64-bit hash of a message key, as stored in batches and in the key index.

    CRC32C above, CRC-32 (zlib's) below: cheap, the same in any language, and independent. (One
    polynomial with two start values would not be: for keys of one length the halves then differ
    by a constant.) Readers compare the key itself afterwards: a collision costs time, never a
    wrong answer.
    """
    return crc32c(key) << 32 | zlib.crc32(key)


def tag_hash(tag: str) -> int:
    """Return the 32-bit hash of a message tag; 0 means no tag, so a real hash is never 0."""
    return (crc32c(tag.encode()) or 1) if tag else 0


def queue_of_key(ordering_key: bytes, queues_total: int) -> int:
    """Return the queue, 0 to `queues_total` - 1, of an ordering key.

    `queues_total` is the layout's configured total, never the number that is reachable now (D14).
    """
    return crc32c(ordering_key) % queues_total
