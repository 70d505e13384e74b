"""Batches whose bytes are right and whose content nobody can decode: what a broken producer sends.

A member refuses the first kind. The second kind it cannot see without decompressing.
"""

import struct
from typing import Any

import pytest
import zstandard
from crc32c import crc32c

from dledger_client import Producer, ProducerConfig
from dledger_proto.batch.codec import BatchView, Compression, Record, encode_batch, parse_header


def sealed(batch: bytes | bytearray) -> bytes:
    """Return a batch with its CRC made right."""
    fixed = bytearray(batch)
    fixed[4:8] = crc32c(bytes(fixed[8:])).to_bytes(4, "little")
    return bytes(fixed)


def with_bad_properties(batch: bytes) -> bytes:
    """Return a batch that has properties with the first of them longer than its record's."""
    header = parse_header(batch)
    at = header.size - header.bodies_stored_size - header.properties_size
    assert header.properties_size, "the batch has properties"
    return sealed(batch[: at + 2] + b"\xff\xff" + batch[at + 4 :])


def with_bad_bodies(batch: bytes) -> bytes:
    """Return a batch that is compressed with its stream broken behind its header."""
    assert parse_header(batch).compression, "the bodies are compressed"
    return sealed(batch[:-8] + b"nonsense")


def without_declared_size(batch: bytes) -> bytes:
    """Return a batch that is compressed, with a stream that does not say what it unpacks to."""
    header = parse_header(batch)
    bodies = bytes(BatchView(batch).bodies)
    stored = zstandard.ZstdCompressor(write_content_size=False).compress(bodies)
    made = bytearray(batch[: header.size - header.bodies_stored_size] + stored)
    struct.pack_into("<I", made, 8, len(made))
    struct.pack_into("<I", made, 104, len(stored))
    return sealed(made)


def compressed(topic_id: bytes, queue: int, count: int, size: int = 500) -> bytes:
    """Return a sound batch of compressed bodies."""
    return encode_batch(
        [Record(b"%d" % number + b"x" * size) for number in range(count)],
        topic_id=topic_id, queue=queue, stamp=None, base_number=0, base_time_ms=1,
        compression=Compression.ZSTD,
    )  # fmt: skip


def send_unreadable(where: str, topic: str, queue: int, count: int) -> int:
    """Have a real cluster store a batch of `count` records that nobody can decode.

    Returns its first offset. Members take it: it shows only when it is decompressed.
    """

    def broken(records: list[Record], **arguments: Any) -> bytes:
        return with_bad_bodies(encode_batch(records, **arguments))

    config = ProducerConfig(compression=Compression.ZSTD, linger_ms=500, batch_records=count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dledger_client._core.producer.batch.encode_batch", broken)
        with Producer(where, config) as producer:
            sent = [producer.send_async(topic, bytes(500), queue=queue) for _ in range(count)]
            producer.flush()
    offsets = [each.result().offset for each in sent]
    assert offsets == [*range(offsets[0], offsets[0] + count)], "one batch"
    return offsets[0]
