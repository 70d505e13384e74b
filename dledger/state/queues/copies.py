"""Copies: where old batches lie that were carried forward, so that their segments can go (D7).

Owns: the rows of copies, and how far the pass is that makes them. Not: what is copied when
(`carry.py`, `compact.py`), the queues and pins that name batches (`table.py`, `references.py`).

    77 position u64                 -> copy u64: a batch of this position lies there now
    78 copy u64                     -> position u64: the same, by place
    01 "carried"                    -> horizon u64, target u64, cursor
    01 "renamed"                    -> position u64: compaction has given no name above it

A batch keeps its position as its name, wherever its bytes lie. So queues, timers, the key index and
whoever was told the position need not know of copies: only who reads bytes asks for the place.

Everything that the state needs lies at or above the *horizon*. A pass towards a *target* copies
what is needed and lies below the target; at its end the target is the horizon. A copy that nobody
needs any more goes with the pass that would copy it again.
"""

import struct
from collections.abc import Sequence
from typing import Final

from dledger.state.queues.garbage import Garbage
from dledger.state.tables import KEY_U64, PREFIX, Table, Writer
from dledger.state.values import Carried, QueueSpan

CARRIED_KEY: Final = PREFIX[Table.META] + b"carried"
CARRIED_HEAD: Final = struct.Struct("<QQ")
RENAMED_KEY: Final = PREFIX[Table.META] + b"renamed"
COPY_VALUE: Final = struct.Struct("<Q")
FIRST: Final = b""
"""The cursor of a pass that has not begun."""


class Copies:
    """The copies of one group, and the pass under way."""

    def __init__(self, writer: Writer, garbage: Garbage) -> None:
        self._writer = writer
        self._store = writer.store
        self._garbage = garbage
        garbage.on_delete[Table.COPY_PLACE] = self._dropped
        value = self._store.get(CARRIED_KEY)
        self.carried = Carried(0, 0, FIRST)
        if value is not None:
            horizon, target = CARRIED_HEAD.unpack_from(value)
            self.carried = Carried(horizon, target, value[CARRIED_HEAD.size :])
        value = self._store.get(RENAMED_KEY)
        self._renamed: int = -1 if value is None else COPY_VALUE.unpack(value)[0]

    @property
    def has_renamed(self) -> bool:
        """True: compaction has left runs of batches, which have names of their own."""
        return self._renamed >= 0

    def place(self, position: int) -> int:
        """Return where a batch that the state needs lies, given its position."""
        if position >= max(self.carried.horizon, self.carried.target, self._renamed + 1):
            return position
        value = self._store.get(_copy_key(position))
        if value is None:
            return position
        copy: int = COPY_VALUE.unpack(value)[0]
        return copy

    def located(self, span: QueueSpan) -> QueueSpan:
        """Return a span that says where its batch lies."""
        place = self.place(span.position)
        return span if place == span.position else span._replace(copy=place)

    def all_located(self, spans: list[QueueSpan]) -> list[QueueSpan]:
        """Return spans that say where their batches lie."""
        if not self.carried.horizon and not self.carried.target and self._renamed < 0:
            return spans
        return [self.located(span) for span in spans]

    def lies_between(self, first: int, stop: int) -> bool:
        """Tell whether a copy lies between two places. It may be one that nobody needs any more."""
        return bool(self._store.scan(_place_key(first), _place_key(stop), 1))

    # What a pass does.

    def note(self, target: int, cursor: bytes) -> None:
        """The pass towards a target has come so far."""
        self._set(Carried(self.carried.horizon, target, cursor))

    def record(self, copies: Sequence[tuple[int, int]]) -> None:
        """Note of each batch, by its position, where its newest copy lies."""
        self._garbage.keep_up(len(copies))
        for position, copy in copies:
            value = self._store.get(_copy_key(position))
            if value is not None:
                self._writer.delete(_place_key(*COPY_VALUE.unpack(value)))
            self._writer.put(_copy_key(position), COPY_VALUE.pack(copy))
            self._writer.put(_place_key(copy), COPY_VALUE.pack(position))

    def rename(self, copies: Sequence[tuple[int, int]]) -> None:
        """Note where runs lie that compaction has left of batches, by their names, which grow."""
        if copies and copies[-1][0] > self._renamed:
            self._renamed = copies[-1][0]
            self._writer.put(RENAMED_KEY, COPY_VALUE.pack(self._renamed))
        self.record(copies)

    def finish(self, target: int) -> None:
        """The pass has ended: below its target lies nothing that is needed."""
        self._garbage.add(PREFIX[Table.COPY_PLACE], _place_key(target))
        self._set(Carried(target, 0, FIRST))

    def _set(self, carried: Carried) -> None:
        self.carried = carried
        head = CARRIED_HEAD.pack(carried.horizon, carried.target)
        self._writer.put(CARRIED_KEY, head + carried.cursor)

    def _dropped(self, _key: bytes, value: bytes) -> None:
        self._writer.delete(_copy_key(*COPY_VALUE.unpack(value)))


def _copy_key(position: int) -> bytes:
    return PREFIX[Table.COPY] + KEY_U64.pack(position)


def _place_key(copy: int) -> bytes:
    return PREFIX[Table.COPY_PLACE] + KEY_U64.pack(copy)
