"""I8 and I9 on the log: contiguous offsets, no sequence missing or repeated, no batch stored twice.

Derived from what apply answers, entry by entry, the first time any member applies it. Later members
must answer the same (`agreement/state_moves_together.py`). What a queue holds according to the
first application is kept here as *the* contents. Every read is compared with it.

Not stronger: a batch without a producer stamp may be stored twice when its sender repeats it;
only stamped batches are unique.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dledger.state.results import DELAYED_OFFSET, Appended
from dledger.types import Entry, EntryKind
from dledger_proto.batch.codec import EPOCH_OF_SCHEDULES, BatchHeader, BatchView, parse_header
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.violation import Property, Violation

QueueKey = tuple[bytes, int]
"""Topic id and queue number."""
BatchKey = tuple[int, int, int]
"""CRC, base number, size: names the bytes of a batch within one world."""


def batch_key(header: BatchHeader) -> BatchKey:
    """Return what identifies a batch's bytes."""
    return header.crc, header.base_number, header.size


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """One row of a queue's true contents."""

    queue: QueueKey
    base_offset: int
    record_count: int
    index: int
    key: BatchKey
    producer_id: bytes
    base_number: int
    store_time_ms: int

    @property
    def end(self) -> int:
        """Return the offset after its last record."""
        return self.base_offset + self.record_count


class Contents:
    """What all groups of a world hold: a queue is of one group."""

    def __init__(self) -> None:
        self.queues: dict[QueueKey, dict[int, StoredBatch]] = {}
        self.ends: dict[QueueKey, int] = {}
        self.places: dict[BatchKey, list[tuple[QueueKey, int]]] = {}
        """Where a batch's bytes are stored: at most one place when it is stamped."""
        self.messages: dict[tuple[bytes, int], tuple[QueueKey, int]] = {}
        """Where each stamped message lies, by producer id and number."""
        self.keyed: dict[str, list[tuple[StoredBatch, int]]] = {}
        """By key, in the order of each log: batch and place of each record that has it."""
        self.rows: dict[tuple[bytes, int], StoredBatch] = {}
        """Batch of each stamped message, by producer id and number."""
        self.asked: dict[QueueKey, int] = {}
        """Highest offset that a trim was ever asked for, or to which records have expired. Records
        at or above it must stay."""
        self.retention_ms: dict[bytes, int] = {}
        """How long topics keep their records, by id; others keep them for the whole seed."""
        self.expired = 0
        """How often records of a queue expired."""
        self.modelled: set[bytes] = set()
        """Ids of topics whose queues `records.py` follows: timers append to them, too."""


class QueueContents(Invariant):
    """The true contents of the queues of one group, and what each producer has stored."""

    broken = Property.CONTIGUOUS_OFFSETS

    def __init__(self, facts: Facts, stored: Contents) -> None:
        super().__init__(facts)
        self.applied = 0
        self.own_queues: dict[QueueKey, None] = {}
        """The queues of this group that hold anything."""
        self.stored = stored
        self.queues = stored.queues
        self.ends = stored.ends
        self.places = stored.places
        self.messages = stored.messages
        self.keyed = stored.keyed
        self.rows = stored.rows
        self._modelled = stored.modelled
        self._next_sequence: dict[tuple[bytes, int, QueueKey], int] = {}
        self._stamped: dict[tuple[bytes, int, QueueKey, int], int] = {}
        self.stored_count = 0
        self.duplicate_count = 0
        self.refused_count = 0
        self.delayed_count = 0

    def on_apply(
        self, member: MemberFacts, entry: Entry, results: Sequence[object], digest: bytes
    ) -> None:
        """See `Invariant.on_apply`."""
        if entry.ref.index <= self.applied:
            return
        self.applied = int(entry.ref.index)
        if entry.kind is not EntryKind.BATCHES:
            return
        if len(results) != len(entry.payloads):
            self.fail(f"{len(results)} results for {len(entry.payloads)} batches of {entry.ref}")
        for payload, result in zip(entry.payloads, results, strict=True):
            header = parse_header(payload)
            if header.topic_id in self._modelled:
                continue
            if isinstance(result, Appended) and result.base_offset == DELAYED_OFFSET:
                self.delayed_count += 1  # by scripts alone, which compare what queues hold
            elif isinstance(result, Appended):
                self._appended(header, result, entry, payload)
            else:
                self.refused_count += 1

    def _appended(
        self, header: BatchHeader, result: Appended, entry: Entry, payload: memoryview
    ) -> None:
        index = int(entry.ref.index)
        queue = header.topic_id, header.queue
        stamped = header.producer_id != bytes(16)
        stamp = (header.producer_id, header.producer_epoch, queue, header.base_sequence)
        if result.duplicate:
            self.duplicate_count += 1
            original = self._stamped.get(stamp)
            if not stamped or original is None:
                self.fail(f"index {index}: called a duplicate, but never stored: {header}")
            if result.base_offset not in (-1, original):
                self.fail(f"duplicate at {result.base_offset}, original at {original}: {header}")
            return
        end = self.ends.get(queue, 0)
        if result.base_offset != end or result.record_count != header.record_count:
            self.fail(f"index {index}: {result} in a queue that ends at {end}")
        self.ends[queue] = end + header.record_count
        if header.producer_epoch == EPOCH_OF_SCHEDULES:
            return  # of a topic that nobody reads: `schedules.py` has it
        if stamped:
            self._check_order(header, stamp, queue, end)
        row = StoredBatch(
            queue,
            end,
            header.record_count,
            index,
            batch_key(header),
            header.producer_id,
            header.base_number,
            entry.time_ms,
        )
        self._remember(row, payload, stamped=stamped)
        self.own_queues[queue] = None
        self.queues.setdefault(queue, {})[end] = row
        self.places.setdefault(row.key, []).append((queue, end))
        self.stored_count += 1

    def _remember(self, row: StoredBatch, payload: memoryview, *, stamped: bool) -> None:
        view = BatchView(payload)
        for place in range(row.record_count):
            for key in view.record(place).keys:
                self.keyed.setdefault(key, []).append((row, place))
            if stamped:
                self.rows[row.producer_id, row.base_number + place] = row

    def _check_order(
        self, header: BatchHeader, stamp: tuple[bytes, int, QueueKey, int], queue: QueueKey, at: int
    ) -> None:
        who = header.producer_id, header.producer_epoch, queue
        expected = self._next_sequence.get(who, 0)
        if header.base_sequence != expected:
            raise Violation(
                Property.PRODUCER_ORDER,
                f"sequence {header.base_sequence} is stored where {expected} follows: {header}",
            )
        self._next_sequence[who] = expected + header.record_count
        self._stamped[stamp] = at
        for place in range(header.record_count):
            message = header.producer_id, header.base_number + place
            other = self.messages.setdefault(message, (queue, at + place))
            if other != (queue, at + place):
                raise Violation(
                    Property.DUPLICATE,
                    f"message {message} is stored at {other} and {(queue, at + place)}",
                )
