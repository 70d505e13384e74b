"""The columns of several batches joined: numbers as numpy arrays, bodies and properties as bytes.

Owns: finding the columns in the bytes and checking that they add up to what each header says, so
that nothing behind it reads out of bounds. Not: the CRC (`decode.py` checked it), properties.

Everything is per batch or over all records at once, never per record. The bodies of a batch lie
back to back, so where each begins is a running sum of sizes, across batches too once joined.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dledger_proto.batch.codec import BatchHeader, BatchView
from dledger_proto.errors import unreadable

Int64s = NDArray[np.int64]
UInt32s = NDArray[np.uint32]

_SUMMED: Final = ("body_sizes", "property_sizes", "key_counts")
_BODY_SIZES, _PROPERTY_SIZES, _TAG_HASHES, _TIME_DELTAS, _KEY_COUNTS = range(5)


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive records of one batch and where they lie in their queue."""

    base_offset: int
    """Of record `first_record`."""
    first_record: int
    record_count: int
    store_time_ms: int
    position: int
    """Of the batch in the log; -1: not told."""
    view: BatchView


class Joined:
    """The batches of some runs as one set of columns, whole batches, in order."""

    def __init__(self, runs: Sequence[Run]) -> None:
        """Join the runs; UNREADABLE_BATCH when the columns of a batch do not match its header."""
        self.runs = runs
        self.headers: list[BatchHeader] = [run.view.header for run in runs]
        self.counts: Int64s = self.of_headers("record_count")
        self.ends: Int64s = np.cumsum(self.counts)
        """Behind the last record of each batch, in the joined columns."""
        tables: list[UInt32s] = [
            np.frombuffer(
                run.view.buffer, "<u4", 5 * header.record_count, header.header_size
            ).reshape(5, header.record_count)
            for run, header in zip(runs, self.headers, strict=True)
        ]
        self._table: UInt32s = np.concatenate(tables, axis=1)
        self._check_sums()

    def __len__(self) -> int:
        return int(self.ends[-1])

    def of_headers(self, field: str) -> Int64s:
        """Return a field of each batch's header."""
        return np.array([getattr(header, field) for header in self.headers], np.int64)

    def _check_sums(self) -> None:
        summed = self._table[[_BODY_SIZES, _PROPERTY_SIZES, _KEY_COUNTS]]
        found = np.add.reduceat(summed, self.ends - self.counts, axis=1, dtype=np.int64)
        said = np.stack(
            [self.of_headers(name) for name in ("bodies_size", "properties_size", "key_count")]
        )
        wrong = np.argwhere(found != said)
        if len(wrong):
            column, batch = int(wrong[0, 0]), int(wrong[0, 1])
            raise unreadable(
                f"batch at offset {self.runs[batch].base_offset}: column {_SUMMED[column]} adds up "
                f"to {found[column, batch]}, the header says {said[column, batch]}"
            )

    def spread(self, per_batch: Int64s) -> Int64s:
        """Return a value of each batch for each of its records."""
        return np.repeat(per_batch, self.counts)

    @cached_property
    def places(self) -> Int64s:
        """Each record's place in its batch."""
        return np.arange(len(self), dtype=np.int64) - self.spread(self.ends - self.counts)

    @cached_property
    def offsets(self) -> Int64s:
        """Each record's offset in its queue; meaningless for records outside the runs."""
        bases = np.array([run.base_offset - run.first_record for run in self.runs], np.int64)
        return self.spread(bases) + self.places

    @property
    def store_times_ms(self) -> Int64s:
        """The leader's stamp, milliseconds since 1970."""
        return self.spread(np.array([run.store_time_ms for run in self.runs], np.int64))

    @property
    def born_times_ms(self) -> Int64s:
        """The producer's clock, milliseconds since 1970."""
        deltas = self._table[_TIME_DELTAS].view(np.int32)
        times: Int64s = self.spread(self.of_headers("base_time_ms")) + deltas
        return times

    @property
    def body_sizes(self) -> Int64s:
        """Bytes, uncompressed."""
        sizes: Int64s = self._table[_BODY_SIZES].astype(np.int64)
        return sizes

    @property
    def tag_hashes(self) -> Int64s:
        """0: no tag."""
        hashes: Int64s = self._table[_TAG_HASHES].astype(np.int64)
        return hashes

    @property
    def key_ends(self) -> NDArray[np.int32]:
        """Running sum of key counts, from 0."""
        return _running(self._table[_KEY_COUNTS])

    @property
    def key_hashes(self) -> Int64s:
        """Hashes of all keys of all records; the bits of an unsigned number."""
        parts = [
            np.frombuffer(
                run.view.buffer,
                "<u8",
                header.key_count,
                header.header_size + 20 * header.record_count,
            )
            for run, header in zip(self.runs, self.headers, strict=True)
        ]
        return np.concatenate(parts).view(np.int64)

    @cached_property
    def property_starts(self) -> Int64s:
        """Running sum of property sizes from 0: record i's lie from [i] to [i + 1] in `area`."""
        return _running(self._table[_PROPERTY_SIZES]).astype(np.int64)

    @cached_property
    def properties(self) -> bytes:
        """The encoded properties of all records, back to back."""
        return b"".join([run.view.properties_area for run in self.runs])

    @property
    def bodies(self) -> pa.Array:
        """The bodies as Arrow's binary; decompressed, UNREADABLE_BATCH when that fails."""
        data = b"".join([run.view.bodies for run in self.runs])
        return back_to_back(pa.binary(), _running(self._table[_BODY_SIZES]), data)


def back_to_back(kind: pa.DataType, ends: NDArray[np.int32], data: bytes) -> pa.Array:
    """Return values that lie back to back in `data`; `ends` has 0 and the end of each."""
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(ends) - 1, buffers, null_count=0)


def _running(sizes: UInt32s) -> NDArray[np.int32]:
    """Return 0 and the running sums; `decode.py` bounds what is joined far below 2 GiB."""
    found = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=found[1:])
    return found
