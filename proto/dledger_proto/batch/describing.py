"""Encoding what describes records: tag, keys, properties, times. The layout is drawn in `codec.py`.

Owns: the rules for tags, keys and names, and the one loop over the records of a batch. Not:
decoding, and the form of a property (`properties.py`).

This loop is the most expensive part of a producer's work on a message. So it makes one call per
field, and no object that does not go into the batch. Tags, names and starts of properties (sizes
and name) repeat from message to message: bounded tables keep their encoded forms. Encoding column
by column with `map` was tried: it is no faster, and needs records of one kind.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from dledger_proto.batch.header import Record
from dledger_proto.batch.properties import KEY_SEPARATOR, KEYS_NAME, PROPERTY_SIZES, TAG_NAME
from dledger_proto.errors import Code, DledgerError
from dledger_proto.keyhash import key_hash_column, tag_hash
from dledger_proto.limits import (
    KEYS_PER_RECORD_MAX,
    PROPERTIES_PER_RECORD_MAX,
    PROPERTIES_SIZE_MAX,
    PROPERTY_NAME_SIZE_MAX,
    PROPERTY_SIZE_MIN,
)

TIME_DELTA_MAX: Final = (1 << 31) - 1
_TAGS_MAX: Final = 1_024
_NAMES_MAX: Final = 256
_FEW_SIZE: Final = PROPERTY_SIZE_MIN * PROPERTIES_PER_RECORD_MAX
"""Properties that are not larger cannot be too many."""
_START_SIZES_MAX: Final = 128
"""Starts of properties are remembered for values below this size; a name costs 16 KiB at most."""


def describe(records: Sequence[Record], base_time_ms: int) -> tuple[bytes, int, int]:
    """Return all columns but body_sizes, then the properties; key_count; properties_size.

    Raises MESSAGE_ILLEGAL or MESSAGE_TOO_LARGE naming record, field and limit.
    """
    property_sizes: list[int] = []
    tag_hashes: list[int] = []
    time_deltas: list[int] = []
    key_counts: list[int] = []
    hashed: list[bytes] = []
    parts: list[bytes] = []
    tags, names, keys_starts = _tags, _names, _keys_starts
    try:
        for _, tag, keys, properties, time_ms in records:
            tag_hash_, part = tags[tag]
            parts.append(part)
            size = len(part)
            if keys:
                if len(keys) == 1 and (key := keys[0]) and KEY_SEPARATOR not in key:
                    value = key.encode()
                    hashed.append(value)
                else:
                    value = _encode_keys(keys, hashed)
                value_size = len(value)
                start = keys_starts[value_size]
                parts += (start, value)
                size += len(start) + value_size
            for name, text in properties.items():
                value = text.encode()
                value_size = len(value)
                start = names[name][value_size]
                parts += (start, value)
                size += len(start) + value_size
            if size > _FEW_SIZE:
                _check_many(size, len(properties) + bool(tag) + bool(keys))
            property_sizes.append(size)
            tag_hashes.append(tag_hash_)
            key_counts.append(len(keys))
            time_deltas.append(_time_delta(time_ms, base_time_ms) if time_ms else 0)
    except UnicodeEncodeError as error:
        at = len(time_deltas)
        field = _field_of(records[at], error.object)
        raise _illegal(f"record {at}: {field}: not valid Unicode text: {error.reason}") from error
    except DledgerError as error:
        raise DledgerError(error.code, f"record {len(time_deltas)}: {error.detail}") from error
    count = len(records)
    columns = struct.pack(
        f"<{2 * count}I{count}i{count}I",
        *property_sizes, *tag_hashes, *time_deltas, *key_counts,
    )  # fmt: skip
    area = b"".join(parts)
    return b"".join((columns, key_hash_column(hashed), area)), len(hashed), len(area)


def _check_many(size: int, count: int) -> None:
    if size > PROPERTIES_SIZE_MAX:
        _refuse_size(size)
    if count > PROPERTIES_PER_RECORD_MAX:
        raise _illegal(f"{count} properties, at most {PROPERTIES_PER_RECORD_MAX}")


def _encode_keys(keys: tuple[str, ...], hashed: list[bytes]) -> bytes:
    """Return the value of the property KEYS of one or more keys; note each."""
    if len(keys) > KEYS_PER_RECORD_MAX:
        raise _illegal(f"{len(keys)} keys, at most {KEYS_PER_RECORD_MAX}")
    for key in keys:
        if not key or KEY_SEPARATOR in key:
            raise _illegal(f"key {key[:64]!r}: empty, or holds a space (it separates keys)")
    encoded = [key.encode() for key in keys]
    hashed += encoded
    return b" ".join(encoded)


def _time_delta(time_ms: int, base_time_ms: int) -> int:
    delta = time_ms - base_time_ms
    if not -TIME_DELTA_MAX <= delta <= TIME_DELTA_MAX or time_ms < 0:
        raise _illegal(
            f"time_ms {time_ms}, must be within {TIME_DELTA_MAX} of the batch's {base_time_ms}"
        )
    return delta


class _Starts(dict[int, bytes]):
    """By the size of the value: sizes and name, which a property starts with."""

    def __init__(self, name: bytes) -> None:
        super().__init__()
        self._name = name

    def __missing__(self, value_size: int) -> bytes:
        if value_size > PROPERTIES_SIZE_MAX:
            _refuse_size(value_size)
        start = PROPERTY_SIZES.pack(len(self._name), value_size) + self._name
        if value_size < _START_SIZES_MAX:
            self[value_size] = start
        return start


class _Names(dict[str, _Starts]):
    """By the name of a user's property: its starts."""

    def __missing__(self, name: str) -> _Starts:
        if not name or name in (TAG_NAME, KEYS_NAME) or not _has_no_control(name):
            raise _illegal(
                f"property name {name[:64]!r}: empty, reserved (TAGS, KEYS) or "
                "with control characters"
            )
        encoded = name.encode()
        if len(encoded) > PROPERTY_NAME_SIZE_MAX:
            raise _illegal(
                f"property name of {len(encoded)} bytes, at most {PROPERTY_NAME_SIZE_MAX}"
            )
        if len(self) >= _NAMES_MAX:
            self.clear()
        starts = self[name] = _Starts(encoded)
        return starts


class _Tags(dict[str, tuple[int, bytes]]):
    """By tag: its hash, and the whole property; (0, b"") for no tag.

    Rules of the official clients: not only white space, no `|`, no control characters.
    """

    def __missing__(self, tag: str) -> tuple[int, bytes]:
        if not tag:
            return 0, b""
        if tag.isspace() or "|" in tag or not _has_no_control(tag):
            raise _illegal(f"tag {tag[:64]!r}: blank, or holds '|' or a control character")
        value = tag.encode()
        if len(value) > PROPERTIES_SIZE_MAX:
            raise _too_large(f"tag of {len(value)} bytes, at most {PROPERTIES_SIZE_MAX}")
        known = tag_hash(tag), _Starts(TAG_NAME.encode())[len(value)] + value
        if len(value) <= _START_SIZES_MAX:
            if len(self) >= _TAGS_MAX:
                self.clear()
            self[tag] = known
        return known


_keys_starts: Final = _Starts(KEYS_NAME.encode())
_names: Final = _Names()
_tags: Final = _Tags()


def _has_no_control(text: str) -> bool:
    return all(character >= " " and character != "\x7f" for character in text)


def _field_of(record: Record, text: str) -> str:
    """Return the name of the field that holds a text."""
    if text == record.tag:
        return "tag"
    if text in record.keys:
        return "key"
    return "property name" if text in record.properties else _name_of(record.properties, text)


def _name_of(properties: Mapping[str, str], text: str) -> str:
    return next(name for name, value in properties.items() if value == text)


def _refuse_size(size: int) -> NoReturn:
    raise _too_large(f"properties of {size} bytes, at most {PROPERTIES_SIZE_MAX}")


def _illegal(sentence: str) -> DledgerError:
    return DledgerError(Code.MESSAGE_ILLEGAL, sentence)


def _too_large(sentence: str) -> DledgerError:
    return DledgerError(Code.MESSAGE_TOO_LARGE, sentence)
