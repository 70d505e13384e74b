"""Garbage: ranges of rows that nobody sees any more, deleted a few with every entry.

Owns: the garbage table and the pace of deleting. Not: what becomes garbage (trims, deleted topics).

    61 number u64                   -> start size u16, start, stop: a range of keys to delete

Rows in a garbage range are invisible already. Every entry, whatever it holds, deletes
GARBAGE_ROWS_PER_ENTRY of them, one more for each of its payloads, and what a command says that it
adds. So no apply takes long, however much was trimmed; the rows that come are deleted as fast; and
all members delete the same rows.
"""

import struct
from collections.abc import Callable
from typing import Final

from dledger.state.tables import KEY_U64, PREFIX, Table, Writer, after

GARBAGE_ROWS_PER_ENTRY: Final = 32
GARBAGE_SIZE: Final = struct.Struct("<H")
_START: Final = PREFIX[Table.GARBAGE]
_STOP: Final = after(_START)


class Garbage:
    """The ranges that wait."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._store = writer.store
        first = self._store.scan(_START, _STOP, 1)
        last = self._store.scan(_START, _STOP, 1, reverse=True)
        self._first = KEY_U64.unpack(first[0][0][1:])[0] if first else 0
        self._next = KEY_U64.unpack(last[0][0][1:])[0] + 1 if last else 0
        self._more = 0
        self._resume_at = b""
        """Below this key nothing is left of the oldest range. Without it each entry would scan
        again over all rows that were deleted since the last save."""
        self.on_delete: dict[int, Callable[[bytes, bytes], None]] = {}
        """By table: what follows from the deletion of a row, which is given."""

    @property
    def is_empty(self) -> bool:
        """True: no range waits."""
        return self._first == self._next

    def add(self, start: bytes, stop: bytes) -> None:
        """Have the rows with start <= key < stop deleted; nobody may write there again."""
        if start >= stop:
            return
        if self.is_empty:
            self._first = self._next = 0
        value = GARBAGE_SIZE.pack(len(start)) + start + stop
        self._writer.put(_START + KEY_U64.pack(self._next), value)
        self._next += 1

    def keep_up(self, rows: int) -> None:
        """Delete so many rows more with this entry: it has written as many that become garbage."""
        self._more += rows

    def collect(self, payloads: int) -> None:
        """Delete rows of the oldest ranges: see the module header. A range counts as a row, too."""
        left = GARBAGE_ROWS_PER_ENTRY + payloads + self._more
        self._more = 0
        while left > 0 and not self.is_empty:
            key = _START + KEY_U64.pack(self._first)
            value = self._store.get(key)
            assert value is not None, f"no garbage range {self._first} below {self._next}"
            (size,) = GARBAGE_SIZE.unpack_from(value)
            start, stop = value[2 : 2 + size], value[2 + size :]
            rows = self._store.scan(max(start, self._resume_at), stop, left)
            follow = self.on_delete.get(start[0])
            for row, content in rows:
                self._writer.delete(row)
                if follow is not None:
                    follow(row, content)
            if len(rows) == left:
                self._resume_at = rows[-1][0] + b"\0"
                return
            left -= len(rows) + 1
            self._writer.delete(key)
            self._first += 1
            self._resume_at = b""
