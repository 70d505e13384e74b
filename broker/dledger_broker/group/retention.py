"""A duty: the leader asks to delete what the retention of topics lets go (S60). Pure.

Owns: which queues are looked at when, and what is asked for each. Not owned: what may go
(`dledger.state.queues.expire` decides), how bytes are counted (`queue_sizes`), nor segments: each
member deletes those below the head of the log by itself.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dledger.state.queries import Queries
from dledger.state.queues.expire import (
    DONE_KEPT_MS,
    EXPIRED_QUEUES_MAX,
    KEEPS_ALL,
    Bound,
    ExpireRecords,
    Expiring,
    effective,
)
from dledger.state.queues.holds import HOLDS_PER_QUEUE_MAX
from dledger.state.queues.table import QueueId
from dledger.state.results import RecordsExpired
from dledger.state.values import Retention, Topic
from dledger_broker.group.duty import Duty, Look
from dledger_broker.group.queue_sizes import QueueSizes
from dledger_proto.errors import DledgerError
from dledger_proto.limits import OFFSET_MAX, RETENTION_FOREVER

LOOK_SECONDS: Final = 10.0
"""How often a leader looks."""
QUEUES_PER_LOOK: Final = 256
"""The next look goes on with the others."""
SOON_MS_MAX: Final = 3_600_000
SOON_PART: Final = 10
"""A group is endangered when messages that it has not read go within an hour, or within this part
of a shorter retention."""
ENDANGERED_MAX: Final = 64
"""Queues that are told of; there may be more."""


class Endangered(NamedTuple):
    """Consumer groups that soon lose what they have not read in a queue."""

    topic: str
    queue: int
    groups: tuple[str, ...]
    below: int
    """They have something to do below this offset, which retention deletes soon."""

    def describe(self) -> str:
        """Return a sentence."""
        return (
            f"{', '.join(self.groups)} will lose what they have not read of {self.topic}/"
            f"{self.queue} below offset {self.below}: retention deletes it soon"
        )


class RetentionDuty(Duty):
    """Asks only when something would go, and once for each segment of a low disk."""

    name = "delete expired messages"

    def __init__(self, default: Retention, *, delete_when_low: bool) -> None:
        super().__init__(LOOK_SECONDS)
        self._default = default
        self._delete_when_low = delete_when_low
        self._look_at = 0.0
        self._term: int | None = None
        self._sizes = QueueSizes()
        self._bounded: set[QueueId] = set()
        """Queues with a bound of size that this round has seen."""
        self.endangered: tuple[Endangered, ...] = ()
        """Of the last whole round, while this member leads."""
        self._found: list[Endangered] = []
        self._round: Iterator[tuple[Topic, int]] | None = None
        self._left: list[Expiring] = []
        """What this look found and nobody has asked for yet."""
        self._asked: tuple[Expiring, ...] = ()
        self._low_tried = -1
        """The segment of a low disk that was asked for last: whether it goes, others decide."""

    def due(self, look: Look) -> ExpireRecords | None:
        """See `Duty.due`."""
        if look.leads_term is None or look.time_ms is None:
            self.endangered = ()
            return None
        if look.leads_term != self._term:
            self._term, self._round, self._low_tried = look.leads_term, None, -1
            self._sizes.clear()
            self.endangered, self._found = (), []
        if look.now < self._look_at:
            return None
        self._look_at = look.now + self.period
        self._left = []
        self._sizes.begin_look()
        for topic, number in self._next_queues(look.state):
            self._left += self._expiring(look.state, topic, number, look.time_ms)
        low = look.low_below if self._delete_when_low else None
        if low is not None and low != self._low_tried:
            self._left += self._early(look.state, low, look.time_ms)
        return self._next()

    def _early(self, state: Queries, below: int, time_ms: int) -> list[Expiring]:
        """Return what keeps a segment; nothing when something keeps it that may not go."""
        self._low_tried = below
        found = state.beginning_below(below, QUEUES_PER_LOOK + 1)
        if len(found) > QUEUES_PER_LOOK or state.is_pinned_below(below):
            return []
        for topic_id, number, offset in found:
            topic = state.topic_by_id(topic_id)
            if topic is None or effective(topic, self._default) == KEEPS_ALL:
                return []
            if held_from(state, (topic_id, number), time_ms) < offset:
                return []
        return [Expiring(*each, Bound.DISK) for each in found]

    def rest(self, result: object) -> ExpireRecords | None:
        """See `Duty.rest`: the next queues. What a refusal leaves, a later round finds."""
        assert isinstance(result, RecordsExpired), result
        return self._next()

    def _next(self) -> ExpireRecords | None:
        self._asked = tuple(self._left[:EXPIRED_QUEUES_MAX])
        del self._left[:EXPIRED_QUEUES_MAX]
        return ExpireRecords(self._asked, self._default) if self._asked else None

    def says(self) -> Sequence[str]:
        """See `Duty.says`: who will soon lose messages."""
        return [each.describe() for each in self.endangered]

    def count(self, result: object) -> int:
        """See `Duty.count`: queues that got a higher minimum."""
        assert isinstance(result, RecordsExpired), result
        return sum(
            trimmed.minimum >= asked.offset
            for asked, trimmed in zip(self._asked, result.queues, strict=True)
        )

    def _next_queues(self, state: Queries) -> Iterator[tuple[Topic, int]]:
        """Iterate over the next queues of the round; a look behind its end begins the next."""
        if self._round is None:
            self._round = ((t, q) for t in state.topics() for q in state.written_queues(t))
        for _ in range(QUEUES_PER_LOOK):
            queue = next(self._round, None)
            if queue is None:
                self._sizes.keep(self._bounded)
                self._bounded = set()
                self._round = None
                self.endangered, self._found = tuple(self._found[:ENDANGERED_MAX]), []
                return
            yield queue

    def _expiring(
        self, state: Queries, topic: Topic, number: int, time_ms: int
    ) -> Iterator[Expiring]:
        known = state.topic_by_id(topic.topic_id)
        queue = topic.topic_id, number
        try:
            minimum, maximum = state.queue_bounds(*queue)
        except DledgerError:  # deleted since, or not this group's any more
            return
        assert known is not None, "its queue is there"
        bound = effective(known, self._default)
        offset = minimum
        why = Bound.TIME
        if bound.time_ms != RETENTION_FOREVER:
            offset = state.offset_by_time(*queue, time_ms - bound.time_ms)
            soon_ms = min(SOON_MS_MAX, bound.time_ms // SOON_PART)
            self._note_endangered(state, known, number, time_ms - bound.time_ms + soon_ms)
        if bound.size != RETENTION_FOREVER:
            self._bounded.add(queue)
            over = self._sizes.over(state, queue, (minimum, maximum), bound.size)
            if over > offset:
                offset, why = over, Bound.SIZE
        if known.consumer_group is not None:
            done = state.finished_retries(*queue)
            done = min(done, state.offset_by_time(*queue, time_ms - DONE_KEPT_MS))
            if done > offset:
                offset, why = done, Bound.DONE
        if offset > minimum and held_from(state, queue, time_ms) > minimum:
            yield Expiring(*queue, offset, why, bound.size if why is Bound.SIZE else 0)

    def _note_endangered(self, state: Queries, topic: Topic, number: int, before_ms: int) -> None:
        """Note who has not read what was stored before a time."""
        below = state.offset_by_time(topic.topic_id, number, before_ms)
        if below > state.queue_bounds(topic.topic_id, number)[0]:
            groups = state.groups_behind(topic.topic_id, number, below)
            if groups:
                self._found.append(Endangered(topic.name, number, tuple(groups), below))


def held_from(state: Queries, queue: QueueId, time_ms: int) -> int:
    """Return from which offset on holds keep a queue."""
    rows, _ = state.holds(*queue, b"", HOLDS_PER_QUEUE_MAX)
    return min((row.offset for row in rows if row.until_ms > time_ms), default=OFFSET_MAX)
