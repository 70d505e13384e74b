"""The newest entries, in memory: the bytes that no round has synced yet, and a bounded cache.

Owns: which entries are held, their views, eviction. An entry that is not durable is never evicted.
Admission of writes bounds their size (`GroupSettings.uncommitted_bytes_max`).

The held bytes are those that were appended: the leader's payload views, or a part of the frame that
a follower received. They are copied when the entry is a small part of its frame: a view would keep
the whole frame in memory, which the bound does not count. The header is always a copy, and its
local bytes are not this member's stamp.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from dledger.types import Entry, EntryKind, EntryRef, LogIndex, Position
from dledger_proto.entry import ENTRY_HEADER_SIZE
from dledger_proto.rpc.views import compacted, kept_bytes

ENTRY_COST_BYTES: Final = 700
"""What an entry holds in memory besides its bytes, about; counted against the bound."""
VIEW_COST_BYTES: Final = 200
"""What a view of a payload holds besides its bytes, about."""


class TailEntry:
    """An entry in memory: `header`, then `body` (one view, or one for each payload)."""

    __slots__ = ("body", "cost_bytes", "header", "kind", "ref", "time_ms")

    def __init__(
        self,
        ref: EntryRef,
        kind: EntryKind,
        time_ms: int,
        header: bytes,
        body: Sequence[memoryview],
    ) -> None:
        self.ref = ref
        self.kind = kind
        self.time_ms = time_ms
        self.header = header
        self.body: Sequence[memoryview] = compacted(body)
        self.cost_bytes = (
            len(header) + kept_bytes(self.body) + ENTRY_COST_BYTES + len(body) * VIEW_COST_BYTES
        )

    def entry(self) -> Entry:
        """Return the entry taken apart."""
        payloads: list[memoryview] = []
        starts: list[Position] = []
        count = (len(self.header) - ENTRY_HEADER_SIZE) // 8
        sizes = struct.unpack_from(f"<{2 * count}I", self.header, ENTRY_HEADER_SIZE)[::2]
        at = len(self.header)
        whole = len(sizes) != len(self.body)
        for place, size in enumerate(sizes):
            start = at - len(self.header)
            payloads.append(self.body[0][start : start + size] if whole else self.body[place])
            starts.append(Position(self.ref.position + at))
            at += size
        return Entry(self.ref, self.kind, self.time_ms, payloads, starts)

    def slices(self, start: int, stop: int) -> Iterator[memoryview]:
        """Yield views of the bytes from `start` to `stop`, counted from the entry's first byte."""
        at = 0
        for part in (memoryview(self.header), *self.body):
            if at + len(part) > start and at < stop:
                yield part[max(0, start - at) : stop - at]
            at += len(part)


class Tail:
    """The newest entries, by index, without gaps."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._entries: dict[int, TailEntry] = {}
        self._first = 1
        self._cost_bytes = 0

    @property
    def first_index(self) -> LogIndex:
        """Index of the oldest entry held; meaningless when empty."""
        return LogIndex(self._first)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: TailEntry) -> None:
        """Add the successor of the newest entry."""
        index = entry.ref.index
        if not self._entries:
            self._first = index
        assert index == self._first + len(self._entries), f"{index} is not the next of the tail"
        self._entries[index] = entry
        self._cost_bytes += entry.cost_bytes

    def get(self, index: LogIndex) -> TailEntry | None:
        """Return an entry when it is held."""
        return self._entries.get(index)

    def at(self, index: LogIndex) -> TailEntry:
        """Return an entry that must be held."""
        return self._entries[index]

    def cut(self, index: LogIndex) -> None:
        """Forget the entry at `index` and all behind."""
        for gone in range(max(index, self._first), self._first + len(self._entries)):
            self._cost_bytes -= self._entries.pop(gone).cost_bytes

    def trim(self, first: LogIndex) -> None:
        """Forget every entry before `first`."""
        while self._entries and self._first < first:
            self._cost_bytes -= self._entries.pop(self._first).cost_bytes
            self._first += 1

    def evict(self, durable_index: LogIndex) -> None:
        """Forget the oldest durable entries until the bound is kept."""
        while self._cost_bytes > self._limit_bytes and self._entries:
            if self._first > durable_index:
                return
            self._cost_bytes -= self._entries.pop(self._first).cost_bytes
            self._first += 1

    def at_position(self, position: Position) -> TailEntry | None:
        """Return the entry that holds a position; None when that entry is not held."""
        indexes = range(self._first, self._first + len(self._entries))
        place = bisect_right(indexes, position, key=lambda i: self._entries[i].ref.position) - 1
        if place < 0:
            return None
        entry = self._entries[indexes[place]]
        return entry if position < entry.ref.position + entry.ref.size else None

    def bytes_of(self, position: Position, size: int) -> list[memoryview] | None:
        """Return the bytes of a span, in order; None when not all of it is held."""
        entry = self.at_position(position)
        end = position + size
        found: list[memoryview] = []
        while entry is not None and size > 0:
            start = entry.ref.position
            found.extend(entry.slices(max(0, position - start), end - start))
            if end <= start + entry.ref.size:
                return found
            entry = self._entries.get(entry.ref.index + 1)
        return None
