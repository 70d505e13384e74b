"""SettleDeadLetters: dead letters are sent to their consumer group again, or dropped (S111, D25).

Owns: the command, the guard against loops. Not: how a record dies (`failures.py`).

The dead letters of a group lie in `%DLQ%name`. No consumer of the group can claim them, so the row
of progress of the group in this queue is free for another use: what is done there is settled. One
command settles a number of dead letters, and appends references to them to the retry queue of the
group. A dead letter that is settled is not settled again. So each is sent once, whoever repeats the
command, and a job that was broken off goes on where it was. What lies below the floor is trimmed.

A reference tells how often its record was sent again. The guard refuses to send one again that was
sent `resent_max` times; 0: no guard.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from dledger.state.commands.codec import Int64, UInt32
from dledger.state.commands.command import Command
from dledger.state.offsets import check_consumer_group
from dledger.state.progress.group import Group, existing_group, first_queue_of
from dledger.state.progress.ranges import RANGES_MAX, settled
from dledger.state.progress.row import Progress
from dledger.state.queues.table import Queue
from dledger.state.queues.trim import Trim
from dledger.state.results import DeadLettersSettled, Refused
from dledger.types import Entry
from dledger_proto.errors import Code, DledgerError

if TYPE_CHECKING:
    from dledger.state.state import State

RESENT_COUNT_MAX: Final = 255
"""A reference counts no further."""
ROWS_PER_DEAD_LETTER: Final = 8


@dataclass(frozen=True, slots=True)
class SettleDeadLetters(Command[DeadLettersSettled]):
    """Send dead letters to their group again, or drop them; each is taken or refused alone."""

    NUMBER: ClassVar = 55

    consumer_group: str
    queue: UInt32
    """Of the topic of dead letters."""
    offsets: tuple[Int64, ...]
    resend: bool
    """False: drop."""
    resent_max: UInt32

    @property
    def frees_space(self) -> bool:
        return not self.resend

    @property
    def rows_read_max(self) -> int:
        return ROWS_PER_DEAD_LETTER * len(self.offsets)

    def apply(self, state: "State", entry: Entry) -> DeadLettersSettled | Refused:
        """Settle what is not settled; say of each why not."""
        check_consumer_group(self.consumer_group)
        group = existing_group(state.topics, self.consumer_group)
        queue = state.queue(group.settings.dead_letter_topic_id, self.queue)
        target = first_queue_of(state.topics, group.id, state.group)
        row = state.progress.read(group.id, group.name_bytes, queue.id) or Progress(0)
        retries = state.queues.find(target)
        codes = tuple(
            self._settle(state, queue, row, retries, offset, entry) for offset in self.offsets
        )
        if Code.OK in codes:
            row.committed_ms = entry.time_ms
            state.progress.write(group.id, group.name_bytes, queue.id, row)
            if queue.minimum < row.floor:
                Trim(*queue.id, row.floor).apply(state, entry)
        return DeadLettersSettled(codes)

    def _settle(
        self, state: "State", queue: Queue, row: Progress, retries: Queue, offset: int, entry: Entry
    ) -> Code:
        if row.is_done(offset) or 0 <= offset < queue.minimum:
            return Code.NOT_FOUND
        if not 0 <= offset < queue.maximum:
            return Code.OFFSET_OUT_OF_RANGE
        floor = max(row.floor, queue.minimum)
        floor, done = settled(floor, row.done, [(offset, offset + 1)])
        if len(done) > RANGES_MAX:
            return Code.TOO_MANY_RANGES
        if self.resend:
            origin = state.references.origin_at(queue, offset)
            assert origin is not None, f"dead letter {queue.id} {offset} has no origin"
            if self.resent_max and origin.resent >= self.resent_max:
                return Code.HELD
            resent = min(origin.resent + 1, RESENT_COUNT_MAX)
            reference = state.references.record_at(queue, offset)
            again = origin._replace(attempts=0, resent=resent)
            state.references.append(retries, reference, again, entry)
        row.finish(floor, done)
        return Code.OK


def check_no_dead_letters(group: Group, topic_id: bytes) -> None:
    """Refuse that a group consumes its own dead letters: they would never come to an end."""
    if topic_id == group.settings.dead_letter_topic_id:
        raise DledgerError(
            Code.INVALID_ARGUMENT,
            f"{group.name} cannot consume its own dead letters; resend them, or use another group",
        )
