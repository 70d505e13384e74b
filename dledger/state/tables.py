"""The tables of the state, and the one way to write them.

Owns: the prefix byte of every table, so that no two collide; `Writer`, through which every write of
an apply goes to the store and into the digest. Not: rows, which their tables' modules draw.

A key is the prefix byte and then fields in an order-preserving form: integers big-endian, ids as
their 16 bytes, names last or behind their length. Values are little-endian structs.

Rows that come with every batch are not rows of their own in the store: they are appended to the
newest block of their table, up to about a page (`BLOCK_SIZE_TARGET`). A store then saves one value
for a hundred batches; measured in docs/state-store.md.

The digest (D6): after each entry

    digest = blake2b-256(digest before, index u64, term u64, time_ms i64, writes)
    write  = operation u8, key size u16, value size u32, key, value       in the order of apply

where the value of an append is its suffix and that of a deletion is empty. Rows of META_LOCAL are
not in it: they say how far this member is.
"""

import enum
import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from dledger.store.store import LOCAL_PREFIX, Row, StateStore
from dledger.types import EntryRef

BLOCK_SIZE_TARGET: Final = 4_000
"""A value of this size fills one LMDB page: 4096 less its page header."""
DIGEST_SIZE: Final = 32
NO_DIGEST: Final = bytes(DIGEST_SIZE)


class Table(enum.IntEnum):
    """Prefix byte of a table's keys. Numbers are on disk and never reused."""

    META_LOCAL = LOCAL_PREFIX[0]
    META = 0x01
    TOPIC = 0x10
    TOPIC_DELETED = 0x11
    QUEUE = 0x20
    QUEUE_ROWS = 0x21
    KEY_DIRECTORY = 0x30
    KEY_HASHES = 0x31
    MESSAGE_IDS = 0x38
    GROUP_OFFSET = 0x40
    PROGRESS = 0x41
    CONSUMER = 0x42
    GRANT = 0x43
    GROUP_EPOCHS = 0x44
    FAILURE_WAVE = 0x45
    GROUP_USE = 0x46
    COMPACTED = 0x47
    USER = 0x48
    USER_META = 0x49
    PRODUCER = 0x50
    PRODUCER_ACTIVITY = 0x51
    PRODUCER_QUEUE = 0x52
    PRODUCER_WINDOW = 0x53
    HOLD = 0x60
    GARBAGE = 0x61
    TIMER = 0x70
    TIMER_BY_ID = 0x71
    ORIGIN = 0x72
    PIN = 0x73
    REFERENCE_AT = 0x74
    SCHEDULE = 0x75
    SCHEDULE_DUE = 0x76
    COPY = 0x77
    COPY_PLACE = 0x78


PREFIX: Final = {table: bytes((table,)) for table in Table}
KEY_U32: Final = struct.Struct(">I")
KEY_U64: Final = struct.Struct(">Q")
PAGE_ROWS: Final = 256
"""Rows that `rows_in` takes from the store at a time."""

_WRITE: Final = struct.Struct("<BHI")
_ENTRY: Final = struct.Struct("<QQq")
_PUT: Final = 1
_APPEND: Final = 2
_DELETE: Final = 3


def after(prefix: bytes) -> bytes:
    """Return the first key behind all keys that start with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    assert stripped, "a prefix of 0xff only has no end"
    return stripped[:-1] + bytes((stripped[-1] + 1,))


def rows_in(store: StateStore, start: bytes, stop: bytes) -> Iterator[Row]:
    """Iterate over the rows with start <= key < stop; rows that were returned may be deleted."""
    while rows := store.scan(start, stop, PAGE_ROWS):
        yield from rows
        start = rows[-1][0] + b"\0"


class Writer:
    """Writes rows and remembers what it wrote for the digest of the entry."""

    __slots__ = ("_parts", "store")

    def __init__(self, store: StateStore) -> None:
        self.store = store
        self._parts: list[bytes] = []

    def put(self, key: bytes, value: bytes) -> None:
        """Set a row."""
        self._parts += (_WRITE.pack(_PUT, len(key), len(value)), key, value)
        self.store.put(key, value)

    def append(self, key: bytes, suffix: bytes, *, is_new: bool = False) -> None:
        """Extend a row; see `StateStore.append`."""
        self._parts += (_WRITE.pack(_APPEND, len(key), len(suffix)), key, suffix)
        self.store.append(key, suffix, is_new=is_new)

    def delete(self, key: bytes) -> None:
        """Remove a row."""
        self._parts += (_WRITE.pack(_DELETE, len(key), 0), key)
        self.store.delete(key)

    def put_all(self, rows: Sequence[Row]) -> None:
        """Set many rows, as `put` does one."""
        parts, head = self._parts, _WRITE.pack
        for key, value in rows:
            parts += (head(_PUT, len(key), len(value)), key, value)
        self.store.put_all(rows)

    def delete_all(self, keys: Sequence[bytes]) -> None:
        """Remove many rows whose keys have one size, as `delete` does one."""
        if keys:
            head = _WRITE.pack(_DELETE, len(keys[0]), 0)
            self._parts += (head, head.join(keys))
            self.store.delete_all(keys)

    def digest(self, before: bytes, ref: EntryRef, time_ms: int) -> bytes:
        """Return the digest after an entry whose writes are these, and forget them."""
        writes = b"".join(self._parts)
        self._parts.clear()
        stamp = _ENTRY.pack(ref.index, ref.term, time_ms)
        return hashlib.blake2b(before + stamp + writes, digest_size=DIGEST_SIZE).digest()
