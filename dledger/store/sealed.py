"""Seals: how a saved row, and the whole of them, show that they are what was written.

Owns: the form of a sealed value, of the totals and of the format row, and the message about a row
that fails its check. Not: where these lie (`lmdb_store.py`). Little-endian:

    sealed value   value, seal u32 = crc32c(key and value), begun with the key's length
    TOTALS_KEY     rows u64, seals u64 (their sum modulo 2^64), commit u64; sealed
    FORMAT_KEY     magic "DLST" (4), version u16 (2), reserved u16; sealed

The seal stands behind the value, because then the CRC of value and seal together is one constant:
a check is one pass over the bytes.

The seal shows a wrong row whenever the row is read. A check of single rows does not find a missing
or an old row; the totals find it, where all rows are read. The totals are written in the
transaction of the rows. They count every row but their own.
"""

import struct
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from dledger.store.store import LOCAL_PREFIX, DamagedStore, NewerStore

SEAL_SIZE: Final = 4
RESIDUE: Final = 0x48674BC7
"""CRC32C of any bytes followed by their own CRC32C, whatever it began with."""
FORMAT_KEY: Final = LOCAL_PREFIX + b"format"
FORMAT_VERSION: Final = 3
TOTALS_KEY: Final = b"\xff" * 16
"""Above every table; no scan reaches it."""
REMEDY: Final = (
    "`dledger repair` explains the damage and sets the data folder aside; the member then returns "
    "empty and is refilled by its group"
)

_MAGIC: Final = b"DLST"
_FORMAT: Final = struct.Struct("<4sHH")
_TOTALS: Final = struct.Struct("<QQQ")
_SEAL: Final = struct.Struct("<I")
_KEY_SHOWN_BYTES: Final = 64
SUM_MASK: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all rows as of one commit."""

    rows: int = 0
    seals: int = 0
    commit: int = 0
    """LMDB's number of the transaction that wrote them."""

    def encode(self) -> bytes:
        """Return the sealed value of TOTALS_KEY."""
        return seal(TOTALS_KEY, _TOTALS.pack(self.rows, self.seals & SUM_MASK, self.commit))

    def describe(self) -> str:
        """Return one stable line for logs and tests."""
        return f"commit {self.commit} with {self.rows} rows, seals {self.seals:016x}"


def seal(key: bytes, value: bytes | bytearray) -> bytes:
    """Return the sealed value, as it is saved."""
    return bytes(value) + _SEAL.pack(crc32c(value, crc32c(key, len(key))))


def is_sound(key: bytes, sealed: bytes) -> bool:
    """Tell whether a saved value fits its seal and its key."""
    return len(sealed) >= SEAL_SIZE and crc32c(sealed, crc32c(key, len(key))) == RESIDUE


def seal_in(sealed: bytes) -> int:
    """Return the seal of a saved value."""
    return int.from_bytes(sealed[-SEAL_SIZE:], "little")


def unseal(place: str, key: bytes, sealed: bytes) -> bytes:
    """Return the value of a row; DamagedStore when the row does not fit its seal."""
    if not is_sound(key, sealed):
        raise damaged_row(place, key)
    return sealed[:-SEAL_SIZE]


def damaged(place: str, reason: str) -> DamagedStore:
    """Return the error for a damaged store, with the remedy."""
    return DamagedStore(f"state store {place}: {reason}. {REMEDY}.")


def reason_of(error: DamagedStore) -> str:
    """Return place and reason of a damaged store without the advice."""
    return str(error).removeprefix("state store ").removesuffix(f". {REMEDY}.")


def damaged_row(place: str, key: bytes) -> DamagedStore:
    """Return the error for a row whose seal does not fit."""
    return damaged(place, f"{name_row(key)}: the row does not match its seal")


def name_row(key: bytes) -> str:
    """Return table and key in words; a table has the number that docs/formats.md gives it."""
    shown = key[1 : 1 + _KEY_SHOWN_BYTES].hex() + ("..." if len(key) > 1 + _KEY_SHOWN_BYTES else "")
    return f"table {key[:1].hex()}, key {shown}"


def parse_totals(place: str, sealed: bytes) -> Totals:
    """Return the totals of a saved value; DamagedStore when it holds no totals."""
    value = unseal(place, TOTALS_KEY, sealed)
    if len(value) != _TOTALS.size:
        raise damaged(place, f"totals of {len(value)} bytes")
    return Totals(*_TOTALS.unpack(value))


def format_row() -> bytes:
    """Return the unsealed value of FORMAT_KEY."""
    return _FORMAT.pack(_MAGIC, FORMAT_VERSION, 0)


def check_format(place: str, sealed: bytes | None) -> None:
    """Raise for a store that this dledger cannot use: NewerStore, or DamagedStore."""
    if sealed == _FORMAT.pack(_MAGIC, 1, 0):
        raise damaged(place, "format version 1, whose rows have no seals, is no longer read")
    if (
        sealed is None
        or len(sealed) != _FORMAT.size + SEAL_SIZE
        or not is_sound(FORMAT_KEY, sealed)
    ):
        raise damaged(place, "not a state store of dledger, or its format row is damaged")
    magic, version, reserved = _FORMAT.unpack_from(sealed)
    if magic != _MAGIC:
        raise damaged(place, "not a state store of dledger")
    if version > FORMAT_VERSION:
        raise NewerStore(
            f"state store {place}: format version {version}, this dledger knows {FORMAT_VERSION}; "
            "start the dledger that wrote it, or a later one"
        )
    if version == 2:
        raise damaged(
            place, "format version 2, whose topics do not name closed queues, is no longer read"
        )
    if version != FORMAT_VERSION or reserved:
        raise damaged(place, f"format {version}, reserved {reserved}, not known here")
