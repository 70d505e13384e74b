"""Questions to the state, answered at any time on the thread that applies.

Owns: what may be asked and how it is refused. Not: rows. Every answer is as of `applied_index` and
costs a few seeks; limits named here or in `queues/table.py` bound the ranges. A caller that needs
the newest state takes a read barrier first (D9, D10).
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from dledger.state.consumers.settings import GroupSettings
from dledger.state.consumers.table import ConsumerGroup
from dledger.state.consumers.unused import is_unused
from dledger.state.lookup.key_index import UNKNOWN_OFFSET
from dledger.state.progress.group import existing_group, first_queue_of, group_named
from dledger.state.progress.row import Progress
from dledger.state.progress.wave import Pause
from dledger.state.queues.carry import walk
from dledger.state.queues.table import Queue
from dledger.state.timers.schedule_table import schedule_id_of
from dledger.state.topics.commands import ForgetTopics
from dledger.state.users.queries import UserQueries
from dledger.state.values import (
    Carried,
    Compactable,
    DeadLetter,
    FoundReference,
    Head,
    IdHit,
    KeptFrom,
    KeyHit,
    KeyHits,
    Origin,
    QueueProgress,
    QueueSpan,
    Root,
    Schedule,
    StoredOffset,
    Timer,
    Topic,
)
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import TIME_MS_MAX
from dledger_proto.names import RETRY_TOPIC_PREFIX

LAG_BYTES_MAX: Final = 1 << 62
"""No bound: the number of batches bounds what a question about lag looks at."""
QUEUES_LOOKED_AT: Final = 4_096
"""Queues that a search for what keeps a segment looks at."""
REFERENCES_LOOKED_AT: Final = 1_024
"""References that a search for one origin looks at."""
KEY_HITS_MAX: Final = 1_024
"""Batches that one lookup by key returns."""
KEY_PLACES_MAX: Final = 16 * KEY_HITS_MAX
"""Places that one lookup looks at; places outside the time window count too."""


class Queries(UserQueries):
    """What may be asked of one group's state."""

    # Topics.

    def topic_by_name(self, name: str) -> Topic | None:
        """Return the topic of a name, or None; deleted topics have no name."""
        return self._state.topics.by_name(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic of an id, also a deleted one that is not forgotten, or None."""
        return self._state.topics.find(topic_id)

    @property
    def forgotten_index(self) -> int:
        """The highest control index of a deletion that this group has forgotten; 0: none."""
        return self._state.topics.floor

    @property
    def control_id(self) -> bytes:
        """Id of the control group whose decisions were taken over; empty: none yet."""
        return self._state.topics.control_id

    def is_forgetting_due(self, command: ForgetTopics) -> bool:
        """Tell whether this ForgetTopics would free anything now."""
        return command.is_due(self._state.topics)

    def topics(self, since_control_index: int = -1, *, with_deleted: bool = False) -> list[Topic]:
        """Return the topics whose last change is after an index, in the order of these changes."""
        return self._state.topics.since(since_control_index, with_deleted=with_deleted)

    def topics_after(
        self, place: tuple[int, bytes], count: int, *, with_deleted: bool
    ) -> list[Topic]:
        """Return up to `count` topics behind (control index, id), in that order."""
        return self._state.topics.after(place, count, with_deleted=with_deleted)

    @property
    def newest_control_index(self) -> int:
        """The index of the newest decision about a topic that is known here."""
        return self._state.topics.newest_change

    # Queues.

    def queue_bounds(self, topic_id: bytes, queue: int) -> tuple[int, int]:
        """Return a queue's first offset and the next to be written. Raises as `State.queue`."""
        found = self._state.queue(topic_id, queue)
        return found.minimum, found.maximum

    def spans(self, topic_id: bytes, queue: int, offset: int, max_bytes: int) -> list[QueueSpan]:
        """Return the batches from `offset` on, at least one, then while `max_bytes` last.

        The first may begin below `offset`: batches are whole. Empty at the queue's maximum.
        Raises OFFSET_OUT_OF_RANGE below the minimum and above the maximum, and as `State.queue`.
        """
        found = self._state.queue(topic_id, queue)
        if offset == found.maximum:
            return []
        self._check_offset(found, offset)
        return self._state.queues.spans(found, offset, max_bytes)

    def _check_offset(self, queue: Queue, offset: int) -> None:
        if not queue.minimum <= offset < queue.maximum:
            raise DledgerError(
                Code.OFFSET_OUT_OF_RANGE,
                f"offset {offset}, the queue holds {queue.minimum} to {queue.maximum}",
            )

    def offset_by_time(self, topic_id: bytes, queue: int, time_ms: int) -> int:
        """Return the first offset stored at or after a time; the maximum when there is none."""
        return self._state.queues.offset_by_time(self._state.queue(topic_id, queue), time_ms)

    def head(self) -> Head:
        """Return what this state, which may not be saved yet, needs of the log."""
        queues = self._state.queues
        first = None if queues.first is None else queues.find(queues.first)
        return Head(
            queues.was_trimmed or self.carried.horizon > 0,
            queues.head,
            None if first is None
            else (self._state.topics.known(first.id[0]), first.id[1], first.minimum),
            self._state.references.head,
            self._state.copies.carried.horizon,
        )  # fmt: skip

    @property
    def carried(self) -> Carried:
        """How far old batches were carried forward."""
        return self._state.copies.carried

    def roots(self, cursor: bytes, target: int, limit: int) -> list[Root]:
        """Return up to `limit` roots from a cursor on: see `carry.walk`."""
        return list(islice(walk(self._state, cursor, target), limit))

    def is_pinned_below(self, position: int) -> bool:
        """Tell whether a pin, or a batch that was carried forward, needs the log below a position.

        What a pin names below the horizon lies elsewhere: as a copy.
        """
        horizon = self.carried.horizon
        pinned = next(self._state.references.pins((horizon, 0), position), None)
        return pinned is not None or self._state.copies.lies_between(horizon, position)

    def beginning_below(self, position: int, count: int) -> list[tuple[bytes, int, int]]:
        """Return up to `count` queues with rows below a log position, and where they reach it.

        A queue of which all these rows were carried forward is left out. It looks at up to
        QUEUES_LOOKED_AT queues.
        """
        queues, horizon = self._state.queues, self.carried.horizon
        found: list[tuple[bytes, int, int]] = []
        lower = queues.beginning_between((0, (b"", 0)), position)
        for begins, queue_id in islice(lower, QUEUES_LOOKED_AT):
            queue = queues.find(queue_id)
            end = queues.offset_by_place(queue, position)
            if begins >= horizon or queues.offset_by_place(queue, horizon) < end:
                found.append((*queue_id, end))
                if len(found) == count:
                    break
        return found

    def compactable(self, topic_id: bytes, queue: int) -> Compactable:
        """Return what of a queue can be compacted. Raises as `State.queue`."""
        found = self._state.queue(topic_id, queue)
        cleaned = self._state.queues.cleaned(found)
        return Compactable(found.minimum, cleaned, max(found.minimum, found.block_base))

    def is_pinned(self, position: int) -> bool:
        """Tell whether a retry, a timer or a dead letter refers to the batch of a position."""
        return self._state.references.is_pinned(position)

    def written_queues(self, topic: Topic) -> list[int]:
        """Return the queues of a topic that this broker group holds and that were ever written."""
        topic_id = topic.topic_id
        if all(part.group != self._state.group for part in topic.layout):
            return []
        return [queue.id[1] for queue in self._state.queues.of_topic(topic_id)]

    def finished_retries(self, topic_id: bytes, queue: int) -> int:
        """Return up to which offset a consumer group is done with a queue of its retry topic."""
        found = self._state.queue(topic_id, queue)
        return self._state.finished_retries(self._state.topics.known(topic_id), found)

    def holds(
        self, topic_id: bytes | None, queue: int | None, after_key: bytes, limit: int
    ) -> tuple[list[KeptFrom], bytes]:
        """Return up to `limit` holds, and where to go on: see `HoldTable.listed`."""
        return self._state.holds.listed(topic_id, queue, after_key, limit)

    # Lookup.

    def lookup_offset(self, topic_id: bytes, queue: int, offset: int) -> QueueSpan:
        """Return the batch that holds an offset.

        Raises OFFSET_OUT_OF_RANGE, NOT_FOUND for what compaction deleted, and as `State.queue`.
        """
        span = self.row_at(topic_id, queue, offset)
        if span.is_gone:
            raise DledgerError(
                Code.NOT_FOUND, f"offset {offset}: compaction deleted this message, a newer one of "
                "its key superseded it"
            )  # fmt: skip
        return span

    def row_at(self, topic_id: bytes, queue: int, offset: int) -> QueueSpan:
        """Return the row that holds an offset, also one that is gone. Else as `lookup_offset`."""
        found = self._state.queue(topic_id, queue)
        self._check_offset(found, offset)
        return self._state.queues.row_at(found, offset)

    def lookup_key(
        self,
        topic_id: bytes,
        key_hash: int,
        begin_ms: int,
        end_ms: int,
        limit: int,
        up_to: int | None = None,
    ) -> KeyHits:
        """Return up to `limit` batches of a topic that hold a key's hash, newest first.

        All queues that this group holds; batches that lie at position `up_to` or before it. Store
        times from `begin_ms` to `end_ms`, inclusive; 0: no end. Hashes collide, so the caller
        compares the keys in the batch; and of a batch that was trimmed in its middle the first
        records are gone. A batch that waits for a timer is not found.
        """
        self._state.topics.live(topic_id)
        end_ms = end_ms or TIME_MS_MAX
        hits: list[KeyHit] = []
        wanted = min(limit, KEY_HITS_MAX)
        places = self._state.keys.find(topic_id, key_hash, begin_ms, end_ms, up_to)
        for looked_at, place in enumerate(places):
            if len(hits) >= wanted or looked_at == KEY_PLACES_MAX:
                return KeyHits(hits, place.position)
            queue = self._state.queues.find((topic_id, place.queue))
            if place.base_offset == UNKNOWN_OFFSET:
                spans = self._delayed(queue, place.position, begin_ms, end_ms)
                hits += [KeyHit(place.queue, span, 0) for span in spans]
                continue
            for span in self._state.queues.left_of(queue, place.position, place.base_offset):
                if begin_ms <= span.store_time_ms <= end_ms:
                    hits.append(KeyHit(place.queue, span, span.position - place.position))
        return KeyHits(hits, None)

    def _delayed(
        self, queue: Queue, position: int, begin_ms: int, end_ms: int
    ) -> Iterator[QueueSpan]:
        """Iterate over the parts of a delayed batch that a queue holds.

        The window means the time at which the batch came; it was put into the queue later.
        """
        for base_offset, stored_ms in self._state.references.of_batch(queue, position):
            offset = max(base_offset, queue.minimum)
            if begin_ms <= stored_ms <= end_ms and offset < queue.maximum:
                span = self._state.queues.row_at(queue, offset)
                if span.base_offset == base_offset:
                    yield span

    def lookup_message_id(self, producer_id: bytes, number: int) -> IdHit | None:
        """Return where the record of a message id lies, or None."""
        place = self._state.message_ids.find(producer_id, number)
        if place is None:
            return None
        topic = self._state.topics.find(place.topic_id)
        if topic is None or topic.deleted:
            return None
        queue = self._state.queues.find((place.topic_id, place.queue))
        if place.offset < queue.minimum:
            return None
        span = self._state.queues.row_at(queue, place.offset)
        if span.is_gone:
            return None
        record = span.first_record + place.offset - span.base_offset
        return IdHit(place.topic_id, place.queue, place.offset, record, span)

    # References and timers.

    def origin(self, topic_id: bytes, queue: int, base_offset: int) -> Origin | None:
        """Return the origin of a reference, or None. Raises as `State.queue`."""
        return self._state.references.origin(self._state.queue(topic_id, queue), base_offset)

    def referred(
        self, topic_id: bytes, queue: int, base_offset: int
    ) -> tuple[int, int, Origin | None]:
        """Return of a reference which log position appended it, when it was stored, its origin.

        Raises as `State.queue`.
        """
        return self._state.references.appended(self._state.queue(topic_id, queue), base_offset)

    def reference(self, topic_id: bytes, origin: Origin, from_ms: int) -> FoundReference | None:
        """Return the reference of this broker group that an origin names, or None.

        The origin without its error, in a topic of a consumer group. It looks at up to
        `REFERENCES_LOOKED_AT` references that were stored at `from_ms` or later.
        """
        state = self._state
        topic = state.topics.find(topic_id)
        if topic is None or topic.deleted:
            return None
        queue = state.queues.find(first_queue_of(state.topics, topic_id, state.group))
        offset = state.queues.offset_by_time(queue, from_ms)
        end = min(offset + REFERENCES_LOOKED_AT, queue.maximum)
        while offset < end:
            span = state.queues.row_at(queue, offset)
            if span.is_reference:
                position, _, found = state.references.appended(queue, span.base_offset)
                if found is not None and found._replace(error=origin.error) == origin:
                    return FoundReference(queue.id[1], span.base_offset, position)
            offset = span.base_offset + span.record_count
        return None

    @property
    def next_due_ms(self) -> int | None:
        """When the next timer is due, leader time; None: no timer waits."""
        return self._state.timers.next_due_ms

    def timer_of(self, producer_id: bytes, number: int) -> Timer | None:
        """Return the timer that holds the record of a message id, or None."""
        return self._state.timers.find(producer_id, number)

    @property
    def earliest_due_ms(self) -> int | None:
        """No timer is due before this leader time; None: no timer waits. It costs nothing."""
        return self._state.timers.earliest_ms

    @property
    def timers_waiting(self) -> int:
        """How many timers wait in this broker group."""
        return self._state.timers.waiting

    def timers(
        self, from_ms: int, to_ms: int, after_key: bytes, limit: int
    ) -> tuple[list[Timer], bytes]:
        """Return up to `limit` timers, and where to go on: see `TimerTable.listed`."""
        return self._state.timers.listed(from_ms, to_ms, after_key, limit)

    # Schedules.

    @property
    def schedule_changes(self) -> int:
        """How often a schedule was set or deleted since this member began."""
        return self._state.schedules.changes

    def schedule(self, topic_id: bytes, name: str) -> Schedule | None:
        """Return a topic's schedule, or None."""
        schedule_id = schedule_id_of(self._state.group, topic_id, name)
        return self._state.schedules.find(topic_id, schedule_id)

    def schedules(
        self, topic_id: bytes, after_key: bytes, limit: int
    ) -> tuple[list[Schedule], bytes]:
        """Return up to `limit` schedules, and where to go on: see `ScheduleTable.listed`."""
        return self._state.schedules.listed(topic_id, after_key, limit)

    # Consumer groups.

    def group_by_name(self, name: str) -> tuple[Topic, GroupSettings] | None:
        """Return the retry topic and the settings of a consumer group, or None."""
        return _as_group(self.topic_by_name(RETRY_TOPIC_PREFIX + name))

    def group_by_id(self, group_id: bytes) -> tuple[Topic, GroupSettings] | None:
        """Return the retry topic and the settings of a consumer group, or None."""
        return _as_group(self.topic_by_id(group_id))

    def consumer_groups(self) -> list[Topic]:
        """Return the retry topics of all consumer groups."""
        return self._state.topics.consumer_groups()

    def consumers(self, group_id: bytes) -> ConsumerGroup:
        """Return the consumers and grants of a consumer group. Only apply changes them."""
        topic = self._state.topics.find(group_id)
        if topic is None or topic.deleted:
            return ConsumerGroup(group_id)  # rows that wait to be deleted are nobody's
        return self._state.consumers.group(group_id)

    def joined_groups(self) -> list[bytes]:
        """Return the consumer groups that somebody ever joined here."""
        return self._state.consumers.ids()

    def silent_groups(self, unused_ms: int) -> list[bytes]:
        """Return the consumer groups whose last use here was certainly so long ago."""
        return self._state.usage.silent(unused_ms)

    def is_unused(self, group_id: bytes, unused_ms: int, now_ms: int) -> bool:
        """Tell whether a consumer group is certainly unused here for so long: see `unused.py`."""
        return is_unused(self._state, group_id, unused_ms, now_ms)

    def progress(self, consumer_group: str, topic_id: bytes, queue: int) -> QueueProgress:
        """Return what a name or a consumer group has done in a queue, and what waits for it.

        Raises as `State.queue`. It looks at up to `SPANS_MAX` batches.
        """
        state = self._state
        found = state.queue(topic_id, queue)
        row = state.progress.of_name(state.topics, consumer_group, found.id)
        if row is None:
            return QueueProgress(None, found.minimum, found.maximum, 0, 0)
        first = row.first_waiting(found.minimum)
        if first >= found.maximum:
            return QueueProgress(row, found.minimum, found.maximum, 0, 0)
        spans = state.queues.spans(found, first, LAG_BYTES_MAX)
        seen = spans[-1].base_offset + spans[-1].record_count - spans[0].base_offset
        left = found.maximum - spans[0].base_offset
        size = sum(span.size for span in spans) * left // seen
        return QueueProgress(row, found.minimum, found.maximum, spans[0].store_time_ms, size)

    def fence_of(self, consumer_group: str, topic_id: bytes, queue: int) -> int | None:
        """Return the highest epoch that claimed a queue for a consumer group; 0: none did.

        None: the group has not begun there. Raises CONSUMER_GROUP_NOT_FOUND, and as `State.queue`.
        """
        group = existing_group(self._state.topics, consumer_group)
        found = self._state.queue(topic_id, queue)
        row = self._state.progress.read(group.id, group.name_bytes, found.id)
        return None if row is None else row.epoch

    def claimed(self, consumer_group: str, topic_id: bytes, queue: int) -> Progress | None:
        """Return the row of a consumer group in a queue, if the group exists and has one."""
        group = group_named(self._state.topics, consumer_group)
        if group is None:
            return None
        return self._state.progress.read(group.id, group.name_bytes, (topic_id, queue))

    def groups_behind(self, topic_id: bytes, queue: int, offset: int) -> list[str]:
        """Return the consumer groups that have something below an offset of a queue to do.

        Raises as `State.queue`. It looks at some hundred groups.
        """
        state = self._state
        found = state.queue(topic_id, queue)
        return state.progress.groups_behind(state.topics, found.id, found.minimum, offset)

    def pause_of(self, consumer_group: str) -> Pause | None:
        """Return why a consumer group is handed nothing; None when it is not paused."""
        group = group_named(self._state.topics, consumer_group)
        return None if group is None else self._state.waves.pause_of(group)

    def dead_letters(
        self, consumer_group: str, offset: int, limit: int
    ) -> tuple[int, list[DeadLetter], int]:
        """Return queue, dead letters from an offset on, and where to go on (-1: at the end).

        Those that are not settled. It looks at `limit` offsets. CONSUMER_GROUP_NOT_FOUND,
        QUEUE_NOT_FOUND.
        """
        state = self._state
        group = existing_group(state.topics, consumer_group)
        topic_id = group.settings.dead_letter_topic_id
        queue = state.queues.find(first_queue_of(state.topics, topic_id, state.group))
        row = state.progress.read(group.id, group.name_bytes, queue.id)
        first = max(offset, queue.minimum)
        end = min(first + limit, queue.maximum)
        found: list[DeadLetter] = []
        for at in range(first, end):
            origin = (
                None
                if row is not None and row.is_done(at)
                else state.references.origin_at(queue, at)
            )
            if origin is not None:
                found.append(DeadLetter(at, state.queues.row_at(queue, at).store_time_ms, origin))
        return queue.id[1], found, end if end < queue.maximum else -1

    def read_group_offset(
        self, consumer_group: str, topic_id: bytes, queue: int
    ) -> StoredOffset | None:
        """Return what a consumer group committed, or None. Raises as `State.queue`."""
        self._state.queue(topic_id, queue)
        state = self._state
        row = state.progress.of_name(state.topics, consumer_group, (topic_id, queue))
        return None if row is None else StoredOffset(row.floor, row.metadata, row.committed_ms)


def _as_group(topic: Topic | None) -> tuple[Topic, GroupSettings] | None:
    if topic is None or topic.deleted or topic.consumer_group is None:
        return None
    return topic, topic.consumer_group
