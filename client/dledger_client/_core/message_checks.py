"""Checks of one message before anything is sent (S33), and its size in a batch. Pure.

Owns: the choice between a fast path that accepts what is certainly fine, and the batch codec, which
is asked about everything else: it owns the rules, and refuses with field, value and limit.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from dledger_client.errors import (
    MessageTooLarge,
    client_error,
    illegal,
    invalid,
)
from dledger_proto.batch.codec import BATCH_HEADER_SIZE, Record, encode_batch
from dledger_proto.batch.properties import ORDERING_KEY_NAME
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import (
    BODY_SIZE_MAX,
    GROUP_NAME_LENGTH_MAX,
    PROPERTIES_SIZE_MAX,
    PROPERTY_NAME_SIZE_MAX,
    TOPIC_NAME_LENGTH_MAX,
)
from dledger_proto.names import check_name

COLUMN_BYTES: Final = 20
"""Of each record in a batch, besides 8 for each key."""
_PROPERTY_BYTES: Final = 4
_RESERVED: Final = frozenset(("TAGS", "KEYS"))
_NO_PROPERTIES: Final[Mapping[str, str]] = Record(b"").properties


def check_topic(topic: str) -> None:
    """Refuse a topic name that breaks RocketMQ's rules."""
    _check_name("topic", topic, TOPIC_NAME_LENGTH_MAX)


def check_group(group: str) -> None:
    """Refuse the name of a consumer group that breaks RocketMQ's rules."""
    _check_name("consumer group", group, GROUP_NAME_LENGTH_MAX)


def _check_name(field: str, name: str, limit: int) -> None:
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise illegal(f"{field}: {type(name).__name__}, must be str")
    try:
        check_name(field, name, limit)
    except DledgerError as error:
        raise illegal(error.detail) from None


def make_record(
    body: bytes,
    tag: str = "",
    key: str | None = None,
    keys: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    ordering_key: str | bytes | None = None,
) -> tuple[Record, int]:
    """Return a message as a record and an upper bound of its bytes in a batch.

    The record carries its ordering key as a property. Raises MessageIllegal or MessageTooLarge
    naming field, value and limit.
    """
    if type(body) is not bytes:
        body = _body_of(body)
    if len(body) > BODY_SIZE_MAX:
        raise MessageTooLarge(
            Code.MESSAGE_TOO_LARGE, f"body: {len(body)} bytes, at most {BODY_SIZE_MAX}"
        )
    if ordering_key is not None:
        own = _copied(properties) or {}
        properties = own | {ORDERING_KEY_NAME: _text_of_key(ordering_key)}
    if not tag and key is None and not keys and not properties:
        return Record(body), len(body) + COLUMN_BYTES
    if isinstance(keys, str) or not isinstance(keys, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise illegal(f"keys: {type(keys).__name__}, must be a sequence of str")
    all_keys = tuple(keys) if key is None else (key, *keys)
    return _sized(Record(body, tag, all_keys, _copied(properties) or _NO_PROPERTIES))


def _text_of_key(ordering_key: object) -> str:
    """Return an ordering key as text; bytes that are no UTF-8 become escapes."""
    if isinstance(ordering_key, str):
        return ordering_key
    if isinstance(ordering_key, bytes):
        return ordering_key.decode(errors="backslashreplace")
    raise illegal(f"ordering_key: {ordering_key!r}, must be str or bytes")


def taken_over(message: object, ordering_key: str | bytes | None = None) -> tuple[Record, int]:
    """Return one of many messages as `make_record` does: checked, and no longer the caller's."""
    if not isinstance(message, Record):
        if isinstance(message, bytes | bytearray | memoryview):
            body = _body_of(cast("object", message))
            return make_record(body, ordering_key=ordering_key)
        raise illegal(f"message: {type(message).__name__}, must be bytes or Message")
    body, tag, keys, properties, time_ms = message
    if isinstance(time_ms, bool) or not isinstance(time_ms, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise illegal(f"time_ms: {time_ms!r}, must be milliseconds since 1970, an int")
    record, size = make_record(body, tag, None, keys, properties, ordering_key)
    return record._replace(time_ms=time_ms), size


def _copied(properties: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return a copy: the caller may change its own while the message waits to be encoded."""
    if not properties:
        return None
    try:
        return dict(properties)
    except (TypeError, ValueError):
        raise illegal(
            f"properties: {type(properties).__name__}, must be a mapping of str to str"
        ) from None


def _sized(record: Record) -> tuple[Record, int]:
    try:
        size = _plain_size(record)
    except (AttributeError, TypeError):
        size = -1
    if size < 0:
        size = _exact_size(record)
    return record, size


def _body_of(body: object) -> bytes:
    if isinstance(body, bytes | bytearray):
        return bytes(body)
    if isinstance(body, memoryview):
        return cast("memoryview[int]", body).tobytes()
    raise illegal(f"body: {type(body).__name__}, must be bytes")


def _plain_size(record: Record) -> int:
    """Return the bytes of a record whose text is certainly fine; -1: ask the codec."""
    body, tag, keys, properties, _ = record
    described = 0
    if tag:
        if not (tag.isascii() and tag.isprintable()) or "|" in tag or tag.isspace():
            return -1
        described = _PROPERTY_BYTES + 4 + len(tag)
    for key in keys:
        if not (key.isascii() and key.isprintable()) or " " in key or not key:
            return -1
        described += len(key) + 1
    if keys:
        described += _PROPERTY_BYTES + 4
    for name, value in properties.items():
        if not (name.isascii() and name.isprintable() and value.isascii()):
            return -1
        if not 1 <= len(name) <= PROPERTY_NAME_SIZE_MAX or name in _RESERVED:
            return -1
        described += _PROPERTY_BYTES + len(name) + len(value)
    if described > PROPERTIES_SIZE_MAX or len(keys) > 1 or len(body) > BODY_SIZE_MAX:
        return -1
    return len(body) + COLUMN_BYTES + 8 * len(keys) + described


def _exact_size(record: Record) -> int:
    """Return the bytes of a record, from the codec, which raises what is wrong with it."""
    try:
        encoded = encode_batch(
            [record], topic_id=b"?" * 16, queue=0, stamp=None, base_number=0, base_time_ms=0
        )
    except DledgerError as error:
        raise client_error(error) from None
    except (AttributeError, TypeError, ValueError) as error:
        raise invalid(f"message: {_wrong_type(record) or error}") from error
    return len(encoded) - BATCH_HEADER_SIZE


def _wrong_type(record: Record) -> str:
    """Return which text of a record is none; empty when all are."""
    texts: list[tuple[str, object]] = [("tag", record.tag)]
    texts += [("keys", key) for key in record.keys]
    for name, value in record.properties.items():
        texts += [("name of a property", name), (f"property {name!r}", value)]
    for field, text in texts:
        if not isinstance(text, str):
            return f"{field}: {text!r}, must be str"
    return ""
