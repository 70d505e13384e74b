"""A checksum of rows, whatever file, batch size or encoding they are in. Pure.

Owns: what the CRC of a manifest means. Each column is a few running CRC-32C (of its values without
those of nulls, of its lengths, of what is null); the sum is the CRC of all of them in order. Equal
rows in equal order give equal sums on every member, for every batch size, in every format.
"""

import struct
from typing import Final

import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_INTEGERS: Final = frozenset({pa.int32(), pa.int64()})


class ContentSum:
    """Sums the rows of one range, batch by batch."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._sums: dict[tuple[str, str], int] = {}
        self.rows = 0

    def update(self, batch: pa.RecordBatch) -> None:
        """Add a batch; its columns must be those of the schema, in any order."""
        self.rows += batch.num_rows
        for field in self._schema:
            self._add(field.name, batch.column(field.name))

    def digest(self) -> int:
        """Return the sum of everything so far, 32 bits."""
        parts = [struct.pack("<Q", self.rows)]
        for (path, part), value in sorted(self._sums.items()):
            parts.append(f"{path}/{part}".encode() + struct.pack("<I", value))
        return crc32c.crc32c(b"".join(parts))

    def _feed(self, path: str, part: str, data: bytes | memoryview) -> None:
        before = self._sums.get((path, part), 0)
        self._sums[path, part] = crc32c.crc32c(data, before)

    def _add(self, path: str, values: pa.Array) -> None:
        kind = values.type
        if pa.types.is_dictionary(kind):
            values = pc.cast(values, kind.value_type)
            kind = values.type
        nulls = pc.is_null(values).to_numpy(zero_copy_only=False)
        self._feed(path, "null", nulls.astype(np.uint8).data)
        if isinstance(values, pa.MapArray | pa.ListArray):
            self._add_nested(path, values)
            return
        if pa.types.is_timestamp(kind):
            values = pc.cast(values, pa.int64())
        if values.type in _INTEGERS:
            numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
            self._feed(path, "value", np.ascontiguousarray(numbers, dtype="<i8").data)
            return
        assert values.type in (pa.string(), pa.binary()), f"{path}: {kind} has no sum"
        whole = pc.fill_null(pc.cast(values, pa.binary()), b"")
        _, offsets, data = whole.buffers()
        at = np.zeros(1, np.int32)
        if offsets is not None:
            at = np.frombuffer(memoryview(offsets), np.int32, len(whole) + 1, whole.offset * 4)
        self._feed(path, "length", np.diff(at).astype("<i8").data)
        if data is not None:
            self._feed(path, "value", memoryview(data)[int(at[0]) : int(at[-1])])

    def _add_nested(self, path: str, values: pa.MapArray | pa.ListArray) -> None:
        """Add lists or maps: their lengths, and what lies between the first and the last."""
        at = values.offsets.to_numpy()
        self._feed(path, "length", np.diff(at).astype("<i8").data)
        first, count = int(at[0]), int(at[-1] - at[0])
        if isinstance(values, pa.MapArray):
            self._add(f"{path}.key", values.keys.slice(first, count))
            self._add(f"{path}.value", values.items.slice(first, count))
        else:
            self._add(f"{path}.item", values.values.slice(first, count))
