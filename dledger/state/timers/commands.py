"""The commands of timers: firing what is due, recalling a delayed message (D23).

Owns: their rules. Not: rows (`table.py`), which batches become timers (`queues/append.py`).

A timer fires when an entry's stamp has reached its time, whatever the command says. The same
command proposed twice finds nothing the second time. So a record is delivered once and never
early by the stamps of leaders.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from dledger.state.commands.codec import Int64, UInt32, UInt64
from dledger.state.commands.command import Command
from dledger.state.lookup.message_ids import IdRow
from dledger.state.queues.table import QueueId
from dledger.state.results import Refused, TimerRecalled, TimersFired
from dledger.state.state import State
from dledger.state.values import Timer
from dledger.types import Entry
from dledger_proto.batch.codec import NO_ID
from dledger_proto.errors import Code, DledgerError

FIRED_AT_ONCE_MAX: Final = 1_000
"""Timers that one command fires: about 15 ms of the member's loop."""


@dataclass(frozen=True, slots=True)
class FireTimers(Command[TimersFired]):
    """Put the records of timers that are due into their queues."""

    NUMBER: ClassVar = 20
    ROWS_READ_MAX: ClassVar = 2 * FIRED_AT_ONCE_MAX

    up_to_ms: Int64
    """Leader time; a timer that is due later stays."""
    at_most: UInt32

    def apply(self, state: State, entry: Entry) -> TimersFired | Refused:
        """Fire in the order of time, and of the log for one time, each queue's timers together."""
        up_to_ms = min(self.up_to_ms, entry.time_ms)
        limit = min(max(self.at_most, 1), FIRED_AT_ONCE_MAX)
        by_queue: dict[QueueId, list[Timer]] = {}
        for timer in state.timers.take_due(up_to_ms, limit):
            by_queue.setdefault((timer.topic_id, timer.queue), []).append(timer)
        fired = _fire(state, by_queue, entry)
        next_due_ms = state.timers.next_due_ms
        more = next_due_ms is not None and next_due_ms <= up_to_ms
        return TimersFired(fired, more)


def _fire(state: State, by_queue: dict[QueueId, list[Timer]], entry: Entry) -> int:
    """Put the records of timers into their queues, each queue's together; return how many fired.

    The timers of a deleted topic fire nothing, and let the log go.
    """
    fired = 0
    by_producer: dict[bytes, list[IdRow]] = {}
    for (topic_id, number), timers in by_queue.items():
        try:
            queue = state.queue(topic_id, number)
        except DledgerError:
            for timer in timers:
                state.references.unpin(timer.reference.position, timer.number)
            continue
        offsets = state.references.append_fired(queue, timers, entry)
        fired += len(timers)
        for timer, offset in zip(timers, offsets, strict=True):
            if timer.producer_id != NO_ID:
                count = timer.reference.record_count
                row = timer.base_number, count, number, offset, topic_id
                by_producer.setdefault(timer.producer_id, []).append(row)
    for producer_id, rows in by_producer.items():
        state.message_ids.record_many(producer_id, rows)
    return fired


@dataclass(frozen=True, slots=True)
class RecallTimer(Command[TimerRecalled]):
    """Take a delayed message back before it is delivered."""

    NUMBER: ClassVar = 21

    producer_id: bytes
    number: UInt64

    def apply(self, state: State, entry: Entry) -> TimerRecalled | Refused:
        """Take the record out of its timer; other records of its batch stay."""
        timer = state.timers.find(self.producer_id, self.number)
        if timer is None:
            return no_timer(self.producer_id, self.number)
        state.timers.take_out(timer, self.number)
        return TimerRecalled(timer.due_ms)


def no_timer(producer_id: bytes, number: int) -> Refused:
    """Return what is said of a message for which no timer waits."""
    return Refused(
        Code.NOT_FOUND,
        f"message {producer_id.hex()}{number:016x}: no timer waits for it; it was delivered or "
        "recalled, or it was not delayed",
    )
