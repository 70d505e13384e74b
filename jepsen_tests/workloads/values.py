"""Messages that can be recognised, with all that goes with a body: tag, keys, properties.

    body = value | "|" | CRC32C of the value and the filling, 8 hex digits | "|" | filling

Tag, keys and properties follow from the value, so that a reader can tell whether they are what was
sent: some messages have none, some have letters of several bytes. A value that ends with "@key" has
this key as its first one, by which a consumer group may keep order.
"""

from collections.abc import Mapping
from random import Random
from typing import Final, NamedTuple

from crc32c import crc32c

from dledger_proto.batch.codec import Record
from dledger_proto.batch.properties import ORDERING_KEY_NAME
from jepsen_tests.history.events import KEY_MARK, order_key_of

DAMAGED: Final = "!"
"""How what is shown of a message begins that is not as it was sent."""
TAGS: Final = ("", "paid", "größe", "x")


class Attributes(NamedTuple):
    """What a message has beside its body."""

    tag: str
    keys: tuple[str, ...]
    properties: Mapping[str, str]


def attributes_of(value: str) -> Attributes:
    """Return what the message of a value is sent with."""
    mark = crc32c(value.encode())
    first = (order_key_of(value),) if KEY_MARK in value else ()
    keys = (*first, *(f"{value}/{n}" for n in range(mark >> 2 & 3)))
    names = ("of", "ключ", "empty")[: mark >> 4 & 3]
    texts = (value, f"{mark:x}", "")
    return Attributes(TAGS[mark & 3], keys, dict(zip(names, texts, strict=False)))


def message_of(value: str, random: Random, size: int) -> Record:
    """Return a message with a body of about `size` bytes that carries the value."""
    filling = random.randbytes(max(0, size - len(value) - 10))
    check = crc32c(filling, crc32c(value.encode()))
    return Record(b"%b|%08x|%b" % (value.encode(), check, filling), *attributes_of(value))


def value_of(record: Record) -> str:
    """Return the value of a message; DAMAGED and what is there when it is not as we sent it."""
    value, _, rest = record.body.partition(b"|")
    check, bar, filling = rest.partition(b"|")
    if not bar or check != b"%08x" % crc32c(filling, crc32c(value)) or not value.isascii():
        return DAMAGED + record.body[:40].hex()
    found = value.decode()
    sent = attributes_of(found)
    properties = dict(record.properties)
    properties.pop(ORDERING_KEY_NAME, None)  # of some workloads, and the same for many values
    if Attributes(record.tag, record.keys, properties) != sent:
        return (
            f"{DAMAGED}{found} with {record.tag!r} {record.keys} {properties}, "
            f"sent with {sent.tag!r} {sent.keys} {sent.properties}"
        )
    return found
