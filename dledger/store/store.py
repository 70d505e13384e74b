"""The state store: ordered keys and values, newest in memory, the rest in a base that syncs rarely.

Owns: the store (`StateStore`), its in-memory tail (`Overlay`), what it needs of a base (`Base`),
and the errors. Not: where saved rows lie (`lmdb_store.py`), row formats (each table's module),
the digest.

Writes go to an overlay. `freeze` closes the overlay and opens a new one. The `Flush` that it
returns writes the frozen overlay into the base in one durable transaction, in a worker thread,
while the loop's thread goes on. Reads look at the overlay, the frozen overlay and the base, in this
order. The frozen overlay holds exactly the rows that the flush writes, so it does not matter
whether the base shows them already.

A crash leaves the state of the last flush that ended, or of the one in flight: the applied index is
a row like any other, so rows and index move together (I10). Replay of the log does the rest (D16).

Rules: one thread calls everything but `Flush.execute`, which one dedicated thread calls; at most
one flush is in flight; keys are 1 to KEY_SIZE_MAX bytes.
"""

import heapq
from collections.abc import Iterable, Iterator
from itertools import repeat
from operator import itemgetter
from typing import Final, Protocol

from sortedcontainers import SortedList

from dledger_proto.limits import MIB

KEY_SIZE_MAX: Final = 511
"""LMDB's limit on a key."""
LOCAL_PREFIX: Final = b"\0"
"""Keys that begin with it are about this member alone; the store keeps its own rows among them."""
SCAN_PAGE_ROWS: Final = 64
"""Rows that a scan takes from the base at a time."""
SOFT_LIMIT_BYTES: Final = 8 * MIB
"""Unsaved rows above this ask for a flush before its time."""
HARD_LIMIT_BYTES: Final = 64 * MIB
"""Unsaved rows above this: nothing is applied until a flush ended."""
ROW_OVERHEAD_BYTES: Final = 200
"""What a row in memory costs beside its key and value: two objects, a dict slot, a list slot."""

assert SOFT_LIMIT_BYTES * 4 <= HARD_LIMIT_BYTES, "a flush must have time to end"

Value = bytes | bytearray
Row = tuple[bytes, bytes]


class StoreFailed(OSError):
    """The store cannot go on: the member stops (I16). What a failed flush saved is unknown."""


class StoreFull(StoreFailed):
    """The disk is too full to begin a flush. Nothing is written; `execute` may be called again."""


class DamagedStore(StoreFailed):
    """The store's file is damaged, or is not a state store."""


class NewerStore(StoreFailed):
    """A later dledger wrote the store; the store is not damaged."""


class Base(Protocol):
    """Where saved rows lie."""

    def get(self, key: bytes) -> bytes | None:
        """Return the saved value of a key, or None."""
        ...

    def scan(self, start: bytes, stop: bytes, limit: int, *, reverse: bool) -> list[Row]: ...

    def saved_rows(self) -> Iterator[Row]:
        """Iterate over all rows of the last save, ascending by key. Any thread."""
        ...

    def save(self, rows: Iterable[tuple[bytes, Value | None]], size_bytes: int) -> None:
        """Write the rows, ascending by key, None deletes, in one durable transaction."""
        ...

    def close(self) -> None:
        """Close."""
        ...


class Overlay:
    """Rows that are newer than what lies below; None marks a deleted key."""

    __slots__ = ("_sorted", "_unsorted", "size_bytes", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, Value | None] = {}
        self.size_bytes = 0
        self._sorted: SortedList[bytes] = SortedList()
        self._unsorted: list[bytes] = []
        """Keys not yet in `_sorted`: most rows are never scanned while they are here."""

    def set(self, key: bytes, value: Value | None) -> None:
        """Set or, with None, mark as deleted."""
        values = self.values
        size = 0 if value is None else len(value)
        if key in values:
            old = values[key]
            self.size_bytes += size - (0 if old is None else len(old))
        else:
            self._unsorted.append(key)
            self.size_bytes += size + len(key) + ROW_OVERHEAD_BYTES
        values[key] = value

    def set_all(self, rows: Iterable[tuple[bytes, Value | None]]) -> None:
        """Set many, as `set` does one."""
        values, added = self.values, self._unsorted
        grown = 0
        for key, value in rows:
            if key in values:
                old = values[key]
                grown -= 0 if old is None else len(old)
            else:
                assert 0 < len(key) <= KEY_SIZE_MAX, f"key of {len(key)} bytes"
                added.append(key)
                grown += len(key) + ROW_OVERHEAD_BYTES
            if value is not None:
                grown += len(value)
            values[key] = value
        self.size_bytes += grown

    def sort(self) -> SortedList[bytes]:
        """Return all keys in order."""
        if self._unsorted:
            self._sorted.update(self._unsorted)
            self._unsorted = []
        return self._sorted

    def touches(self, start: bytes, stop: bytes) -> bool:
        """Tell whether any key lies in the range."""
        keys = self.sort()
        at = keys.bisect_left(start)
        return at < len(keys) and keys[at] < stop

    def rows(
        self, start: bytes, stop: bytes, *, reverse: bool
    ) -> Iterator[tuple[bytes, Value | None]]:
        """Iterate over the range; valid until the next write."""
        values = self.values
        for key in self.sort().irange(start, stop, (True, False), reverse):
            yield key, values[key]


class Flush:
    """One frozen overlay on its way into the base."""

    def __init__(self, base: Base, overlay: Overlay) -> None:
        self._base = base
        self.overlay = overlay
        self.is_done = False

    def execute(self) -> None:
        """Write and sync, all or nothing; StoreFull or StoreFailed. In the dedicated thread."""
        assert not self.is_done, "a flush is executed once"
        values = self.overlay.values
        rows = ((key, values[key]) for key in self.overlay.sort())
        self._base.save(rows, self.overlay.size_bytes)
        self.is_done = True


class StateStore:
    """Ordered rows. One thread calls everything but `Flush.execute`."""

    def __init__(self, base: Base) -> None:
        self._base = base
        self._overlay = Overlay()
        self._frozen: Overlay | None = None
        self._flush: Flush | None = None

    @property
    def unsaved_bytes(self) -> int:
        """Memory held by rows that no ended flush covers."""
        frozen = self._frozen
        return self._overlay.size_bytes + (frozen.size_bytes if frozen is not None else 0)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        values = self._overlay.values
        if key not in values:
            frozen = self._frozen
            if frozen is None or key not in frozen.values:
                return self._base.get(key)
            values = frozen.values
        value = values[key]
        return bytes(value) if isinstance(value, bytearray) else value

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        assert 0 < len(key) <= KEY_SIZE_MAX, f"key of {len(key)} bytes"
        self._overlay.set(key, value)

    def put_all(self, rows: Iterable[Row]) -> None:
        """Set the values of many keys."""
        self._overlay.set_all(rows)

    def append(self, key: bytes, suffix: bytes, *, is_new: bool = False) -> None:
        """Extend the value of a key; a missing key counts as empty.

        `is_new`: the caller knows that the key is missing, so nothing below has to be asked.
        """
        overlay = self._overlay
        value = overlay.values.get(key)
        if type(value) is bytearray:
            value += suffix
            overlay.size_bytes += len(suffix)
            return
        assert 0 < len(key) <= KEY_SIZE_MAX, f"key of {len(key)} bytes"
        extended = bytearray() if is_new else bytearray(self.get(key) or b"")
        extended += suffix
        overlay.set(key, extended)

    def delete(self, key: bytes) -> None:
        """Remove a key; no effect when it is missing."""
        self._overlay.set(key, None)

    def delete_all(self, keys: Iterable[bytes]) -> None:
        """Remove many keys, as `delete` does one."""
        self._overlay.set_all(zip(keys, repeat(None)))

    def scan(self, start: bytes, stop: bytes, limit: int, *, reverse: bool = False) -> list[Row]:
        """Return up to `limit` rows with start <= key < stop, ascending or, reversed, from stop."""
        assert limit > 0, f"limit {limit}"
        layers = [
            layer
            for layer in (self._overlay, self._frozen)
            if layer is not None and layer.touches(start, stop)
        ]
        if not layers:
            return self._base.scan(start, stop, limit, reverse=reverse)
        sources = [layer.rows(start, stop, reverse=reverse) for layer in layers]
        below = self._base_rows(start, stop, min(limit + 1, SCAN_PAGE_ROWS), reverse=reverse)
        rows: list[Row] = []
        last: bytes | None = None
        # A stable merge: of equal keys the newest layer's comes first.
        for key, value in heapq.merge(*sources, below, key=itemgetter(0), reverse=reverse):
            if key == last:
                continue
            last = key
            if value is not None:
                rows.append((key, bytes(value)))
                if len(rows) == limit:
                    break
        return rows

    def _base_rows(
        self, start: bytes, stop: bytes, page: int, *, reverse: bool
    ) -> Iterator[tuple[bytes, Value | None]]:
        while True:
            rows = self._base.scan(start, stop, page, reverse=reverse)
            yield from rows
            if len(rows) < page:
                return
            page = SCAN_PAGE_ROWS
            if reverse:
                stop = rows[-1][0]
            else:
                start = rows[-1][0] + b"\0"

    def saved_rows(self) -> Iterator[Row]:
        """Iterate over the rows of the last save, as of one moment, ascending by key.

        Any thread may iterate. Pages that saves replace meanwhile stay until it has ended.
        """
        return self._base.saved_rows()

    def freeze(self) -> Flush | None:
        """Close the overlay and return its flush; None when nothing was written since the last."""
        assert self._flush is None, "one flush at a time"
        if not self._overlay.values:
            return None
        self._frozen = self._overlay
        self._frozen.sort()  # here, so that the worker and the loop share it read-only
        self._overlay = Overlay()
        self._flush = Flush(self._base, self._frozen)
        return self._flush

    def flush_finished(self, flush: Flush) -> None:
        """Drop the frozen overlay: `flush.execute` returned."""
        assert flush is self._flush, "not the flush in flight"
        assert flush.is_done, "the flush has not been executed"
        self._flush = None
        self._frozen = None

    def save(self) -> None:
        """Save everything that is not saved. Blocks; for stores that no member serves from."""
        flush = self.freeze()
        if flush is not None:
            flush.execute()
            self.flush_finished(flush)

    def close(self) -> None:
        """Drop unsaved rows and close the base. No flush may be in flight."""
        self._base.close()
