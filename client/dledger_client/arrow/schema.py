"""The columns of records: names, types, which are there unless asked otherwise. Pure.

Owns: the table of columns, and the sentence about a name that is no column. Not: their values.

Every column is nullable and every type is Spark's own Arrow form of its own type: Spark takes a
batch only if its schema is exactly that.
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from dledger_proto.errors import Code, DledgerError


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its Arrow type, its name in Spark's DDL, and whether it is there by default."""

    type: pa.DataType
    ddl: str
    by_default: bool = True


_TIME: Final = pa.timestamp("us", "UTC")
PROPERTIES: Final = "properties"

COLUMNS: Final[dict[str, Column]] = {
    "topic": Column(pa.string(), "STRING"),
    "queue_id": Column(pa.int32(), "INT"),
    "queue_offset": Column(pa.int64(), "BIGINT"),
    # When the leader stamped the entry, and when the producer made the record.
    "store_timestamp": Column(_TIME, "TIMESTAMP"),
    "born_timestamp": Column(_TIME, "TIMESTAMP"),
    # KEYS and TAGS, null without; keys are joined by a space, as on the wire.
    "key": Column(pa.string(), "STRING"),
    "tag": Column(pa.string(), "STRING"),
    "body": Column(pa.binary(), "BINARY"),
    # All others, without KEYS and TAGS.
    PROPERTIES: Column(pa.map_(pa.string(), pa.string()), "MAP<STRING, STRING>", by_default=False),
    # Null for a batch without a stamp (D11).
    "producer_id": Column(pa.binary(), "BINARY", by_default=False),
    "producer_epoch": Column(pa.int64(), "BIGINT", by_default=False),
    "sequence": Column(pa.int64(), "BIGINT", by_default=False),
    # Producer id and number, 24 bytes: what `lookup_message` takes.
    "message_id": Column(pa.binary(), "BINARY", by_default=False),
    # Null without a tag.
    "tag_hash": Column(pa.int64(), "BIGINT", by_default=False),
    # Of the batch, in the log: equal on all members; null when the member did not tell.
    "log_position": Column(pa.int64(), "BIGINT", by_default=False),
    # Bytes of the body, which is not touched for it.
    "body_size": Column(pa.int64(), "BIGINT", by_default=False),
    # Of 64 bits without sign on the wire; here the same bits with one.
    "key_hashes": Column(pa.list_(pa.int64()), "ARRAY<BIGINT>", by_default=False),
}
TOLD_MAX: Final = 50
"""Names that the sentence about an unknown name lists, at most."""
DEFAULT_COLUMNS: Final = tuple(name for name, column in COLUMNS.items() if column.by_default)


def choose_columns(
    names: Sequence[str] | None = None, *, include_properties: bool = False
) -> tuple[str, ...]:
    """Return the columns to decode: those asked for, in their order, or the default ones.

    `include_properties` adds the map to the default ones. INVALID_ARGUMENT for a name that is no
    column (the nearest is named), twice the same, and for none at all.
    """
    if names is None:
        return DEFAULT_COLUMNS + ((PROPERTIES,) if include_properties else ())
    for name in names:
        if name not in COLUMNS:
            raise DledgerError(Code.INVALID_ARGUMENT, f"columns: {unknown(name, COLUMNS)}")
    if not names or len(set(names)) != len(names):
        raise DledgerError(
            Code.INVALID_ARGUMENT, f"columns: {', '.join(names) or 'empty'}, name each once"
        )
    chosen = tuple(names)
    return chosen + ((PROPERTIES,) if include_properties and PROPERTIES not in chosen else ())


def unknown(name: str, known: Iterable[str]) -> str:
    """Return a sentence about a name that is not known, with the nearest one that is."""
    names = list(known)
    near = difflib.get_close_matches(name.lower(), [each.lower() for each in names], 1, 0.5)
    if near:
        meant = next(each for each in names if each.lower() == near[0])
        return f"{name!r} is not known; did you mean {meant!r}?"
    if not names:
        return f"{name!r} is not known, and there are no others"
    others = f" and {len(names) - TOLD_MAX} more" if len(names) > TOLD_MAX else ""
    return f"{name!r} is not known; known are {', '.join(sorted(names)[:TOLD_MAX])}{others}"


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of chosen columns."""
    return pa.schema([pa.field(name, COLUMNS[name].type) for name in columns])


def ddl_of(columns: Sequence[str]) -> str:
    """Return the same schema as Spark's DDL."""
    return ", ".join(f"{name} {COLUMNS[name].ddl}" for name in columns)
