"""FailRecords: a record that a consumer could not handle is tried again, or is dead (D22, D25).

Owns: what a failure does, and how often it counts. Not: who is refused (`fence.py`), rows of
references and timers (`queues/references.py`, `timers/table.py`), waves (`wave.py`).

In a concurrent group the record is done in its queue. The same command sets a timer that puts a
reference into the retry queue of this broker group; or, after the last failure, the reference goes
into the dead-letter queue. In an ordered group the record stays; its row keeps attempts and the
time until which it is suspended. After the last failure it is done, and dead.

    group       what is known of the record             verdict
    ----------  --------------------------------------  -----------------------------------------
    any         it is done                              OK, nothing changes: a repeat
    ordered     more attempts than the sender knows     OK, nothing changes: a repeat
    any         other attempts than the sender knows    INVALID_ARGUMENT
    any         the group is paused                     GROUP_PAUSED, nothing is counted
    any         attempts as the sender knows            one more attempt

The attempts of a record in the group's own retry topic are those of its origin.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from dledger.state.commands.codec import Int64, UInt32, UInt64
from dledger.state.commands.command import Command
from dledger.state.consumers.settings import RETRIES_MAX, RETRY_DELAY_MS_MAX
from dledger.state.offsets import check_consumer_group
from dledger.state.progress.fence import refusal_of_sender
from dledger.state.progress.group import Group, existing_group, first_queue_of
from dledger.state.progress.ranges import RANGES_MAX, Range, settled
from dledger.state.progress.row import SUSPENDED_MAX, Progress, Suspended
from dledger.state.queues.table import Queue
from dledger.state.results import FailuresStored, FailureStored, Refused
from dledger.state.values import Origin
from dledger.types import Entry
from dledger_proto.errors import Code, DledgerError

if TYPE_CHECKING:
    from dledger.state.state import State

BY_POLICY: Final = -1
"""A delay: that of the group's settings."""
DEAD_NOW: Final = -2
"""A delay: no retry, however few failures there were."""
ROWS_PER_FAILURE: Final = 16


class FailedRecord(NamedTuple):
    """A record, who had it, and what went wrong."""

    topic_id: bytes
    queue: UInt32
    epoch: UInt64
    resets: UInt32
    offset: Int64
    attempts: UInt32
    """That the sender knows: failures before this one."""
    delay_ms: Int64
    """Until the next try; BY_POLICY or DEAD_NOW."""
    error: str

    def describe(self) -> str:
        """Return one word."""
        return (
            f"{self.topic_id.hex()}/{self.queue}@{self.offset}#{self.epoch}.{self.resets}"
            f"*{self.attempts}{self.delay_ms:+}"
        )


@dataclass(frozen=True, slots=True)
class FailRecords(Command[FailuresStored]):
    """Note that records failed; each is taken or refused on its own."""

    NUMBER: ClassVar = 53

    consumer_group: str
    member_id: str
    records: tuple[FailedRecord, ...]

    @property
    def rows_read_max(self) -> int:
        return ROWS_PER_FAILURE * len(self.records)

    def apply(self, state: "State", entry: Entry) -> FailuresStored | Refused:
        """Move each record on, or say why not."""
        check_consumer_group(self.consumer_group)
        group = existing_group(state.topics, self.consumer_group)
        rows: list[FailureStored] = []
        for failed in self.records:
            try:
                rows.append(self._fail(state, group, failed, entry))
            except DledgerError as error:  # raised before anything of this record was written
                rows.append(FailureStored(error.code, error.detail))
        return FailuresStored(tuple(rows), entry.time_ms)

    def _fail(
        self, state: "State", group: Group, failed: FailedRecord, entry: Entry
    ) -> FailureStored:
        queue = state.queue(failed.topic_id, failed.queue)
        row = state.progress.read(group.id, group.name_bytes, queue.id)
        refusal = refusal_of_sender(row, failed.epoch, self.member_id, failed.resets)
        if refusal is not None or row is None or not failed.epoch:
            raise DledgerError(refusal or Code.FENCED, f"epoch {failed.epoch} has no claim")
        if not BY_POLICY >= failed.delay_ms >= DEAD_NOW and not (
            0 <= failed.delay_ms <= RETRY_DELAY_MS_MAX
        ):
            raise DledgerError(
                Code.INVALID_ARGUMENT,
                f"delay_ms {failed.delay_ms}, must be {DEAD_NOW} to {RETRY_DELAY_MS_MAX}",
            )
        if failed.attempts > RETRIES_MAX:
            raise DledgerError(
                Code.INVALID_ARGUMENT, f"attempts {failed.attempts}, must be 0 to {RETRIES_MAX}"
            )
        if not 0 <= failed.offset < queue.maximum:
            raise _outside(failed.offset, queue)
        if row.is_done(failed.offset):
            # Of an ordered group it was dead, or committed: the consumer must not wait for a try.
            return FailureStored(Code.OK, "", failed.attempts + 1, is_dead=group.is_ordered)
        if failed.offset < queue.minimum:
            raise _outside(failed.offset, queue)
        return self._of_waiting(state, group, failed, queue, row, entry)

    def _of_waiting(
        self,
        state: "State",
        group: Group,
        failed: FailedRecord,
        queue: Queue,
        row: Progress,
        entry: Entry,
    ) -> FailureStored:
        if state.queues.row_at(queue, failed.offset).is_gone:
            # Compaction deleted the record while the consumer had it: nothing to try again.
            row.finish(*_settled(row, failed.offset))
            state.progress.write(group.id, group.name_bytes, queue.id, row)
            return FailureStored(Code.OK, "", failed.attempts + 1, is_dead=group.is_ordered)
        origin = state.references.origin_at(queue, failed.offset)
        suspended = row.suspended.get(failed.offset)
        known = origin.attempts if origin is not None and queue.id[0] == group.id else 0
        if suspended is not None:
            known = suspended.attempts
            if failed.attempts < known:
                return FailureStored(Code.OK, "", known, due_ms=suspended.until_ms)
        if failed.attempts != known:
            raise DledgerError(
                Code.INVALID_ARGUMENT,
                f"offset {failed.offset}: attempts {failed.attempts}, the record has {known}",
            )
        pause = state.waves.pause_of(group)
        if pause is not None:
            raise DledgerError(Code.GROUP_PAUSED, f"the group is paused: {pause.why}")
        attempts = known + 1
        is_dead = failed.delay_ms == DEAD_NOW or attempts > group.settings.retries_max
        delay_ms = failed.delay_ms
        if not is_dead and delay_ms == BY_POLICY:
            delay_ms = group.settings.retry_delay_ms(attempts)
        due_ms = 0 if is_dead else entry.time_ms + delay_ms
        if group.is_ordered and not is_dead:
            if suspended is None and len(row.suspended) >= SUSPENDED_MAX:
                raise DledgerError(
                    Code.TOO_MANY_RANGES, f"{SUSPENDED_MAX} records of the queue are suspended"
                )
            row.suspended[failed.offset] = Suspended(attempts, due_ms)
        else:
            moved = _origin(failed, origin, attempts)
            _move(
                state, group, failed.offset, queue, row, moved, None if is_dead else due_ms, entry
            )
        if not is_dead:
            state.usage.retried(group.id, due_ms)
        state.progress.write(group.id, group.name_bytes, queue.id, row)
        state.waves.failed(group, entry.time_ms)
        return FailureStored(Code.OK, "", attempts, is_dead, due_ms)


def _origin(failed: FailedRecord, origin: Origin | None, attempts: int) -> Origin:
    """Return the origin of the reference that is to be appended."""
    if origin is None:
        origin = Origin(failed.topic_id, failed.queue, failed.offset)
    return origin._replace(attempts=attempts, error=failed.error)


def _move(
    state: "State",
    group: Group,
    offset: int,
    queue: Queue,
    row: Progress,
    origin: Origin,
    due_ms: int | None,
    entry: Entry,
) -> None:
    """Set a timer for the next try, or append to the dead letters; then the record is done here.

    Raises before it writes. Without `due_ms` the record is dead.
    """
    floor, done = _settled(row, offset)
    reference = state.references.record_at(queue, offset)
    if due_ms is not None:
        target = first_queue_of(state.topics, group.id, state.group)
        state.timers.check_room(for_retry=True)
        state.timers.add(due_ms, *target, reference, origin, entry.time_ms)
    elif group.settings.dead_letters:
        dead = first_queue_of(state.topics, group.settings.dead_letter_topic_id, state.group)
        state.references.append(state.queues.find(dead), reference, origin, entry)
    row.finish(floor, done)


def _settled(row: Progress, offset: int) -> tuple[int, list[Range]]:
    """Return floor and done ranges once a record is done; TOO_MANY_RANGES."""
    floor, done = settled(row.floor, row.done, [(offset, offset + 1)])
    if len(done) > RANGES_MAX:
        raise DledgerError(Code.TOO_MANY_RANGES, f"{RANGES_MAX} done ranges, commit the oldest")
    return floor, done


def _outside(offset: int, queue: Queue) -> DledgerError:
    return DledgerError(
        Code.OFFSET_OUT_OF_RANGE,
        f"offset {offset}, the queue holds {queue.minimum} to {queue.maximum}",
    )
