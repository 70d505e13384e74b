"""The properties of many records at once: tag, keys, and a map of the others.

Owns: walking `(name_size u16, value_size u16, name, value)*` of all records together: round k looks
at the k-th property of every record that has one, so a round is a handful of numpy calls whatever
the number of records. Not: the form itself (`dledger_proto/batch/properties.py` describes it).

As there: of equal names within a record the last wins; UNREADABLE_BATCH when sizes do not add up or
text is not UTF-8.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dledger_client.arrow.columns import Int64s, back_to_back
from dledger_proto.errors import DledgerError, unreadable

TAG_NAME: Final = "TAGS"
KEYS_NAME: Final = "KEYS"
_SIZES: Final = 4
"""Bytes of the two sizes in front of each property."""


@dataclass(frozen=True, slots=True)
class _Found:
    """Every property of every record, ordered by record; parallel arrays."""

    record: Int64s
    name: Int64s
    """Where its name begins; its value begins where that ends."""
    value: Int64s
    end: Int64s

    def only(self, places: Int64s) -> "_Found":
        return _Found(
            self.record.take(places), self.name.take(places), self.value.take(places),
            self.end.take(places),
        )  # fmt: skip


class Properties:
    """All properties of `len(starts) - 1` records."""

    def __init__(self, area: bytes, starts: Int64s) -> None:
        """Walk `area`: record i's properties lie from starts[i] to starts[i + 1]."""
        self._area = area
        self._count = len(starts) - 1
        found = _walk(np.frombuffer(area, np.uint8), starts)
        names = self._strings(found.name, found.value)
        encoded = names.dictionary_encode()
        self._names: list[str] = encoded.dictionary.to_pylist()
        self._codes: Int64s = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        self._found = found
        self._drop_repeated()

    def _drop_repeated(self) -> None:
        """Of equal names within a record keep the last."""
        which = self._found.record * max(len(self._names), 1) + self._codes
        ordered = np.sort(which)
        if not np.any(ordered[1:] == ordered[:-1]):
            return
        _, from_behind = np.unique(which[::-1], return_index=True)
        kept = np.sort(len(which) - 1 - from_behind)
        self._found = self._found.only(kept)
        self._codes = self._codes[kept]

    def _strings(self, starts: Int64s, ends: Int64s) -> pa.Array:
        """Return pieces of the area as Arrow strings, checked to be UTF-8."""
        slots = np.empty(2 * len(starts) + 1, np.int32)
        slots[0:-1:2] = starts
        slots[1::2] = ends
        slots[-1] = len(self._area)
        # Offsets of one array never go back: the gaps between the pieces are its odd values.
        pieces = back_to_back(pa.binary(), slots, self._area)
        chosen = pieces.take(pa.array(np.arange(0, 2 * len(starts), 2, dtype=np.int64)))
        try:
            return chosen.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise unreadable(f"properties: {error}") from error

    def _values(self, found: _Found) -> pa.Array:
        return self._strings(found.value, found.end)

    def _code(self, name: str) -> int:
        return self._names.index(name) if name in self._names else -1

    def _named(self, name: str) -> pa.Array:
        """Return one property of each record as a column, null where it is missing."""
        code = self._code(name)
        if code < 0:
            return pa.nulls(self._count, pa.string())
        found = self._found.only(np.flatnonzero(self._codes == code))
        place = np.full(self._count, -1, np.int64)
        place[found.record] = np.arange(len(found.record))
        missing = place < 0
        return self._values(found).take(pa.array(np.ma.masked_array(place, missing)))

    @property
    def tags(self) -> pa.Array:
        """Each record's tag; null without."""
        return self._named(TAG_NAME)

    @property
    def keys(self) -> pa.Array:
        """Each record's keys joined by a space; null without."""
        return self._named(KEYS_NAME)

    @cached_property
    def others(self) -> pa.Array:
        """A map of all properties but TAGS and KEYS; empty where there are none."""
        apart = (self._codes == self._code(TAG_NAME)) | (self._codes == self._code(KEYS_NAME))
        found = self._found.only(np.flatnonzero(~apart))
        ends = np.searchsorted(found.record, np.arange(self._count + 1)).astype(np.int32)
        return pa.MapArray.from_arrays(
            pa.array(ends), self._strings(found.name, found.value), self._values(found)
        )


def _walk(area: NDArray[np.uint8], starts: Int64s) -> _Found:
    """Return where every property lies, ordered by record and within it as encoded."""
    record = np.flatnonzero(starts[1:] > starts[:-1])
    at, end = starts[record], starts[record + 1]
    rounds: list[_Found] = []
    while len(record):
        if np.any(at + _SIZES > end):
            raise _damaged(record[np.argmax(at + _SIZES > end)])
        name_size = area[at].astype(np.int64) | area[at + 1].astype(np.int64) << 8
        value_size = area[at + 2].astype(np.int64) | area[at + 3].astype(np.int64) << 8
        name = at + _SIZES
        value = name + name_size
        following = value + value_size
        if np.any(following > end):
            raise _damaged(record[np.argmax(following > end)])
        rounds.append(_Found(record, name, value, following))
        more = np.flatnonzero(following < end)
        if len(more) == len(record):
            at = following
        else:
            record, at, end = record[more], following[more], end[more]
    if not rounds:
        none = np.zeros(0, np.int64)
        return _Found(none, none, none, none)
    found = _Found(
        _joined([each.record for each in rounds]),
        _joined([each.name for each in rounds]),
        _joined([each.value for each in rounds]),
        _joined([each.end for each in rounds]),
    )
    if len(rounds[-1].record) == len(rounds[0].record):
        return found  # as many in each: in order already
    return found.only(np.argsort(found.name))


def _joined(rounds: Sequence[Int64s]) -> Int64s:
    """Return the rounds' values, record by record if each round has as many of them."""
    if len(rounds[-1]) == len(rounds[0]):
        return np.stack(rounds, axis=1).reshape(-1)
    return np.concatenate(rounds)


def _damaged(record: int) -> DledgerError:
    return unreadable(f"properties of record {record} need more bytes than it has")
