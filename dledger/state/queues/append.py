"""Appending committed batches to their queues: which are void, which are repeats (D6, D11).

Owns: the order of the checks. Not: the checks' own rules (`write_rule.py`, `producers/table.py`).

A repeat is recognised before the queue is asked whether it takes batches. The first copy was
stored, whatever the topic permits by now; the answer "not stored" would make the sender store it a
second time elsewhere.
"""

from typing import Final

from dledger.state.lookup.key_index import UNKNOWN_OFFSET
from dledger.state.producers.table import ProducerQueue
from dledger.state.queues.write_rule import refusal_to_write
from dledger.state.results import DELAYED_OFFSET, Appended, Refused
from dledger.state.state import State
from dledger.state.values import Reference, Topic
from dledger.types import Entry
from dledger_proto.batch.codec import (
    BATCH_HEADER_SIZE,
    EPOCH_OF_SCHEDULES,
    BatchHeader,
    delivery_time_of,
    parse_header,
)
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import DELAY_MS_MAX

CACHED_TOPICS_MAX: Final = 4_096
_ONE: Final = (1).to_bytes(4, "little")


class Appender:
    """Applies the batches of an entry."""

    def __init__(self, state: State) -> None:
        self._group = state.group
        self._topics = state.topics
        self._queues = state.queues
        self._producers = state.producers
        self._message_ids = state.message_ids
        self._keys = state.keys
        self._timers = state.timers
        self._schedules = state.schedules
        self._open: dict[bytes, tuple[Topic, frozenset[int]]] = {}
        """Topics that take messages, with the queues that this group holds; a cache."""

    def apply(self, entry: Entry) -> list[Appended | Refused]:
        """Apply every batch; one result for each."""
        results: list[Appended | Refused] = []
        time_ms = entry.time_ms
        for payload, position in zip(entry.payloads, entry.starts, strict=True):
            try:
                header = parse_header(payload)
            except DledgerError as error:
                results.append(Refused(error.code, error.detail))
                continue
            results.append(self._append(header, payload, position, time_ms))
        return results

    def _append(
        self, header: BatchHeader, payload: memoryview, position: int, time_ms: int
    ) -> Appended | Refused:
        if header.size != len(payload) or header.required_flags:
            return _unreadable(header, len(payload))
        topic = self._topics.find(header.topic_id)
        if topic is None or topic.deleted:
            return self._refused(topic, header)
        progress: ProducerQueue | None = None
        scheduled = header.producer_epoch == EPOCH_OF_SCHEDULES
        if header.base_sequence >= 0 and not scheduled:
            verdict = self._producers.check(header)
            if not isinstance(verdict, ProducerQueue):
                return verdict
            progress = verdict
        opened = self._open.get(header.topic_id)
        if opened is None or opened[0] is not topic:
            opened = self._open_queues(topic)
        if header.queue not in opened[1]:
            return self._refused(topic, header)
        if topic.is_compacted and (scheduled or not _have_one_key(header, payload)):
            return _without_keys(topic, header)
        if header.header_size != BATCH_HEADER_SIZE and not scheduled:
            due_ms = delivery_time_of(payload, header)
            if due_ms > time_ms and topic.is_compacted:
                return Refused(
                    Code.MESSAGE_ILLEGAL, f"topic {topic.name} is compacted: no message can wait"
                )
            if due_ms > time_ms:
                return self._delay(header, payload, position, time_ms, due_ms, progress)
        if scheduled and (refused := self._schedules.take(header, time_ms)) is not None:
            return refused
        queue = self._queues.find((header.topic_id, header.queue))
        count = header.record_count
        base_offset = self._queues.append(queue, position, count, header.size, time_ms)
        if progress is not None:
            self._producers.record(progress, header, base_offset)
        if header.base_sequence >= 0:
            self._message_ids.record(header, base_offset)
        if header.key_count:
            self._keys.record(header, payload, base_offset, position, time_ms)
        return Appended(base_offset, count)

    def _delay(
        self,
        header: BatchHeader,
        payload: memoryview,
        position: int,
        time_ms: int,
        due_ms: int,
        progress: ProducerQueue | None,
    ) -> Appended | Refused:
        """Set a timer for a batch; its queue holds nothing of it until the timer fires."""
        if due_ms - time_ms > DELAY_MS_MAX:
            return Refused(
                Code.MESSAGE_ILLEGAL,
                f"delivery_time_ms {due_ms}, at most {time_ms + DELAY_MS_MAX}: {DELAY_MS_MAX} ms "
                "from now",
            )
        try:
            self._timers.check_room()
        except DledgerError as error:
            return Refused(error.code, error.detail)
        count = header.record_count
        self._timers.add(
            due_ms, header.topic_id, header.queue, Reference(position, 0, count, header.size),
            None, time_ms, producer_id=header.producer_id, base_number=header.base_number,
            has_keys=header.key_count > 0,
        )  # fmt: skip
        if progress is not None:
            self._producers.record(progress, header, DELAYED_OFFSET)
        if header.key_count:
            self._keys.record(header, payload, UNKNOWN_OFFSET, position, time_ms)
        return Appended(DELAYED_OFFSET, count)

    def _refused(self, topic: Topic | None, header: BatchHeader) -> Refused:
        refused = refusal_to_write(topic, header.topic_id, header.queue, self._group)
        assert refused is not None, f"queue {header.queue} of {topic} takes batches"
        return refused

    def _open_queues(self, topic: Topic) -> tuple[Topic, frozenset[int]]:
        mine = frozenset(
            number
            for number in range(topic.write_queues)
            if refusal_to_write(topic, topic.topic_id, number, self._group) is None
        )
        if len(self._open) >= CACHED_TOPICS_MAX:
            self._open.clear()
        opened = self._open[topic.topic_id] = topic, mine
        return opened


def _have_one_key(header: BatchHeader, payload: memoryview) -> bool:
    """Tell whether each record has exactly one key: by the column key_counts."""
    at = header.header_size + 16 * header.record_count
    return bytes(payload[at : at + 4 * header.record_count]) == _ONE * header.record_count


def _without_keys(topic: Topic, header: BatchHeader) -> Refused:
    return Refused(
        Code.MESSAGE_ILLEGAL,
        f"topic {topic.name} is compacted: each message needs exactly one key, and no schedule; "
        f"the batch has {header.key_count} keys for {header.record_count} messages",
    )


def _unreadable(header: BatchHeader, found_size: int) -> Refused:
    if header.size != found_size:
        return Refused(
            Code.CORRUPT_BATCH, f"size is {header.size}, but there are {found_size} bytes"
        )
    return Refused(
        Code.UNSUPPORTED_FORMAT, f"required_flags {header.required_flags:#x}: not known here"
    )
