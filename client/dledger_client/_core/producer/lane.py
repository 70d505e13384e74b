"""The batches of one queue in the order of their sequence: gathering, sent, to be repeated. Pure.

Owns: which batch of the queue may go next, sequence numbers, what a failure in the middle means.
Not: groups, bytes, deadlines (`buffer.py`), what a code means (`batch_fate.py`, `retry.py`).

    open ──────────> ready ──────────> stamped
    takes records    closed, in order  in order of sequence; the first `prefix` are outstanding

- A batch is stamped when it is first sent. Its sequence continues the one before it, so a member
  stores the batches of a queue in order or refuses them (SEQUENCE_GAP).
- When a try fails, the batches behind it that are still outstanding are *strays*. The member will
  refuse them, or has stored them because it stored the failed one. The lane sends nothing until all
  strays are answered. Then it repeats, in order, from its first batch that is not outstanding.
- A batch that leaves the middle for good, certainly not stored, leaves a *gap*. No batch stamped
  behind the gap can be stored while nothing fills the gap. Once all batches behind it are answered
  and none of their tries is unknown, the lane stamps them anew from the gap on. If one is unknown,
  a copy of it may still be on its way and would fit behind a batch that fills the gap. Then only a
  new epoch helps, which fences such copies (`must_fence`). The lane also needs a new epoch when a
  batch is given up that may be stored: nobody knows whether its sequence is taken or free.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

from dledger_client._core.producer.batch import BATCH_OVERHEAD_BYTES, Batch
from dledger_proto.batch.codec import Record

GATHER_SPAN = 0.1
"""Seconds between the budgets of the first and the last record of one batch, at most."""


@dataclass(frozen=True, slots=True)
class GatherLimits:
    """When a batch is closed, and how many batches may be on their way. `linger` in seconds."""

    batch_bytes: int
    batch_records: int
    linger: float
    window: int
    is_sequenced: bool = True
    """False: members do not look at sequences, so there are no gaps and no epochs."""


@dataclass(slots=True, eq=False, repr=False)
class Lane:
    """One queue's batches."""

    topic: str
    topic_id: bytes
    queue: int
    group: str
    _: KW_ONLY
    is_one_way: bool
    is_fifo: bool = False
    priority: int = 0
    open: Batch | None = None
    ready: deque[Batch] = field(default_factory=deque)
    stamped: deque[Batch] = field(default_factory=deque)
    prefix: int = 0
    """Invariant: exactly the first `prefix` of `stamped`, and `strays` of the rest, are
    outstanding."""
    strays: int = 0
    next_sequence: int = 0
    gap_at: int | None = None
    """A sequence that is certainly not stored and that batches are stamped behind."""
    must_fence: bool = False
    """Only a new epoch lets this lane go on."""
    is_active: bool = False
    """True: it is in its group's round of lanes with work."""

    @property
    def is_idle(self) -> bool:
        """True: nothing gathers, waits or is on its way."""
        return self.open is None and not self.ready and not self.stamped

    def append(
        self,
        record: Record,
        size: int,
        deadline: float,
        now: float,
        limits: GatherLimits,
        delivery_time_ms: int = 0,
    ) -> tuple[Batch, bool]:
        """Add a record of at most `size` encoded bytes; return its batch and whether it is new.

        The records of a batch have one delivery time.
        """
        batch = self.open
        if batch is not None:
            if (
                batch.size + size <= limits.batch_bytes
                and batch.count < limits.batch_records
                and batch.delivery_time_ms == delivery_time_ms
                and -GATHER_SPAN <= deadline - batch.deadline <= GATHER_SPAN
            ):
                batch.records.append(record)
                batch.count += 1
                batch.size += size
                return batch, False
            self.ready.append(batch)
        self.open = batch = self._new_batch([record], size, deadline, now)
        batch.delivery_time_ms = delivery_time_ms
        return batch, True

    def append_batch(
        self, records: Sequence[Record], size: int, deadline: float, now: float
    ) -> Batch:
        """Add records of together at most `size` encoded bytes as a closed batch; return it."""
        self.close_open()
        batch = self._new_batch(list(records), size, deadline, now)
        self.ready.append(batch)
        return batch

    def _new_batch(self, records: list[Record], size: int, deadline: float, now: float) -> Batch:
        batch = Batch(self.topic, self.topic_id, self.queue, self.group)
        batch.is_keyed = self.is_fifo
        batch.records = records
        batch.count = len(records)
        batch.size = BATCH_OVERHEAD_BYTES + size
        batch.created_at = now
        batch.deadline = deadline
        return batch

    def close_open(self) -> None:
        """Let the gathering batch be sent without waiting for more records."""
        if self.open is not None:
            self.ready.append(self.open)
            self.open = None

    def adopt(self, batch: Batch) -> None:
        """Take over a batch from another lane of the topic, behind everything that is closed."""
        self.close_open()
        self.ready.append(batch)

    def next_due(self, now: float, limits: GatherLimits) -> Batch | None:
        """Return the batch that may be sent now."""
        if self.must_fence or self.gap_at is not None:
            return None
        if self.prefix < len(self.stamped):
            if self.strays:
                return None
            batch = self.stamped[self.prefix]
            return batch if batch.retry_at <= now else None
        if len(self.stamped) >= limits.window:
            return None
        if self.ready:
            batch = self.ready[0]
            return batch if batch.retry_at <= now else None
        batch_or_none = self.open
        if batch_or_none is None or (
            self.stamped and now < batch_or_none.created_at + limits.linger
        ):
            return None
        return batch_or_none

    def due_at(self, limits: GatherLimits) -> float | None:
        """Return when `next_due` will have something by time alone; None: not by time."""
        if self.must_fence or self.gap_at is not None:
            return None
        if self.prefix < len(self.stamped):
            return None if self.strays else self.stamped[self.prefix].retry_at
        if len(self.stamped) >= limits.window:
            return None
        if self.ready:
            return self.ready[0].retry_at
        if self.open is None:
            return None
        return self.open.created_at + limits.linger if self.stamped else 0.0

    def send(self, batch: Batch) -> None:
        """Note that `batch`, from `next_due`, goes out; stamp it if it is not."""
        if self.prefix == len(self.stamped):
            if self.ready and self.ready[0] is batch:
                self.ready.popleft()
            else:
                assert batch is self.open, f"{batch.describe()} is not the lane's next"
                self.open = None
            if self.is_one_way:
                return
            batch.base_sequence = self.next_sequence
            self.next_sequence += batch.count
            self.stamped.append(batch)
        assert self.stamped[self.prefix] is batch, f"{batch.describe()} is not the lane's next"
        self.prefix += 1
        batch.is_outstanding = True
        batch.tries += 1

    def end_try(self, batch: Batch) -> None:
        """Note that the outstanding try of `batch` ended without storing it for certain."""
        assert batch.is_outstanding, f"{batch.describe()}: no try is on its way"
        place = self.stamped.index(batch)
        batch.is_outstanding = False
        if place < self.prefix:
            self.strays += self.prefix - place - 1
            self.prefix = place
        else:
            self.strays -= 1

    def remove(self, batch: Batch) -> None:
        """Take out a batch that is stored. The caller settles it."""
        place = self.stamped.index(batch)
        if place < self.prefix:
            self.prefix -= 1
        elif batch.is_outstanding:
            self.strays -= 1
        del self.stamped[place]

    def drop(self, batch: Batch) -> None:
        """Take out a batch, sent or not, that is given up. The caller settles it, or moves it."""
        if batch.base_sequence < 0:
            if batch is self.open:
                self.open = None
            else:
                self.ready.remove(batch)
            return
        place = self.stamped.index(batch)
        unknown = batch.maybe_stored or batch.is_outstanding
        self.remove(batch)
        if unknown:
            self.must_fence = True
        elif place == len(self.stamped):
            self.next_sequence = batch.base_sequence
            if self.gap_at is not None and self.gap_at >= batch.base_sequence:
                self.gap_at = None
        else:
            self.gap_at = (
                batch.base_sequence
                if self.gap_at is None
                else min(self.gap_at, batch.base_sequence)
            )
        if not unknown:
            batch.unstamp()
        self.close_gap()

    def close_gap(self) -> None:
        """Stamp anew, on their next try, the batches behind a gap once all of them are answered."""
        if self.gap_at is None or self.strays or self.must_fence:
            return
        behind = [batch for batch in self.stamped if batch.base_sequence >= self.gap_at]
        if any(batch.maybe_stored for batch in behind):
            self.must_fence = True
            return
        self._unstamp(behind)
        self.next_sequence = self.gap_at
        self.gap_at = None

    def forget_gap(self) -> None:
        """Let a lane without sequences go on; no batch is behind the one that it dropped."""
        assert not self.stamped or (self.gap_at is None and not self.must_fence), "window above 1"
        self.must_fence = False
        self.gap_at = None

    def _unstamp(self, behind: list[Batch]) -> None:
        for batch in reversed(behind):
            self.stamped.remove(batch)
            batch.unstamp()
            self.ready.appendleft(batch)

    def new_epoch(self, last_sequence: int | None) -> tuple[list[Batch], list[Batch]]:
        """Begin at sequence 0 of a new epoch; the old one can store nothing any more.

        `last_sequence` is the last one stored under the old epoch, None when the members do not
        know. Takes out of the lane and returns the batches that are stored, and those whose outcome
        nobody knows. The others are stamped anew on their next try.
        """
        assert self.prefix == 0 and self.strays == 0, "tries are on their way"  # noqa: PT018
        stored: list[Batch] = []
        unknown: list[Batch] = []
        keep: list[Batch] = []
        for batch in self.stamped:
            if last_sequence is not None:
                is_in = batch.base_sequence + batch.count - 1 <= last_sequence
                (stored if is_in else keep).append(batch)
            elif batch.maybe_stored and not (
                self.gap_at is not None and batch.base_sequence >= self.gap_at
            ):
                unknown.append(batch)
            else:
                keep.append(batch)
        self.stamped.clear()
        for batch in reversed(keep):
            batch.unstamp()
            self.ready.appendleft(batch)
        self.next_sequence = 0
        self.gap_at = None
        self.must_fence = False
        return stored, unknown

    def check(self) -> None:
        """Assert every invariant of this lane; tests call it after each step."""
        outstanding = [batch.is_outstanding for batch in self.stamped]
        assert all(outstanding[: self.prefix]), f"prefix {self.prefix} of {outstanding}"
        assert sum(outstanding[self.prefix :]) == self.strays, f"{self.strays} of {outstanding}"
        sequence = -1
        for batch in self.stamped:
            assert batch.base_sequence > sequence, f"{batch.describe()} after sequence {sequence}"
            sequence = batch.base_sequence + batch.count - 1
        assert sequence < self.next_sequence, f"{sequence}, next is {self.next_sequence}"
        for batch in self.ready:
            assert batch.base_sequence < 0 and not batch.maybe_stored, batch.describe()  # noqa: PT018
