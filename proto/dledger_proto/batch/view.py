"""Reading a batch: columns, records, bodies. The layout is drawn in `codec.py`.

Owns: decoding. Does not own: the CRC; code that hands out bytes runs `check_envelope` first (I15).
Whatever the bytes are, decoding raises only `DledgerError`. UNREADABLE_BATCH says that a producer
sent these bytes and that they cannot be decoded: no other copy of the batch is better.
"""

import itertools
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dledger_proto.batch.compression import Compression, decompress
from dledger_proto.batch.header import (
    BatchHeader,
    Buffer,
    Record,
    corrupt,
    parse_header,
)
from dledger_proto.batch.properties import KEY_SEPARATOR, KEYS_NAME, TAG_NAME, decode_properties
from dledger_proto.errors import Code, DledgerError, unreadable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """The columns as numpy arrays of one element per record (views of the batch, read-only)."""

    body_sizes: "NDArray[np.uint32]"
    body_starts: "NDArray[np.int64]"
    """Start of each body in `BatchView.bodies`."""
    property_sizes: "NDArray[np.uint32]"
    property_starts: "NDArray[np.int64]"
    """Start of each record's properties in `BatchView.properties_area`."""
    tag_hashes: "NDArray[np.uint32]"
    times_ms: "NDArray[np.int64]"
    key_counts: "NDArray[np.uint32]"
    key_hashes: "NDArray[np.uint64]"
    """Of all records, one after the other: `key_counts[i]` belong to record i."""


class BatchView:
    """A batch opened for reading. Columns are unpacked and bodies decompressed at most once.

    `buffer` starts with the batch and may go on behind it.
    """

    def __init__(self, buffer: Buffer, header: BatchHeader | None = None) -> None:
        self.header = parse_header(buffer) if header is None else header
        view = memoryview(buffer)
        if len(view) < self.header.size:
            raise corrupt(f"size is {self.header.size}, but there are {len(view)} bytes")
        self.buffer = view[: self.header.size]

    def __len__(self) -> int:
        return self.header.record_count

    def _column(self, place: int, kind: str = "I") -> tuple[int, ...]:
        count = self.header.record_count
        at = self.header.header_size + 4 * count * place
        return struct.unpack_from(f"<{count}{kind}", self.buffer, at)

    def _summed(self, place: int, total: int, name: str) -> tuple[int, ...]:
        column = self._column(place)
        if sum(column) != total:
            raise unreadable(f"column {name} adds up to {sum(column)}, the header says {total}")
        return column

    @cached_property
    def body_sizes(self) -> Sequence[int]:
        """Size of each body, bytes."""
        return self._summed(0, self.header.bodies_size, "body_sizes")

    @cached_property
    def property_sizes(self) -> Sequence[int]:
        """Size of each record's encoded properties, bytes."""
        return self._summed(1, self.header.properties_size, "property_sizes")

    @cached_property
    def tag_hashes(self) -> Sequence[int]:
        """`keyhash.tag_hash` of each record's tag; 0: no tag."""
        return self._column(2)

    @cached_property
    def times(self) -> Sequence[int]:
        """When each record was made, milliseconds since 1970."""
        base = self.header.base_time_ms
        return tuple(base + delta for delta in self._column(3, "i"))

    @cached_property
    def key_counts(self) -> Sequence[int]:
        """How many keys each record has."""
        return self._summed(4, self.header.key_count, "key_counts")

    @property
    def _key_hashes_at(self) -> int:
        return self.header.header_size + 20 * self.header.record_count

    @cached_property
    def all_key_hashes(self) -> Sequence[int]:
        """`keyhash.key_hash` of every key of every record, in order."""
        count = self.header.key_count
        return struct.unpack_from(f"<{count}Q", self.buffer, self._key_hashes_at)

    @cached_property
    def _key_starts(self) -> Sequence[int]:
        return (0, *itertools.accumulate(self.key_counts))

    @cached_property
    def _body_starts(self) -> Sequence[int]:
        return (0, *itertools.accumulate(self.body_sizes))

    @cached_property
    def _property_starts(self) -> Sequence[int]:
        return (0, *itertools.accumulate(self.property_sizes))

    @property
    def properties_area(self) -> memoryview:
        """The encoded properties of all records."""
        at = self._key_hashes_at + 8 * self.header.key_count
        return self.buffer[at : at + self.header.properties_size]

    @cached_property
    def _properties_bytes(self) -> bytes:
        return bytes(self.properties_area)

    @cached_property
    def bodies(self) -> memoryview:
        """All bodies, decompressed; at most BODIES_SIZE_MAX bytes. Kept as long as the view is."""
        header = self.header
        stored = self.buffer[header.size - header.bodies_stored_size :]
        if header.compression == Compression.NONE:
            return stored
        return memoryview(decompress(header.compression, stored, header.bodies_size))

    def key_hashes(self, i: int) -> Sequence[int]:
        """Return the hashes of record i's keys."""
        starts = self._key_starts
        return self.all_key_hashes[starts[i] : starts[i + 1]]

    def body(self, i: int) -> memoryview:
        """Return record i's body without copying it (but decompressed)."""
        starts = self._body_starts
        return self.bodies[starts[i] : starts[i + 1]]

    def properties(self, i: int) -> dict[str, str]:
        """Return record i's properties, TAGS and KEYS among them."""
        starts = self._property_starts
        return decode_properties(self._properties_bytes, starts[i], starts[i + 1])

    @cached_property
    def problem(self) -> DledgerError | None:
        """Why its content cannot be decoded, UNREADABLE_BATCH; None: it can. All of it is tried.

        Bodies stay decompressed. That a package is missing for them is no problem of the batch.
        """
        try:
            _ = self.bodies, self.body_sizes, self.key_counts
            area, starts = self._properties_bytes, self._property_starts
            for start, end in itertools.pairwise(starts):
                decode_properties(area, start, end)
        except DledgerError as error:
            return error if error.code is Code.UNREADABLE_BATCH else None
        return None

    def raw_properties(self, i: int) -> memoryview:
        """Return record i's encoded properties without copying them."""
        starts = self._property_starts
        return self.properties_area[starts[i] : starts[i + 1]]

    def keys(self, i: int) -> tuple[str, ...]:
        """Return record i's keys; its body is not looked at."""
        return _split_keys(self.properties(i).get(KEYS_NAME, ""))

    def records_with_hash(self, wanted: int) -> list[int]:
        """Return the records one of whose keys has a hash, in order."""
        hashes, starts = self.all_key_hashes, self._key_starts
        found: list[int] = []
        at = 0
        for _ in range(hashes.count(wanted)):
            place = hashes.index(wanted, at)
            record = bisect_right(starts, place) - 1
            if not found or found[-1] != record:
                found.append(record)
            at = place + 1
        return found

    def check_place(self, i: int) -> None:
        """Raise IndexError outside 0..record_count - 1."""
        if not 0 <= i < self.header.record_count:
            raise IndexError(f"record {i} of {self.header.record_count}")

    def message_id(self, i: int) -> bytes:
        """Return record i's id, 24 bytes."""
        self.check_place(i)
        return self.header.producer_id + (self.header.base_number + i).to_bytes(8, "big")

    def record(self, i: int) -> Record:
        """Return record i; IndexError outside 0..record_count - 1."""
        self.check_place(i)
        return _record(self.body(i), self.properties(i), self.times[i])

    def records(self, first: int = 0, count: int | None = None) -> Iterator[Record]:
        """Iterate over records `first` .. `first + count - 1` (default: to the end)."""
        end = self.header.record_count if count is None else first + count
        if not 0 <= first <= end <= self.header.record_count:
            raise IndexError(f"records {first}..{end} of {self.header.record_count}")
        bodies = self.bodies
        starts = self._body_starts
        times = self.times
        if self.header.properties_size == 0:
            for i in range(first, end):
                yield Record(bytes(bodies[starts[i] : starts[i + 1]]), time_ms=times[i])
            return
        area = self._properties_bytes
        places = self._property_starts
        for i in range(first, end):
            properties = decode_properties(area, places[i], places[i + 1])
            yield _record(bodies[starts[i] : starts[i + 1]], properties, times[i])

    def columns(self) -> BatchColumns:
        """Return the columns as numpy arrays; UNSUPPORTED_FORMAT when numpy is not installed."""
        try:
            import numpy as np
        except ImportError as error:
            raise DledgerError(
                Code.UNSUPPORTED_FORMAT,
                "columns: the package numpy is not installed; it comes with the extra speed",
            ) from error
        header = self.header
        count = header.record_count
        table = np.frombuffer(self.buffer, "<u4", 5 * count, header.header_size).reshape(5, count)
        keys = np.frombuffer(self.buffer, "<u8", header.key_count, self._key_hashes_at)
        ends = np.cumsum(table[[0, 1, 4]], axis=1, dtype=np.int64)
        totals = (header.bodies_size, header.properties_size, header.key_count)
        if tuple(ends[:, -1]) != totals:
            raise unreadable(f"columns add up to {ends[:, -1].tolist()}, the header says {totals}")
        return BatchColumns(
            body_sizes=table[0],
            body_starts=ends[0] - table[0],
            property_sizes=table[1],
            property_starts=ends[1] - table[1],
            tag_hashes=table[2],
            times_ms=table[3].view("<i4").astype(np.int64) + header.base_time_ms,
            key_counts=table[4],
            key_hashes=keys,
        )


def _record(body: memoryview, properties: dict[str, str], time_ms: int) -> Record:
    tag = properties.pop(TAG_NAME, "")
    keys = _split_keys(properties.pop(KEYS_NAME, ""))
    return Record(bytes(body), tag, keys, properties, time_ms)


def _split_keys(keys: str) -> tuple[str, ...]:
    return tuple(key for key in keys.split(KEY_SEPARATOR) if key) if keys else ()
