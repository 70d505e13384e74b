"""Counted time: how long the group has had leaders, by their own clocks (D11).

Owns: the sum and its row. Not: who tells it (`ExpireProducers`, a duty of the leader), nor what is
forgotten by it.

    01 "counted time"               -> counted_ms u64

Each command tells how long its leader has led, by its monotonic clock, since the last one. Reigns
do not overlap up to what is committed, so the sum never runs ahead of true time, whatever the wall
clocks say: what is forgotten by it is never forgotten early. It lags by what is lost between reigns
and while nobody leads.
"""

from typing import Final

from dledger.state.tables import KEY_U64, PREFIX, Table, Writer

COUNTED_AT_ONCE_MAX_MS: Final = 600_000
"""One command counts so much; what a leader did not tell in time is lost."""
COUNTED_KEY: Final = PREFIX[Table.META] + b"counted time"


class CountedTime:
    """The sum of one group."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        value = writer.store.get(COUNTED_KEY)
        self._ms: int = 0 if value is None else KEY_U64.unpack(value)[0]

    @property
    def ms(self) -> int:
        """Milliseconds counted so far."""
        return self._ms

    def count(self, elapsed_ms: int) -> None:
        """Add what a leader told."""
        elapsed_ms = min(max(elapsed_ms, 0), COUNTED_AT_ONCE_MAX_MS)
        if elapsed_ms:
            self._ms += elapsed_ms
            self._writer.put(COUNTED_KEY, KEY_U64.pack(self._ms))

    def certainly_before(self, age_ms: int) -> int:
        """Return the counted time before which what was noted is certainly `age_ms` old; 0: none.

        What is noted has the time that was counted before it, and came up to one command's later.
        """
        return max(self._ms - max(age_ms, 0) - COUNTED_AT_ONCE_MAX_MS, 0)
