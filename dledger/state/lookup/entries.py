"""Entries of the key index as bytes: making, sorting, searching them.

Owns: the form of an entry, drawn in `key_index.py`. Where numpy is installed, it sorts in a third
of the time. The bytes are the same.
"""

import importlib.util
import struct
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from dledger_proto.limits import QUEUES_PER_TOPIC_MAX

_HAS_NUMPY: Final = importlib.util.find_spec("numpy") is not None
if TYPE_CHECKING or _HAS_NUMPY:
    # Imported at start: at the first key the import would stop the loop for a tenth of a second.
    import numpy as np
if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    """Return where the first entry begins that is not below `bound`; the entries are sorted."""
    if data[:ENTRY_SIZE] >= bound:
        return 0
    if data[-ENTRY_SIZE:] < bound:
        return len(data)
    return ENTRY_SIZE * bisect_left(
        range(len(data) // ENTRY_SIZE),
        bound,
        key=lambda at: data[at * ENTRY_SIZE : (at + 1) * ENTRY_SIZE],
    )


def entries_of(records: Sequence[tuple[KeyPlace, bytes]], *, plain: bool = False) -> bytes:
    """Return the sorted entries of batches in log order: for each its place and its hashes.

    The hashes of a batch are u64 little-endian, in any order; equal ones make one entry. `plain`
    works without numpy.
    """
    tails = [
        (place.position, place.queue << _OFFSET_BITS | place.base_offset) for place, _ in records
    ]
    if plain or not _HAS_NUMPY:
        entries: set[bytes] = set()
        for tail, (_, column) in zip(tails, records, strict=True):
            packed = _TAIL.pack(*tail)
            count = len(column) // 8
            column = struct.pack(f">{count}Q", *struct.unpack(f"<{count}Q", column))
            entries.update(column[at : at + 8] + packed for at in range(0, len(column), 8))
        return b"".join(sorted(entries))
    hashes = np.frombuffer(b"".join(column for _, column in records), "<u8")
    counts = [len(column) // 8 for _, column in records]
    order = _stable_order(hashes)
    hashes, batches = hashes[order], np.repeat(np.arange(len(records)), counts)[order]
    # Stable, so the equal hashes of a batch lie side by side.
    again = (hashes[1:] == hashes[:-1]) & (batches[1:] == batches[:-1])
    if again.any():
        distinct = np.concatenate(([True], ~again))
        hashes, batches = hashes[distinct], batches[distinct]
    table = np.empty((len(hashes), 3), ">u8")
    table[:, 0] = hashes
    table[:, 1:] = np.array(tails, np.uint64)[batches]
    return table.tobytes()


def sort(parts: Sequence[bytes], *, plain: bool = False) -> bytes:
    """Return the entries of all parts in order. Each part is sorted, the parts are in log order.

    Entries of equal hashes are already in order, so a stable sort by hash alone is enough. `plain`
    works without numpy.
    """
    data = b"".join(parts)
    if plain or not _HAS_NUMPY:
        return b"".join(sorted(split(data)))
    table = np.frombuffer(data, ">u8").reshape(-1, 3)
    return table[_stable_order(table[:, 0].astype(np.uint64))].tobytes()


def _stable_order(hashes: "NDArray[np.uint64]") -> "NDArray[np.intp]":
    """Return what `argsort(kind="stable")` returns, in a fifth of the time.

    numpy sorts numbers with vector instructions. So the place of each hash is written into its
    lowest bits, and the numbers are sorted. Hashes that differ in these bits alone may come out in
    the wrong order: a check finds that, and `argsort` sorts them instead.
    """
    count = len(hashes)
    bits = np.uint64(max(count - 1, 0).bit_length())
    mask = (np.uint64(1) << bits) - np.uint64(1)
    keyed = (hashes & ~mask) | np.arange(count, dtype=np.uint64)
    keyed.sort()
    order = (keyed & mask).astype(np.intp)
    in_order = hashes[order]
    if (in_order[1:] < in_order[:-1]).any():
        return np.argsort(hashes, kind="stable")
    return order
