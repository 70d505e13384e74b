"""Deleting what producers still hold of deleted topics, some rows with every entry (D11, I17).

Owns: where the sweep stands. Not: the rows themselves (`table.py`).

    01 "producers"                  -> again u8, the key of table 52 at which the sweep goes on;
                                       absent: nothing to sweep

Rows 52 are ordered by producer, so the rows of a topic lie all over the table. The deletion of a
topic begins a round over the whole table; a deletion during a round makes another round follow
(`again`). Every entry, whatever it holds, looks at SWEEP_ROWS_PER_ENTRY rows and one more for each
of its payloads. So no apply takes long, and all members delete the same rows.
"""

from collections.abc import Callable
from typing import Final

from dledger.state.tables import PREFIX, Table, Writer, after
from dledger.state.topics.table import TopicTable

SWEEP_ROWS_PER_ENTRY: Final = 32
_START: Final = PREFIX[Table.PRODUCER_QUEUE]
_STOP: Final = after(_START)
_SWEEP_KEY: Final = PREFIX[Table.META] + b"producers"
_TOPIC_AT: Final = slice(17, 33)
"""Where the topic's id lies in a key of table 52."""


class ProducerSweep:
    """Deletes rows of producers whose topic is deleted."""

    def __init__(
        self, writer: Writer, topics: TopicTable, delete_queue: Callable[[bytes, bytes], int]
    ) -> None:
        self._writer = writer
        self._store = writer.store
        self._topics = topics
        self._delete_queue = delete_queue
        value = self._store.get(_SWEEP_KEY)
        self._key = b"" if value is None else value[1:]
        """Where the round goes on; empty: there is no round."""
        self._again = value is not None and value[0] == 1

    def start(self) -> None:
        """Begin a round: a topic was deleted."""
        if not self._key:
            self._move(_START, again=False)
        elif self._key != _START:
            self._move(self._key, again=True)

    def step(self, payloads: int) -> None:
        """Look at some rows: see the module header."""
        if not self._key:
            return
        count = SWEEP_ROWS_PER_ENTRY + payloads
        rows = self._store.scan(self._key, _STOP, count)
        for key, value in rows:
            topic = self._topics.find(key[_TOPIC_AT])
            if topic is None or topic.deleted:
                self._delete_queue(key, value)
        if len(rows) == count:
            self._move(rows[-1][0] + b"\0", again=self._again)
        elif self._again:
            self._move(_START, again=False)
        else:
            self._key = b""
            self._writer.delete(_SWEEP_KEY)

    def _move(self, key: bytes, *, again: bool) -> None:
        if (key, again) != (self._key, self._again):
            self._key, self._again = key, again
            self._writer.put(_SWEEP_KEY, bytes((again,)) + key)
