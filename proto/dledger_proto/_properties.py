"""The properties of one record: `(name_size u16, value_size u16, name, value)*`, UTF-8.

Owns: encoding and decoding, and the rules for tags, keys and names. Tag and keys are ordinary
properties named TAGS and KEYS (keys joined by a space), as in RocketMQ; `Record` shows them apart.
Tags and names repeat from message to message, so their encoded forms are remembered (bounded).
"""

import functools
import struct
from collections.abc import Mapping
from typing import Final

from dledger_proto.errors import Code, DledgerError
from dledger_proto.keyhash import key_hash, tag_hash
from dledger_proto.limits import KEYS_PER_RECORD_MAX, PROPERTIES_SIZE_MAX, PROPERTY_NAME_SIZE_MAX

TAG_NAME: Final = "TAGS"
KEYS_NAME: Final = "KEYS"
KEY_SEPARATOR: Final = " "

_SIZES = struct.Struct("<HH")
_CACHE_ENTRIES_MAX = 1_024
_KEYS_NAME_BYTES = KEYS_NAME.encode()


def _illegal(sentence: str) -> DledgerError:
    return DledgerError(Code.MESSAGE_ILLEGAL, sentence)


def _utf8(field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _illegal(f"{field}: not valid Unicode text: {error.reason}") from error


@functools.lru_cache(_CACHE_ENTRIES_MAX)
def encode_tag(tag: str) -> tuple[int, bytes]:
    """Return (hash, encoded property) of a tag; (0, b"") for no tag.

    Rules of the official clients: not only white space, no `|`, no control characters.
    """
    if not tag:
        return 0, b""
    if tag.isspace() or "|" in tag or not _has_no_control(tag):
        raise _illegal(f"tag {tag[:64]!r}: blank, or holds '|' or a control character")
    encoded = _utf8("tag", tag)
    if len(encoded) > PROPERTIES_SIZE_MAX:
        raise DledgerError(
            Code.MESSAGE_TOO_LARGE, f"tag of {len(encoded)} bytes, at most {PROPERTIES_SIZE_MAX}"
        )
    return tag_hash(tag), _SIZES.pack(len(TAG_NAME), len(encoded)) + TAG_NAME.encode() + encoded


@functools.lru_cache(_CACHE_ENTRIES_MAX)
def _encode_name(name: str) -> bytes:
    if not name or name in (TAG_NAME, KEYS_NAME) or not _has_no_control(name):
        raise _illegal(
            f"property name {name[:64]!r}: empty, reserved (TAGS, KEYS) or with control characters"
        )
    encoded = _utf8("property name", name)
    if len(encoded) > PROPERTY_NAME_SIZE_MAX:
        raise _illegal(f"property name of {len(encoded)} bytes, at most {PROPERTY_NAME_SIZE_MAX}")
    return encoded


def _has_no_control(text: str) -> bool:
    return all(character >= " " and character != "\x7f" for character in text)


def encode_keys(keys: tuple[str, ...], hashes: list[int]) -> bytes:
    """Return the encoded KEYS property of one to KEYS_PER_RECORD_MAX keys; append their hashes."""
    if len(keys) > KEYS_PER_RECORD_MAX:
        raise _illegal(f"{len(keys)} keys, at most {KEYS_PER_RECORD_MAX}")
    parts: list[bytes] = []
    for key in keys:
        if not key or KEY_SEPARATOR in key:
            raise _illegal(f"key {key[:64]!r}: empty, or holds a space (it separates keys)")
        encoded = _utf8("key", key)
        hashes.append(key_hash(encoded))
        parts.append(encoded)
    value = parts[0] if len(parts) == 1 else b" ".join(parts)
    if len(value) > PROPERTIES_SIZE_MAX:
        raise _too_large(len(value))
    return _SIZES.pack(len(_KEYS_NAME_BYTES), len(value)) + _KEYS_NAME_BYTES + value


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Return the encoded properties of a user; TAGS and KEYS are refused as names here."""
    parts: list[bytes] = []
    for name, value in properties.items():
        name_bytes = _encode_name(name)
        value_bytes = _utf8(name, value)
        value_size = len(value_bytes)
        if value_size > PROPERTIES_SIZE_MAX:
            raise _too_large(value_size)
        parts += (_SIZES.pack(len(name_bytes), value_size), name_bytes, value_bytes)
    return b"".join(parts)


def _too_large(size: int) -> DledgerError:
    return DledgerError(
        Code.MESSAGE_TOO_LARGE, f"properties of {size} bytes, at most {PROPERTIES_SIZE_MAX}"
    )


def check_properties_size(size: int) -> None:
    """Refuse the encoded properties of one record above PROPERTIES_SIZE_MAX."""
    if size > PROPERTIES_SIZE_MAX:
        raise _too_large(size)


def decode_properties(area: bytes, start: int, end: int) -> dict[str, str]:
    """Return all properties of the record whose encoding is `area[start:end]`, TAGS and KEYS too.

    Of equal names the last wins. Raises CORRUPT_BATCH when the sizes do not add up or the text is
    not UTF-8.
    """
    properties: dict[str, str] = {}
    at = start
    try:
        while at < end:
            name_size, value_size = _SIZES.unpack_from(area, at)
            value_at = at + 4 + name_size
            name = area[at + 4 : value_at].decode()
            at = value_at + value_size
            properties[name] = area[value_at:at].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise DledgerError(Code.CORRUPT_BATCH, f"properties at byte {at}: {error}") from error
    if at != end:
        raise DledgerError(
            Code.CORRUPT_BATCH, f"properties of {end - start} bytes need {at - start}"
        )
    return properties
