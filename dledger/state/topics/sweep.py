"""Deleting rows of deleted topics that lie all over a table, some with every entry (D11, I17).

Owns: where a sweep stands. Not: the rows themselves (`producers/`, `progress/`, `timers/`).

    01 name                         -> again u8, the key of the table at which the sweep goes on;
                                       absent: nothing to sweep

Rows 52 are ordered by producer, rows 41 by the topic that a consumer group consumes, rows 70 by
time. So the rows of a topic that is deleted, which may be a consumer group, lie all over them. The
deletion of a topic begins a round over the whole table; a deletion during a round makes another
round follow (`again`). Every entry, whatever it holds, looks at SWEEP_ROWS_PER_ENTRY rows and one
more for each of its payloads. So no apply takes long, and all members delete the same rows.
"""

from collections.abc import Callable
from typing import Final

from dledger.state.tables import PREFIX, Table, Writer, after
from dledger.state.topics.table import TopicTable

SWEEP_ROWS_PER_ENTRY: Final = 32


class TopicSweep:
    """Deletes the rows of a table whose topic is deleted."""

    def __init__(
        self,
        writer: Writer,
        topics: TopicTable,
        name: bytes,
        table: Table,
        topic_at: slice,
        delete_row: Callable[[bytes, bytes], object],
    ) -> None:
        """Take up a sweep where it stands. `topic_at`: where its id lies in key and value."""
        self._writer = writer
        self._store = writer.store
        self._topics = topics
        self._topic_at = topic_at
        self._delete_row = delete_row
        self._start = PREFIX[table]
        self._stop = after(self._start)
        self._name = PREFIX[Table.META] + name
        value = self._store.get(self._name)
        self._key = b"" if value is None else value[1:]
        """Where the round goes on; empty: there is no round."""
        self._again = value is not None and value[0] == 1

    @property
    def is_over(self) -> bool:
        """True: nothing of a deleted topic is left in the table."""
        return not self._key

    def start(self) -> None:
        """Begin a round: a topic was deleted."""
        if not self._key:
            self._move(self._start, again=False)
        elif self._key != self._start:
            self._move(self._key, again=True)

    def step(self, payloads: int) -> None:
        """Look at some rows: see the module header."""
        if not self._key:
            return
        count = SWEEP_ROWS_PER_ENTRY + payloads
        rows = self._store.scan(self._key, self._stop, count)
        for key, value in rows:
            topic = self._topics.find((key + value)[self._topic_at])
            if topic is None or topic.deleted:
                self._delete_row(key, value)
        if len(rows) == count:
            self._move(rows[-1][0] + b"\0", again=self._again)
        elif self._again:
            self._move(self._start, again=False)
        else:
            self._key = b""
            self._writer.delete(self._name)

    def _move(self, key: bytes, *, again: bool) -> None:
        if (key, again) != (self._key, self._again):
            self._key, self._again = key, again
            self._writer.put(self._name, bytes((again,)) + key)
