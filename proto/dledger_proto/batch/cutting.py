"""Cutting one record out of a batch: a batch of one, in the same format.

The new batch has the record's id, stamp, times, tag, keys and properties, and the flags and
extensions of the old batch. The body is not compressed.
"""

import struct
from typing import Final

from crc32c import crc32c

from dledger_proto.batch.compression import Compression
from dledger_proto.batch.header import BATCH_HEADER_SIZE, HEADER
from dledger_proto.batch.view import BatchView
from dledger_proto.errors import unreadable
from dledger_proto.limits import BATCH_SIZE_MAX

_COLUMNS: Final = struct.Struct("<IIIiI")


def cut_record(view: BatchView, i: int) -> bytes:
    """Return record i as a batch of its own; IndexError outside 0..record_count - 1.

    The caller has checked the whole batch: the new checksum only says that these bytes were cut out
    of it. Raises the errors of reading the record.
    """
    header = view.header
    view.check_place(i)
    body, properties, hashes = view.body(i), view.raw_properties(i), view.key_hashes(i)
    columns = _COLUMNS.pack(
        len(body),
        len(properties),
        view.tag_hashes[i],
        view.times[i] - header.base_time_ms,
        len(hashes),
    ) + struct.pack(f"<{len(hashes)}Q", *hashes)
    size = header.header_size + len(columns) + len(properties) + len(body)
    if size > BATCH_SIZE_MAX:
        raise unreadable(f"record {i}: {size} bytes, at most {BATCH_SIZE_MAX}")
    fixed = bytearray(BATCH_HEADER_SIZE)
    cut = header._replace(
        crc=0,
        size=size,
        compression=Compression.NONE,
        record_count=1,
        base_sequence=header.base_sequence + i if header.base_sequence >= 0 else -1,
        base_number=header.base_number + i,
        key_count=len(hashes),
        properties_size=len(properties),
        bodies_size=len(body),
        bodies_stored_size=len(body),
    )
    HEADER.pack_into(fixed, 0, *cut)
    extensions = view.buffer[BATCH_HEADER_SIZE : header.header_size]
    rest = b"".join((memoryview(fixed)[8:], extensions, columns, properties, body))
    return b"".join((fixed[:4], crc32c(rest).to_bytes(4, "little"), rest))
