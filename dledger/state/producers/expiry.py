"""ExpireProducers: counting time, and forgetting the producers that stopped writing (D11, I17).

Owns: which producers a command forgets, and in how many steps. Not: rows (`table.py`), counting
(`counted_time.py`), when a leader proposes the command.

An id is forgotten after its expiry, and at most two steps more, without a write. One command
removes at most EXPIRED_ROWS_MAX rows. A producer that has more loses its life in the first step:
nobody holds its epoch (`life_id` is all zero), and it is not registered any more. Its row 51 stays
until all others are gone, so the next command goes on with it. A registration in between ends that
(`registration.py`).
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from dledger.state.commands.codec import Int64
from dledger.state.commands.command import Command
from dledger.state.producers.table import ACTIVITY_STEP_MS, QUEUE_ROWS_MAX
from dledger.state.results import ProducersExpired, Refused
from dledger.state.state import State
from dledger.types import Entry

EXPIRED_AT_ONCE_MAX: Final = 64
"""Producers that one command forgets."""
EXPIRED_ROWS_MAX: Final = 2_048
"""Rows that it writes or deletes for them; a producer that has more is forgotten in steps."""
PRODUCER_ROWS: Final = 2
"""Of tables 50 and 51."""

assert EXPIRED_ROWS_MAX > PRODUCER_ROWS + QUEUE_ROWS_MAX, "each step removes something"


@dataclass(frozen=True, slots=True)
class ExpireProducers(Command[ProducersExpired]):
    """Count time in which a leader led, and forget producers that wrote nothing for so long."""

    NUMBER: ClassVar = 2

    elapsed_ms: Int64
    """By the leader's monotonic clock, since it last counted or began to lead."""
    expiry_ms: Int64

    def apply(self, state: State, entry: Entry) -> ProducersExpired | Refused:
        """Count the time, then forget the producers that were certainly silent, oldest first."""
        producers = state.producers
        state.time.count(self.elapsed_ms)
        stop_step = state.time.certainly_before(self.expiry_ms) // ACTIVITY_STEP_MS
        silent = producers.silent(stop_step, EXPIRED_AT_ONCE_MAX + 1)
        touched: set[bytes] = set()
        expired = 0
        left = EXPIRED_ROWS_MAX - 1  # the time
        for active_step, producer_id in silent[:EXPIRED_AT_ONCE_MAX]:
            left -= PRODUCER_ROWS
            if left < 0:
                break
            touched.add(producer_id)
            left -= producers.forget_queues(producer_id, left)
            if producers.forget_at:
                producers.end_life(producer_id)
                break
            producers.delete(producer_id, active_step)
            expired += 1
        producers.drop_cached_queues(touched)
        return ProducersExpired(expired, len(silent) > expired)
