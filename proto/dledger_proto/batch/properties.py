"""The properties of one record: `(name_size u16, value_size u16, name, value)*`, UTF-8.

Owns: the form, and decoding it. Does not own: encoding (`describing.py`). Tag and keys are ordinary
properties named TAGS and KEYS (keys joined by a space), as in RocketMQ; `Record` shows them apart.
The ordering key, if the producer gave one, is the property __SHARDINGKEY, also as in RocketMQ.
"""

import struct
from typing import Final

from dledger_proto.errors import unreadable

TAG_NAME: Final = "TAGS"
KEYS_NAME: Final = "KEYS"
KEY_SEPARATOR: Final = " "
ORDERING_KEY_NAME: Final = "__SHARDINGKEY"
"""Consumers that keep order per key go by it; a key that is no UTF-8 has its bytes as escapes."""
PROPERTY_SIZES: Final = struct.Struct("<HH")
"""Of the name and of the value, which follow."""


def decode_properties(area: bytes, start: int, end: int) -> dict[str, str]:
    """Return all properties of the record whose encoding is `area[start:end]`, TAGS and KEYS too.

    Of equal names the last wins. Raises UNREADABLE_BATCH when the sizes do not add up or the text
    is not UTF-8.
    """
    properties: dict[str, str] = {}
    at = start
    try:
        while at < end:
            name_size, value_size = PROPERTY_SIZES.unpack_from(area, at)
            value_at = at + 4 + name_size
            name = area[at + 4 : value_at].decode()
            at = value_at + value_size
            properties[name] = area[value_at:at].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise unreadable(f"properties at byte {at}: {error}") from error
    if at != end:
        raise unreadable(f"properties of {end - start} bytes need {at - start}")
    return properties
