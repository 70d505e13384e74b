"""Counted time: how long the group has had leaders, by their own clocks (D11).

Owns: the sum and its row. Not: the command that adds to it (`ExpireProducers`, a duty of the
leader), nor what is forgotten after how long.

    01 "counted time"               -> counted_ms u64

Each command says how long its leader has led, by that leader's monotonic clock, since its last
command. Committed reigns do not overlap, so the sum never runs ahead of true time, whatever the
wall clocks say, and nothing is forgotten early. The sum lags by the time between reigns and the
time without a leader.
"""

from typing import Final

from dledger.state.tables import KEY_U64, PREFIX, Table, Writer

COUNTED_AT_ONCE_MAX_MS: Final = 600_000
"""The most that one command counts; a leader that reports later loses the rest."""
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
        """Add the time that a leader reported."""
        elapsed_ms = min(max(elapsed_ms, 0), COUNTED_AT_ONCE_MAX_MS)
        if elapsed_ms:
            self._ms += elapsed_ms
            self._writer.put(COUNTED_KEY, KEY_U64.pack(self._ms))

    def certainly_before(self, age_ms: int) -> int:
        """Return the counted time before which every note is certainly `age_ms` old; 0: no note.

        A note carries the time that was counted before it; it was made up to one command's time
        later.
        """
        return max(self._ms - max(age_ms, 0) - COUNTED_AT_ONCE_MAX_MS, 0)
