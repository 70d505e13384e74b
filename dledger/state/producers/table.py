"""Producers: their epochs, their sequences, and the memory of their last batches (D11, S116).

Owns: the producer tables and the verdict on a batch's epoch and sequence. Not: who gets an epoch
(`registration.py`), forgetting (`expiry.py`, `topics/sweep.py`), topics and queues of the batch
(`queues/append.py`), message ids (`lookup/message_ids.py`).

    50 producer_id                            -> epoch u32, active_step u64, life_id 16,
                                               former_life_id 16 (0: none), owner: UTF-8
    51 active_step u64, producer_id           -> empty: producers in the order of their last write
    52 producer_id, topic_id, queue u32       -> epoch u32, next_sequence i64, block u64, rows u32
    53 producer_id, topic_id, queue, block u64 -> up to WINDOW_ROWS_PER_BLOCK rows:
                                               base_sequence i64, base_offset i64, count u32

A step is ACTIVITY_STEP_MS of counted time (`counted_time.py`), which never runs ahead of true time,
so nobody is forgotten early. Rows 50 and 51 change at most once a step.

    epoch of the batch       sequence of its first record          verdict
    -----------------------  ------------------------------------  ------------------------------
    producer not registered  any                                   UNKNOWN_PRODUCER
    below the producer's     any                                   STALE_EPOCH
    above the producer's     any                                   UNKNOWN_PRODUCER: register here
    the producer's           the next of its queue (0 at first)    appended
                             above that                            SEQUENCE_GAP
                             of one of the last 256 batches, and   the original offset, duplicate
                             as long as that one
                             below the oldest of these             DUPLICATE
                             else: cuts across batches             SEQUENCE_GAP
"""

import struct
from collections.abc import Iterator, Set
from typing import Final

from dledger.state.counted_time import COUNTED_AT_ONCE_MAX_MS, CountedTime
from dledger.state.results import Appended, LastSequence, Refused, Registered
from dledger.state.tables import KEY_U32, KEY_U64, PREFIX, Table, Writer, after, rows_in
from dledger_proto.batch.codec import NO_ID, BatchHeader
from dledger_proto.errors import Code
from dledger_proto.limits import ENTRY_PAYLOADS_MAX, PRODUCER_BATCHES_IN_FLIGHT_MAX

ACTIVITY_STEP_MS: Final = COUNTED_AT_ONCE_MAX_MS
LAST_SEQUENCES_MAX: Final = 4_096
"""Queues that a registration lists."""
WINDOW_BATCHES: Final = PRODUCER_BATCHES_IN_FLIGHT_MAX
WINDOW_ROWS_PER_BLOCK: Final = WINDOW_BATCHES // 2
WINDOW_BLOCKS: Final = 3
"""The newest block, which may hold one row, and two full ones: at least WINDOW_BATCHES rows."""
CACHED_PRODUCERS_MAX: Final = 16_384
"""Rows 50 in memory. All are written: any may be dropped at any time."""
CACHED_QUEUES_MAX: Final = 32_768
"""Rows 52 in memory. Those that an entry has changed stay until its end writes them."""
QUEUE_ROWS_MAX: Final = 1 + WINDOW_BLOCKS
"""Of tables 52 and 53, for one queue of a producer."""

PRODUCER_VALUE: Final = struct.Struct("<IQ16s16s")
PRODUCER_QUEUE_VALUE: Final = struct.Struct("<IqQI")
WINDOW_ROW: Final = struct.Struct("<qqI")

assert ENTRY_PAYLOADS_MAX < CACHED_QUEUES_MAX, "what an entry changes fits the bound"

TOPIC_AT: Final = slice(17, 33)
"""Where the topic's id lies in a key of table 52."""

ProducerQueueId = tuple[bytes, bytes, int]
"""Producer id, topic id, queue number."""


class Producer:
    """A registered producer."""

    __slots__ = ("active_step", "epoch", "former_life_id", "life_id", "owner")

    def __init__(
        self,
        epoch: int,
        active_step: int,
        life_id: bytes,
        former_life_id: bytes,
        owner: str = "",
    ) -> None:
        self.epoch = epoch
        self.active_step = active_step
        self.life_id = life_id
        """Holds the epoch; all zero: the producer is being forgotten."""
        self.former_life_id = former_life_id
        """The one that `life_id` took over from; all zero: none."""
        self.owner = owner
        """The user that registered it; empty: nobody asked who that was."""

    @classmethod
    def decode(cls, value: bytes) -> "Producer":
        """Return what a row says; one of before there were owners ends before its owner."""
        epoch, active_step, life_id, former_life_id = PRODUCER_VALUE.unpack_from(value)
        owner = value[PRODUCER_VALUE.size :].decode()
        return cls(epoch, active_step, life_id, former_life_id, owner)

    def is_anothers(self, user: str) -> bool:
        """Tell whether it belongs to another user; an empty user is nobody in particular."""
        return bool(user and self.owner and self.owner != user)

    @property
    def is_half_forgotten(self) -> bool:
        """Nobody holds the epoch any more: the producer counts as unknown."""
        return self.life_id == NO_ID

    def encode(self) -> bytes:
        """Return the value of the row."""
        numbers = self.epoch, self.active_step, self.life_id, self.former_life_id
        return PRODUCER_VALUE.pack(*numbers) + self.owner.encode()


def refusal_of_unknown(producer_id: bytes) -> Refused:
    """Return what somebody is told whose producer is not registered."""
    return Refused(Code.UNKNOWN_PRODUCER, f"producer {producer_id.hex()} is not registered")


class ProducerQueue:
    """Where a producer stands in one queue."""

    __slots__ = ("block", "epoch", "id", "next_sequence", "rows", "window_key", "window_prefix")

    def __init__(self, queue_id: ProducerQueueId, value: bytes | None) -> None:
        producer_id, topic_id, queue = queue_id
        self.id = queue_id
        self.window_prefix = (
            PREFIX[Table.PRODUCER_WINDOW] + producer_id + topic_id + KEY_U32.pack(queue)
        )
        self.epoch = self.next_sequence = self.block = self.rows = 0
        if value is not None:
            self.epoch, self.next_sequence, self.block, self.rows = PRODUCER_QUEUE_VALUE.unpack(
                value
            )
        self.window_key = self.window_prefix + KEY_U64.pack(self.block)

    def encode(self) -> bytes:
        """Return the value of the row."""
        return PRODUCER_QUEUE_VALUE.pack(self.epoch, self.next_sequence, self.block, self.rows)


class ProducerTable:
    """All producers of a group. Rows of table 52 are written by `write_changed`."""

    def __init__(self, writer: Writer, time: CountedTime) -> None:
        self._writer = writer
        self._store = writer.store
        self._time = time
        self._producers: dict[bytes, Producer] = {}
        self._queues: dict[ProducerQueueId, ProducerQueue] = {}
        self._changed: dict[ProducerQueueId, ProducerQueue] = {}
        self.forget_at = b""
        """Below this key nothing is left of the producer that is half forgotten; empty: there is
        none. Without it each command would scan again over all rows that were deleted since the
        last save."""

    def find(self, producer_id: bytes) -> Producer | None:
        """Return the producer, or None when it is not registered."""
        producer = self.load(producer_id)
        return None if producer is None or producer.is_half_forgotten else producer

    def load(self, producer_id: bytes) -> Producer | None:
        """Return what row 50 says, also of a producer that is half forgotten."""
        producer = self._producers.get(producer_id)
        if producer is None:
            value = self._store.get(PREFIX[Table.PRODUCER] + producer_id)
            if value is None:
                return None
            producer = Producer.decode(value)
            self._keep(producer_id, producer)
        return producer

    def _keep(self, producer_id: bytes, producer: Producer) -> None:
        if len(self._producers) >= CACHED_PRODUCERS_MAX and producer_id not in self._producers:
            self._producers.clear()
        self._producers[producer_id] = producer

    # Batches.

    def check(self, header: BatchHeader) -> ProducerQueue | Appended | Refused:
        """Return where the batch's sequence continues, or its verdict: a repeat or a refusal."""
        producer = self.find(header.producer_id)
        if producer is None:
            return refusal_of_unknown(header.producer_id)
        epoch = header.producer_epoch
        if epoch != producer.epoch:
            if epoch < producer.epoch:
                return Refused(Code.STALE_EPOCH, f"epoch {epoch}, the newest is {producer.epoch}")
            return Refused(
                Code.UNKNOWN_PRODUCER, f"epoch {epoch} is not registered, {producer.epoch} is"
            )
        queue = self._queue((header.producer_id, header.topic_id, header.queue))
        expected = queue.next_sequence if queue.epoch == epoch else 0
        if header.base_sequence == expected:
            return queue
        if header.base_sequence > expected:
            return Refused(
                Code.SEQUENCE_GAP, f"sequence {header.base_sequence}, the next is {expected}"
            )
        return self._repeat(queue, header.base_sequence, header.record_count)

    def _queue(self, queue_id: ProducerQueueId) -> ProducerQueue:
        queue = self._queues.get(queue_id)
        if queue is None:
            queue = ProducerQueue(queue_id, self._store.get(_queue_key(queue_id)))
            if len(self._queues) >= CACHED_QUEUES_MAX:
                self._queues = dict(self._changed)
            self._queues[queue_id] = queue
        return queue

    def _repeat(self, queue: ProducerQueue, sequence: int, count: int) -> Appended | Refused:
        oldest = queue.next_sequence
        for base_sequence, base_offset, row_count in self._newest_rows(queue):
            if base_sequence == sequence and row_count == count:
                return Appended(base_offset, count, duplicate=True)
            oldest = base_sequence
        if sequence < oldest:
            return Refused(
                Code.DUPLICATE,
                f"sequence {sequence} is stored; of the last {WINDOW_BATCHES} batches, whose "
                f"offsets are remembered, the oldest is {oldest}",
            )
        return Refused(
            Code.SEQUENCE_GAP,
            f"sequences {sequence} to {sequence + count - 1} cut across stored batches",
        )

    def _newest_rows(self, queue: ProducerQueue) -> Iterator[tuple[int, int, int]]:
        left = WINDOW_BATCHES
        for block in range(queue.block, max(queue.block - WINDOW_BLOCKS, -1), -1):
            value = self._store.get(queue.window_prefix + KEY_U64.pack(block)) or b""
            for at in range(len(value) - WINDOW_ROW.size, -1, -WINDOW_ROW.size):
                yield WINDOW_ROW.unpack_from(value, at)
                left -= 1
                if left == 0:
                    return

    def record(self, queue: ProducerQueue, header: BatchHeader, base_offset: int) -> None:
        """Remember an appended batch that `check` let pass."""
        producer = self.find(header.producer_id)
        assert producer is not None, f"producer {header.producer_id.hex()} was not checked"
        if queue.epoch != header.producer_epoch:
            self._start_epoch(queue, header.producer_epoch)
        elif queue.rows == WINDOW_ROWS_PER_BLOCK:
            queue.block += 1
            queue.rows = 0
            queue.window_key = queue.window_prefix + KEY_U64.pack(queue.block)
            if queue.block >= WINDOW_BLOCKS:
                oldest = queue.block - WINDOW_BLOCKS
                self._writer.delete(queue.window_prefix + KEY_U64.pack(oldest))
        row = WINDOW_ROW.pack(header.base_sequence, base_offset, header.record_count)
        self._writer.append(queue.window_key, row, is_new=not queue.rows)
        queue.rows += 1
        queue.next_sequence = header.base_sequence + header.record_count
        self._changed[queue.id] = queue
        step = self._time.ms // ACTIVITY_STEP_MS
        if step != producer.active_step:
            self.store(header.producer_id, producer, step)

    def _start_epoch(self, queue: ProducerQueue, epoch: int) -> None:
        if queue.rows:
            self._delete_window(queue.window_prefix, queue.block)
        queue.epoch = epoch
        queue.block = queue.rows = queue.next_sequence = 0
        queue.window_key = queue.window_prefix + KEY_U64.pack(0)

    def _delete_window(self, prefix: bytes, newest: int) -> int:
        """Delete a queue's rows of table 53; return how many."""
        blocks = range(max(newest - WINDOW_BLOCKS + 1, 0), newest + 1)
        for block in blocks:
            self._writer.delete(prefix + KEY_U64.pack(block))
        return len(blocks)

    def write_changed(self) -> None:
        """Write the rows that changed since the last call."""
        if self._changed:
            for queue in self._changed.values():
                self._writer.put(_queue_key(queue.id), queue.encode())
            self._changed.clear()

    # Rows.

    def store(self, producer_id: bytes, producer: Producer, active_step: int) -> None:
        """Write a producer that was active in a step."""
        if producer.active_step >= 0:
            self._writer.delete(_activity_key(producer.active_step, producer_id))
        producer.active_step = active_step
        self._writer.put(PREFIX[Table.PRODUCER] + producer_id, producer.encode())
        self._writer.put(_activity_key(active_step, producer_id), b"")
        self._keep(producer_id, producer)

    def registered(self, producer_id: bytes, epoch: int) -> Registered:
        """Return the answer to a registration: the epoch, and the sequences of the one before."""
        return Registered(epoch, tuple(self._last_sequences(producer_id, epoch - 1)))

    def _last_sequences(self, producer_id: bytes, epoch: int) -> Iterator[LastSequence]:
        assert not self._changed, "commands and batches share no entry"
        start = PREFIX[Table.PRODUCER_QUEUE] + producer_id
        stop = after(start)
        for key, value in self._store.scan(start, stop, LAST_SEQUENCES_MAX):
            queue_epoch, next_sequence, _, _ = PRODUCER_QUEUE_VALUE.unpack(value)
            if queue_epoch == epoch and next_sequence:
                yield LastSequence(key[17:33], KEY_U32.unpack(key[33:])[0], next_sequence - 1)

    # Forgetting (`expiry.py`, `topics/sweep.py`).

    def silent(self, stop_step: int, limit: int) -> list[tuple[int, bytes]]:
        """Return (last active step, id) of producers that were last active before a step."""
        assert not self._changed, "commands and batches share no entry"
        prefix = PREFIX[Table.PRODUCER_ACTIVITY]
        rows = self._store.scan(prefix, prefix + KEY_U64.pack(stop_step), limit)
        return [(KEY_U64.unpack(key[1:9])[0], key[9:]) for key, _ in rows]

    def forget_queues(self, producer_id: bytes, left: int) -> int:
        """Delete up to `left` rows of tables 52 and 53, each queue whole; return how many.

        `forget_at` is empty when none is left, else it says where to go on.
        """
        prefix = PREFIX[Table.PRODUCER_QUEUE] + producer_id
        start, stop = prefix, after(prefix)
        if self.forget_at.startswith(prefix):
            start = self.forget_at
        deleted = 0
        for key, value in rows_in(self._store, start, stop):
            if deleted + QUEUE_ROWS_MAX > left:
                self.forget_at = key
                return deleted
            deleted += self.delete_queue(key, value)
        self.forget_at = b""
        return deleted

    def end_life(self, producer_id: bytes) -> None:
        """Leave the epoch of a producer to nobody."""
        producer = self.load(producer_id)
        assert producer is not None, f"producer {producer_id.hex()} has queues and no row"
        if not producer.is_half_forgotten:
            producer.life_id = producer.former_life_id = NO_ID
            self._writer.put(PREFIX[Table.PRODUCER] + producer_id, producer.encode())

    def delete(self, producer_id: bytes, active_step: int) -> None:
        """Delete a producer that has no queues."""
        self._writer.delete(PREFIX[Table.PRODUCER] + producer_id)
        self._writer.delete(_activity_key(active_step, producer_id))
        self._producers.pop(producer_id, None)

    def drop_cached_queues(self, producer_ids: Set[bytes]) -> None:
        """Let go of rows 52 in memory, also of those that were only looked for."""
        for queue_id in [each for each in self._queues if each[0] in producer_ids]:
            del self._queues[queue_id]

    def delete_queue(self, key: bytes, value: bytes) -> int:
        """Delete a row of table 52 and those of table 53 that belong to it; return how many.

        In one step: a row of table 53 without its 52 would pass for a newer window's.
        """
        block: int = PRODUCER_QUEUE_VALUE.unpack(value)[2]
        self._queues.pop((key[1:17], key[17:33], KEY_U32.unpack(key[33:])[0]), None)
        self._writer.delete(key)
        return 1 + self._delete_window(PREFIX[Table.PRODUCER_WINDOW] + key[1:], block)


def _activity_key(active_step: int, producer_id: bytes) -> bytes:
    return PREFIX[Table.PRODUCER_ACTIVITY] + KEY_U64.pack(active_step) + producer_id


def _queue_key(queue_id: ProducerQueueId) -> bytes:
    return PREFIX[Table.PRODUCER_QUEUE] + queue_id[0] + queue_id[1] + KEY_U32.pack(queue_id[2])
