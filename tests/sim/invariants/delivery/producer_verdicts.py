"""D11, judged by the log alone: epochs and sequences decide the fate of a stamped batch.

A model of its own, in lists and dictionaries: who is registered in which epoch, the last batches of
each (producer, queue). The first application of each entry is compared with it, so a fenced epoch
that still writes, a repeat that is stored again, answered with another offset or said to be too old
to know, and a refusal of what is in order are all found.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dledger.state import counted_time
from dledger.state.commands.registry import decode
from dledger.state.producers import table
from dledger.state.producers.expiry import ExpireProducers
from dledger.state.producers.registration import RegisterProducer
from dledger.state.results import Appended, Refused, Registered, Taken
from dledger.types import Entry, EntryKind
from dledger_proto.batch.codec import EPOCH_OF_SCHEDULES, BatchHeader, parse_header
from dledger_proto.errors import Code
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.delivery.queue_contents import QueueKey
from tests.sim.invariants.violation import Property


class _Stored(NamedTuple):
    sequence: int
    records: int
    offset: int


@dataclass(slots=True)
class _Lane:
    """A producer's batches in one queue, of one epoch."""

    epoch: int
    next_sequence: int = 0
    newest: deque[_Stored] = field(default_factory=deque[_Stored])


class _Held(NamedTuple):
    """Which producer holds which epoch, and the life it took over from."""

    epoch: int
    life_id: bytes
    former_id: bytes


class ProducerVerdicts(Invariant):
    """Judges every batch and registration once."""

    broken = Property.PRODUCER_VERDICTS

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._applied = 0
        self._held: dict[bytes, _Held] = {}
        self._counted_ms = 0
        self._lanes: dict[tuple[bytes, QueueKey], _Lane] = {}
        self.fenced_count = 0
        self.repeat_count = 0
        self.forgotten_count = 0

    def on_apply(
        self, member: MemberFacts, entry: Entry, results: Sequence[object], digest: bytes
    ) -> None:
        """See `Invariant.on_apply`."""
        if entry.ref.index <= self._applied:
            return
        self._applied = int(entry.ref.index)
        if entry.kind is EntryKind.BATCHES:
            for payload, result in zip(entry.payloads, results, strict=True):
                header = parse_header(payload)
                if header.producer_epoch == EPOCH_OF_SCHEDULES:
                    continue
                if header.base_sequence >= 0 and not _is_about_the_queue(result):
                    self._judge(header, result)
        elif entry.kind is EntryKind.COMMANDS:
            for payload, result in zip(entry.payloads, results, strict=True):
                wanted = decode(bytes(payload))
                if isinstance(wanted, RegisterProducer):
                    self._registered(wanted, result, entry.time_ms + self._counted_ms)
                elif isinstance(wanted, ExpireProducers):
                    self._counted_ms += min(wanted.elapsed_ms, counted_time.COUNTED_AT_ONCE_MAX_MS)

    # Batches.

    def _judge(self, header: BatchHeader, result: object) -> None:
        expected = self._verdict(header)
        if isinstance(expected, Code):
            if not isinstance(result, Refused) or result.code is not expected:
                self.fail(f"{expected.name} is due, answered {result}: {header}")
            self.fenced_count += expected is Code.STALE_EPOCH
            self.forgotten_count += expected is Code.DUPLICATE
        elif not isinstance(result, Appended) or result.duplicate != (expected is not None):
            what = "a new batch" if expected is None else f"a repeat of {expected}"
            self.fail(f"{what}, answered {result}: {header}")
        elif expected is None:
            self._stored(header, result)
        else:
            self.repeat_count += 1
            if result.base_offset != expected.offset:
                self.fail(f"a repeat of {expected}, answered {result}: {header}")

    def _verdict(self, header: BatchHeader) -> Code | _Stored | None:
        """Return why a batch is void, or what it repeats; None when it is new."""
        held = self._held.get(header.producer_id)
        epoch = 0 if held is None else held.epoch
        if header.producer_epoch != epoch:
            is_stale = 0 < header.producer_epoch < epoch
            return Code.STALE_EPOCH if is_stale else Code.UNKNOWN_PRODUCER
        lane = self._lane(header)
        sequence = header.base_sequence
        if sequence == lane.next_sequence:
            return None
        if sequence > lane.next_sequence:
            return Code.SEQUENCE_GAP
        for stored in lane.newest:
            if (stored.sequence, stored.records) == (sequence, header.record_count):
                return stored
        is_older = sequence < lane.newest[0].sequence
        return Code.DUPLICATE if is_older else Code.SEQUENCE_GAP

    def _lane(self, header: BatchHeader) -> _Lane:
        key = header.producer_id, (header.topic_id, header.queue)
        lane = self._lanes.get(key)
        if lane is None or lane.epoch != header.producer_epoch:
            lane = self._lanes[key] = _Lane(header.producer_epoch)
        return lane

    def _stored(self, header: BatchHeader, result: Appended) -> None:
        lane = self._lane(header)
        count = header.record_count
        lane.newest.append(_Stored(header.base_sequence, count, result.base_offset))
        lane.next_sequence += count
        if len(lane.newest) > table.WINDOW_BATCHES:
            lane.newest.popleft()

    # Registrations.

    def _registered(self, wanted: RegisterProducer, result: object, time_ms: int) -> None:
        expected = self._due(wanted, time_ms)
        if isinstance(expected, Code):
            right = isinstance(result, Refused) and result.code is expected
        elif isinstance(expected, Taken):
            right = result == expected
        else:
            right = isinstance(result, Registered) and result.epoch == expected.epoch
        if not right:
            self.fail(f"{expected} is due, answered {result}: {wanted}")
        if isinstance(expected, _Held) and isinstance(result, Registered):
            self._told(wanted.producer_id, result)
            self._held[wanted.producer_id] = expected

    def _due(self, wanted: RegisterProducer, time_ms: int) -> _Held | Taken | Code:
        """Return the life that holds the id from now on, or why the registration has no effect."""
        held = self._held.get(wanted.producer_id)
        life_id, epoch = wanted.life_id, wanted.epoch
        if held is None:
            return _Held(max(time_ms // 1_000, 1), life_id, b"")
        if life_id == held.life_id:
            if epoch > max(held.epoch + 1, time_ms // 1_000):
                return Code.INVALID_ARGUMENT
            return held._replace(epoch=max(epoch, held.epoch))
        if life_id == held.former_id:
            return Code.STALE_EPOCH
        if not epoch:
            return Taken(held.epoch)
        if epoch != held.epoch + 1:
            return Code.STALE_EPOCH
        return _Held(epoch, life_id, held.life_id)

    def _told(self, producer_id: bytes, result: Registered) -> None:
        """Compare what a registration tells of the epoch before it."""
        last = {
            (*queue, lane.next_sequence - 1)
            for (owner, queue), lane in self._lanes.items()
            if owner == producer_id and lane.epoch == result.epoch - 1 and lane.next_sequence
        }
        told = {(row.topic_id, row.queue, row.last_sequence) for row in result.last}
        if told != last:
            self.fail(f"epoch {result.epoch - 1} has stored {last}, answered {result}")


def _is_about_the_queue(result: object) -> bool:
    """Tell whether a batch was refused for its topic or queue."""
    about = (Code.TOPIC_NOT_FOUND, Code.QUEUE_NOT_FOUND, Code.NO_PERMISSION, Code.WRONG_GROUP)
    return isinstance(result, Refused) and result.code in about
