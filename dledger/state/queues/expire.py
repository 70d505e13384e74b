"""ExpireRecords: the records go that their topic's retention lets go (S60, D24).

Owns: the command, and what it may delete. Not: which queues a leader looks at, and when (its duty
does), how a minimum rises up to the holds (`trim.py`).

The command names an offset for each queue. Apply decides how far it follows, by the bound that the
leader gives as its reason:

    TIME   up to the first record that is younger than the topic's retention, by the entry's stamp
    SIZE   as far as the leader says, if the topic still has the bound of size that the leader
           counted by: only readers count bytes
    DISK   as far as the leader says, if the topic has any bound: its disk is low, and the cluster
           wants the oldest messages deleted then
    DONE   of a retry topic: up to the floor of its consumer group, records stored DONE_KEPT_MS ago

Retries and dead letters keep to no bound: retries go as DONE, dead letters when they are settled.
So a leader that proposes late, twice, or by a wrong clock of its own deletes nothing early. A bound
that the topic leaves to the cluster comes with the command: all members use the same number.
"""

import enum
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from dledger.state.commands.codec import Int64, UInt32, UInt64
from dledger.state.commands.command import Command
from dledger.state.queues.holds import HOLDS_PER_QUEUE_MAX
from dledger.state.queues.table import Queue
from dledger.state.queues.trim import Trim
from dledger.state.results import RecordsExpired, Refused, Trimmed
from dledger.state.state import State
from dledger.state.values import Retention, Topic
from dledger.types import Entry
from dledger_proto.errors import DledgerError
from dledger_proto.limits import RETENTION_DEFAULT, RETENTION_FOREVER
from dledger_proto.names import GROUP_TOPIC_PREFIXES

EXPIRED_QUEUES_MAX: Final = 64
"""Queues that one command names."""
DONE_KEPT_MS: Final = 600_000
"""A retry that its consumer group has finished stays for so long: an explanation may ask for it."""
KEEPS_ALL: Final = Retention(RETENTION_FOREVER, RETENTION_FOREVER)
ROWS_PER_SEARCH: Final = 32
"""Rows that a search by time reads."""


class Bound(enum.IntEnum):
    """Why records go."""

    TIME = 0
    SIZE = 1
    DONE = 2
    DISK = 3


class Expiring(NamedTuple):
    """A queue, and the offset below which its records go."""

    topic_id: bytes
    queue: UInt32
    offset: Int64
    why: Bound
    size: UInt64 = 0
    """Of SIZE: the bound by which the leader counted."""

    def describe(self) -> str:
        """Return one word."""
        return f"{self.topic_id.hex()}/{self.queue}@{self.offset}({self.why.name})"


@dataclass(frozen=True, slots=True)
class ExpireRecords(Command[RecordsExpired]):
    """Raise the minimum of queues as far as the retention of their topics lets them."""

    NUMBER: ClassVar = 61
    FREES_SPACE: ClassVar = True

    queues: tuple[Expiring, ...]
    default: Retention
    """What counts where a topic says RETENTION_DEFAULT."""

    @property
    def rows_read_max(self) -> int:
        return (HOLDS_PER_QUEUE_MAX + ROWS_PER_SEARCH) * len(self.queues)

    def apply(self, state: State, entry: Entry) -> RecordsExpired | Refused:
        """Trim each queue up to what apply allows; one that is gone is left out."""
        return RecordsExpired(tuple(self._expire(state, each, entry) for each in self.queues))

    def _expire(self, state: State, wanted: Expiring, entry: Entry) -> Trimmed:
        try:
            queue = state.queue(wanted.topic_id, wanted.queue)
        except DledgerError:  # the topic is deleted since: its queues are freed as a whole
            return Trimmed(0)
        topic = state.topics.known(wanted.topic_id)
        offset = min(wanted.offset, self._allowed(state, topic, queue, wanted, entry.time_ms))
        if offset <= queue.minimum:
            return Trimmed(queue.minimum)
        result = Trim(*queue.id, offset).apply(state, entry)
        return Trimmed(queue.minimum) if isinstance(result, Refused) else result

    def _allowed(
        self, state: State, topic: Topic, queue: Queue, wanted: Expiring, time_ms: int
    ) -> int:
        """Return the offset up to which a queue may go for this reason."""
        bound, why = effective(topic, self.default), wanted.why
        if why is Bound.TIME:
            kept_ms = bound.time_ms
            if kept_ms == RETENTION_FOREVER:
                return queue.minimum
        elif why is Bound.SIZE:
            is_counted = bound.size == wanted.size != RETENTION_FOREVER
            return queue.maximum if is_counted else queue.minimum
        elif why is Bound.DISK:
            return queue.minimum if bound == KEEPS_ALL else queue.maximum
        else:
            kept_ms = DONE_KEPT_MS
        # The first record that is younger; the maximum when there is none.
        allowed = state.queues.offset_by_time(queue, time_ms - kept_ms)
        if why is Bound.DONE:
            return min(allowed, state.finished_retries(topic, queue))
        return allowed


def effective(topic: Topic, default: Retention) -> Retention:
    """Return what counts for a topic; RETENTION_FOREVER stands for a bound that nobody set."""
    if topic.name.startswith(GROUP_TOPIC_PREFIXES) or topic.is_compacted:
        return KEEPS_ALL
    retention = topic.retention
    return Retention(
        _first_set(retention.time_ms, default.time_ms), _first_set(retention.size, default.size)
    )


def _first_set(*bounds: int) -> int:
    return next((each for each in bounds if each != RETENTION_DEFAULT), RETENTION_FOREVER)
