"""Cutting records out of a batch: a smaller batch, in the same format.

The new batch has the records' ids, stamps, times, tags, keys and properties, and the flags and
extensions of the old batch.
"""

import struct

from crc32c import crc32c

from dledger_proto.batch.compression import Compression, compress
from dledger_proto.batch.header import BATCH_HEADER_SIZE, HEADER
from dledger_proto.batch.view import BatchView
from dledger_proto.errors import unreadable
from dledger_proto.limits import BATCH_SIZE_MAX


def cut_record(view: BatchView, i: int) -> bytes:
    """Return record i as a batch of its own, not compressed; else as `cut_records`."""
    return _cut(view, i, 1, Compression.NONE)


def cut_records(view: BatchView, first: int, count: int) -> bytes:
    """Return `count` records from `first` on as a batch; IndexError outside 0..record_count - 1.

    The caller has checked the whole batch: the new checksum only says that these bytes were cut out
    of it. Bodies are compressed as before, if that is smaller. Raises the errors of reading a
    record.
    """
    return _cut(view, first, count, Compression(view.header.compression))


def _cut(view: BatchView, first: int, count: int, kind: Compression) -> bytes:
    header = view.header
    view.check_place(first)
    end = first + count
    view.check_place(end - 1)
    stored = bodies = b"".join([view.body(i) for i in range(first, end)])
    if kind is not Compression.NONE:
        stored = compress(kind, bodies)
        if len(stored) >= len(bodies):
            kind, stored = Compression.NONE, bodies
    properties = b"".join([view.raw_properties(i) for i in range(first, end)])
    hashes = [each for i in range(first, end) for each in view.key_hashes(i)]
    columns = struct.pack(
        f"<{3 * count}I{count}i{count}I{len(hashes)}Q",
        *view.body_sizes[first:end], *view.property_sizes[first:end], *view.tag_hashes[first:end],
        *[time - header.base_time_ms for time in view.times[first:end]],
        *view.key_counts[first:end], *hashes,
    )  # fmt: skip
    size = header.header_size + len(columns) + len(properties) + len(stored)
    if size > BATCH_SIZE_MAX:
        raise unreadable(f"record {first}: {size} bytes, at most {BATCH_SIZE_MAX}")
    fixed = bytearray(BATCH_HEADER_SIZE)
    smaller = header._replace(
        crc=0,
        size=size,
        compression=kind,
        record_count=count,
        base_sequence=header.base_sequence + first if header.base_sequence >= 0 else -1,
        base_number=header.base_number + first,
        key_count=len(hashes),
        properties_size=len(properties),
        bodies_size=len(bodies),
        bodies_stored_size=len(stored),
    )
    HEADER.pack_into(fixed, 0, *smaller)
    extensions = view.buffer[BATCH_HEADER_SIZE : header.header_size]
    rest = b"".join((memoryview(fixed)[8:], extensions, columns, properties, stored))
    return b"".join((fixed[:4], crc32c(rest).to_bytes(4, "little"), rest))
