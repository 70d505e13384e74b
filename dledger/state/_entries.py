"""Entries of the key index as bytes: making, sorting, searching them.

Owns: the form of an entry, drawn in `key_index.py`. With numpy, when it is installed, sorting costs
a third; the bytes that come out are the same.
"""

import importlib.util
import struct
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

from dledger_proto.limits import QUEUES_PER_TOPIC_MAX

_HAS_NUMPY: Final = importlib.util.find_spec("numpy") is not None
ENTRY_SIZE: Final = 24
_ENTRY: Final = struct.Struct(">QQQ")
_TAIL: Final = struct.Struct(">QQ")
_OFFSET_BITS: Final = 48
_OFFSET_MASK: Final = (1 << _OFFSET_BITS) - 1

assert _ENTRY.size == ENTRY_SIZE
assert QUEUES_PER_TOPIC_MAX <= 1 << (64 - _OFFSET_BITS), "a queue number fits an entry"


class KeyPlace(NamedTuple):
    """Where a batch lies that holds the hash; ordered by position."""

    position: int
    queue: int
    base_offset: int


def place_of(entry: bytes) -> KeyPlace:
    """Return what an entry points at."""
    _, position, queue_offset = _ENTRY.unpack(entry)
    return KeyPlace(position, queue_offset >> _OFFSET_BITS, queue_offset & _OFFSET_MASK)


def split(data: bytes) -> list[bytes]:
    """Return the entries one by one."""
    return [data[at : at + ENTRY_SIZE] for at in range(0, len(data), ENTRY_SIZE)]


def search(data: bytes, bound: bytes) -> int:
    """Return where in sorted entries the first one lies that is not below `bound`."""
    return ENTRY_SIZE * bisect_left(
        range(len(data) // ENTRY_SIZE),
        bound,
        key=lambda at: data[at * ENTRY_SIZE : (at + 1) * ENTRY_SIZE],
    )


def entries_of(records: Sequence[tuple[KeyPlace, bytes]], *, plain: bool = False) -> bytes:
    """Return the sorted entries of batches in log order: for each its place and its hashes.

    The hashes of one batch are distinct, u64 big-endian. `plain` goes without numpy.
    """
    tails = [
        (place.position, place.queue << _OFFSET_BITS | place.base_offset) for place, _ in records
    ]
    if plain or not _HAS_NUMPY:
        entries: list[bytes] = []
        for tail, (_, column) in zip(tails, records, strict=True):
            packed = _TAIL.pack(*tail)
            entries += [column[at : at + 8] + packed for at in range(0, len(column), 8)]
        return b"".join(sorted(entries))
    import numpy as np

    column = b"".join(column for _, column in records)
    hashes = np.frombuffer(column, ">u8").astype(np.uint64)
    counts = [len(column) // 8 for _, column in records]
    order = np.argsort(hashes, kind="stable")
    table = np.empty((len(hashes), 3), ">u8")
    table[:, 0] = hashes[order]
    table[:, 1:] = np.repeat(np.array(tails, np.uint64), counts, axis=0)[order]
    return table.tobytes()


def sort(parts: Sequence[bytes], *, plain: bool = False) -> bytes:
    """Return the entries of all parts in order. Each part is sorted, the parts are in log order.

    So of equal hashes the earlier part's lie first, and a stable sort by hash alone is enough.
    `plain` goes without numpy.
    """
    data = b"".join(parts)
    if plain or not _HAS_NUMPY:
        return b"".join(sorted(split(data)))
    import numpy as np

    table = np.frombuffer(data, ">u8").reshape(-1, 3)
    order = np.argsort(table[:, 0].astype(np.uint64), kind="stable")
    return table[order].tobytes()
