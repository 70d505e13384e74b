"""Batches and helpers for the tests of the shared contract."""

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import settings

from dledger_proto.batch.codec import BATCH_HEADER_SIZE, ProducerStamp, Record, encode_batch
from dledger_proto.errors import Code, DledgerError

untimed = settings(deadline=None, database=None)
"""The machine may pause at any time, and a failing case belongs into a test, not into a folder."""

TOPIC_ID = bytes(range(16))
PRODUCER_ID = bytes(range(100, 116))
STAMP = ProducerStamp(PRODUCER_ID, 3, 40)
BASE_TIME_MS = 1_700_000_000_000

HEADER_FORMAT = "<4sIIHBBII16sIIq16sIqQIIIII"
HEADER_FIELDS = (
    "magic", "crc", "size", "header_size", "version", "compression", "required_flags",
    "optional_flags", "topic_id", "queue", "record_count", "base_time_ms", "producer_id",
    "producer_epoch", "base_sequence", "base_number", "key_count", "properties_size",
    "bodies_size", "bodies_stored_size", "reserved",
)  # fmt: skip
"""The header once more, so that a slip in the product's own table cannot hide."""

RICH = (
    Record(b"first", "blue", ("k1", "k2"), {"a": "1", "city": "Zürich"}, BASE_TIME_MS + 5),
    Record(b"", "", ("k3",), {}, 0),
    Record(b"third body", "green", (), {"empty": ""}, BASE_TIME_MS - 7),
)


def make_batch(
    records: Sequence[Record] = RICH, *, stamp: ProducerStamp | None = STAMP, **changes: Any
) -> bytes:
    arguments: dict[str, Any] = {
        "topic_id": TOPIC_ID, "queue": 2, "base_number": 9, "base_time_ms": BASE_TIME_MS,
    } | changes  # fmt: skip
    return encode_batch(records, stamp=stamp, **arguments)


def sealed(batch: bytes | bytearray) -> bytes:
    """Return the batch with its CRC made right."""
    fixed = bytearray(batch)
    fixed[4:8] = crc32c(bytes(fixed[8:])).to_bytes(4, "little")
    return bytes(fixed)


def with_fields(batch: bytes, **changes: Any) -> bytes:
    """Return the batch with header fields changed and the CRC right: a lying producer."""
    fields: tuple[Any, ...] = struct.unpack_from(HEADER_FORMAT, batch)
    values: dict[str, Any] = dict(zip(HEADER_FIELDS, fields, strict=True)) | changes
    return sealed(struct.pack(HEADER_FORMAT, *values.values()) + batch[BATCH_HEADER_SIZE:])


def with_extensions(batch: bytes, area: bytes) -> bytes:
    """Return the batch with an extension area between header and columns."""
    longer = batch[:BATCH_HEADER_SIZE] + area + batch[BATCH_HEADER_SIZE:]
    return with_fields(longer, header_size=BATCH_HEADER_SIZE + len(area), size=len(longer))


def refused(call: Callable[[], object], *codes: Code) -> DledgerError:
    """Check that a call raises DledgerError with one of the codes (any when none is given)."""
    with pytest.raises(DledgerError) as caught:
        call()
    assert not codes or caught.value.code in codes, caught.value
    return caught.value
